"""Misbehaving clients and crashes.

Bodies that never end or declare a wrong length, more requests than the limit, and a server that is
killed while it writes.
"""

import asyncio
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.server.raw_connection import connected, rest
from tests.server.towns import point

BODY = json.dumps(point("sent", 1, 1)).encode()
PATH = "/hub/spaces/roads/features"
TIME_LIMIT = 2
FEW = ("--parallel=4", "--actor-parallel=4", "--actor-queue=20", "--queue-seconds=1")


@contextmanager
def serving(
    request: pytest.FixtureRequest, directory: Path, *arguments: str
) -> Iterator[HubServer]:
    """A hub on a storage."""
    if request.param == "file":
        with HubServer(directory, arguments=arguments) as server:
            yield server
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn, HubServer(directory, storage=dsn, arguments=arguments) as server:
        yield server


STORAGES = ["file", pytest.param("psql", marks=pytest.mark.postgres)]


@pytest.fixture(params=STORAGES)
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HubServer]:
    """A hub that may be killed."""
    with serving(request, tmp_path) as server:
        httpx.post(f"{server.url}/hub/spaces", json={"id": "roads"}).raise_for_status()
        yield server


@pytest.fixture(scope="module", params=STORAGES)
def narrow_hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubServer]:
    """A hub with few slots and a short time limit."""
    directory = tmp_path_factory.mktemp("hub")
    with serving(request, directory, *FEW, f"--request-seconds={TIME_LIMIT}") as server:
        httpx.post(f"{server.url}/hub/spaces", json={"id": "roads"}).raise_for_status()
        yield server


@pytest.fixture(scope="module", params=STORAGES)
def crowded_hub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubServer]:
    """A hub with few slots and the default time limit, which a busy machine does not reach."""
    with serving(request, tmp_path_factory.mktemp("hub"), *FEW) as server:
        httpx.post(f"{server.url}/hub/spaces", json={"id": "roads"}).raise_for_status()
        yield server


# ---- Bodies --------------------------------------------------------------------------------------


def head(port: int, *fields: str) -> bytes:
    lines = [f"PUT {PATH} HTTP/1.1", f"Host: 127.0.0.1:{port}", *fields, "", ""]
    return "\r\n".join(lines).encode()


def has_feature(hub: HubServer, id: str = "sent") -> bool:
    answer = httpx.get(f"{hub.url}{PATH}/{id}", timeout=30)
    assert answer.status_code in (200, 404), answer.text
    return answer.status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: many"],
        ["Content-Length: -5"],
        [f"Content-Length: {len(BODY)}", "Content-Length: 7"],
        ["Content-Length: 99999999999999999999999"],
        ["Transfer-Encoding: nonsense"],
    ],
    ids=["no-number", "negative", "two", "overflow", "encoding"],
)
def test_a_length_that_makes_no_sense_is_refused(narrow_hub: HubServer, fields: list[str]) -> None:
    with connected(narrow_hub.port) as connection:
        connection.sendall(head(narrow_hub.port, "Connection: close", *fields) + BODY)
        answer = rest(connection)
    assert answer[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b""), answer[:300]
    assert not has_feature(narrow_hub)


def test_a_body_that_ends_early_writes_nothing(narrow_hub: HubServer) -> None:
    for sent in (0, 1, len(BODY) - 1):
        with connected(narrow_hub.port) as connection:
            length = f"Content-Length: {len(BODY)}"
            connection.sendall(head(narrow_hub.port, length) + BODY[:sent])
    time.sleep(0.2)
    assert not has_feature(narrow_hub)


def test_ambiguous_body_lengths_smuggle_no_request(narrow_hub: HubServer) -> None:
    """A request inside of the body of another one is not carried out."""
    inner = f"DELETE {PATH}?eraseContent=true HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with connected(narrow_hub.port) as connection:
        both = [f"Content-Length: {len(inner)}", "Transfer-Encoding: chunked", "Connection: close"]
        connection.sendall(head(narrow_hub.port, *both) + b"0\r\n\r\n" + inner)
        answer = rest(connection)
    assert answer.count(b"HTTP/1.1 2") == 0, answer


def test_missing_bodies_block_no_other_client(narrow_hub: HubServer) -> None:
    """More of them than there are places; each is given up when its time is over."""
    length = f"Content-Length: {len(BODY)}"
    began = time.monotonic()
    sockets = [connected(narrow_hub.port) for _ in range(8)]
    opened = [socket.__enter__() for socket in sockets]
    try:
        for one in opened:
            one.sendall(head(narrow_hub.port, length, "Connection: close") + BODY[:10])
        assert httpx.get(f"{narrow_hub.url}/hub/health-status").status_code == 200
        answers = [rest(one) for one in opened]
    finally:
        for socket in sockets:
            socket.__exit__(None, None, None)
    assert time.monotonic() - began < 20
    assert all(answer[:13] in (b"HTTP/1.1 504 ", b"HTTP/1.1 503 ") for answer in answers), answers
    assert not has_feature(narrow_hub)


# ---- Too many ------------------------------------------------------------------------------------


async def test_overload_responses_have_retry_after_and_lose_no_write(
    crowded_hub: HubServer,
) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=crowded_hub.url, timeout=60, limits=limits) as client:

        async def put(id: str) -> httpx.Response:
            return await client.put(f"{PATH}/{id}", json=point(id, 1, 1))

        waiting = [f"n{n}" for n in range(200)]
        turned_away = 0
        for _ in range(40):
            answers = dict(zip(waiting, await asyncio.gather(*map(put, waiting)), strict=True))
            assert {answer.status_code for answer in answers.values()} <= {200, 503}
            refused = [id for id, answer in answers.items() if answer.status_code == 503]
            for id in refused:
                assert int(answers[id].headers["Retry-After"]) >= 1
                assert answers[id].json()["type"] == "ErrorResponse"
            # What was refused was not done.
            found = (await client.get(f"{PATH}?id={','.join(waiting)}")).json()["features"]
            assert {one["id"] for one in found} == set(waiting) - set(refused)
            turned_away += len(refused)
            waiting = refused
            if not waiting:
                break
        assert turned_away
        assert not waiting
        count = (await client.get("/hub/spaces/roads/count")).json()["count"]
        assert count == 200


# ---- Killed --------------------------------------------------------------------------------------


def test_acknowledged_writes_survive_a_kill(hub: HubServer) -> None:
    _kill_often(hub, times=2)


@pytest.mark.long
def test_that_many_times(hub: HubServer) -> None:
    _kill_often(hub, times=25)


def _kill_often(hub: HubServer, times: int) -> None:
    numbers = itertools.count()
    kept: dict[str, int] = {}
    for turn in range(times):
        kept |= _write_until_killed(hub, numbers, after=random.Random(turn).uniform(0.3, 1.0))
        hub.start()
        found = httpx.get(f"{hub.url}/hub/spaces/roads/iterate?limit=100000", timeout=60).json()
        stored = {one["id"]: one["properties"]["n"] for one in found["features"]}
        assert kept.items() <= stored.items()
        answer = httpx.get(f"{hub.url}/hub/spaces/roads/changesets?limit=1", timeout=60)
        assert answer.status_code == 200, answer.text
    assert kept


def _write_until_killed(hub: HubServer, numbers: Iterator[int], after: float) -> dict[str, int]:
    """Run several writers that record acknowledged writes until the server is gone."""
    kept: dict[str, int] = {}

    def write() -> None:
        with httpx.Client(base_url=hub.url, timeout=30) as client:
            while True:
                n = next(numbers)
                feature = point(f"w{n}", 1, 1, n=n)
                try:
                    answer = client.put(f"{PATH}/w{n}", json=feature)
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    kept[f"w{n}"] = n

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 20
    while len(kept) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after)
    hub.kill()
    for writer in writers:
        writer.join()
    return kept
