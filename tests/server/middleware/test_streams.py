"""Streamed responses: complete, or visibly broken."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack

import httpx
import pytest
import uvicorn
from starlette.responses import Response

from naksha.hub.pipeline.responses import Features
from naksha.model.errors import LimitExceeded, Unavailable
from naksha.model.state import State
from naksha.server.app import create_app
from naksha.server.middleware.spool import SpoolBudget, unhurried
from naksha.server.process.settings import ServerSettings
from naksha.server.responses.encoding import feature_collection
from naksha.server.routing.declarations import Router
from naksha.testing.servers._private_server import free_port
from naksha.testing.servers.hub_server import HubServer
from tests.server.towns import ids_of, new_space, point, put

SOME = [State(f"{n}", json.dumps(point(f"{n}", text="x" * 1000)).encode()) for n in range(100)]


async def _breaking(answer: Features) -> AsyncIterator[Sequence[State]]:
    for _ in range(5):
        yield SOME
        await asyncio.sleep(0)
    raise Unavailable("The storage is gone")


async def _broken() -> Response:
    return await feature_collection(await Features.with_first_read(_breaking))


async def _nothing_then_broken(answer: Features) -> AsyncIterator[Sequence[State]]:
    if answer.cursor is None:
        raise Unavailable("The storage is gone")
    yield SOME


async def _broken_at_once() -> Response:
    return await feature_collection(await Features.with_first_read(_nothing_then_broken))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The application with its layers, and two routes whose storage fails."""
    router = Router()
    router.get("/hub/broken")(_broken)
    router.get("/hub/broken-at-once")(_broken_at_once)
    app = create_app(ServerSettings(), [router])
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield f"http://127.0.0.1:{port}/hub"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_answer_that_breaks_off_cannot_be_taken_for_whole(url: str, encoding: str) -> None:
    with (
        httpx.Client() as client,
        client.stream("GET", f"{url}/broken", headers={"Accept-Encoding": encoding}) as answer,
    ):
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()


def test_a_failure_before_the_response_is_an_error(url: str) -> None:
    answer = httpx.get(f"{url}/broken-at-once")
    assert answer.status_code == 503
    assert answer.json()["errorMessage"] == "The storage is gone"


def test_a_large_answer_comes_in_pieces_and_whole(client: httpx.Client) -> None:
    space = new_space(client)
    text = "x" * 500
    for start in range(0, 6000, 3000):
        put(client, space, *(point(f"{n:05}", text=text) for n in range(start, start + 3000)))
    for path in (
        "search?limit=100000",
        "iterate?limit=100000",
        "bbox?west=-1&south=-1&east=1&north=1",
    ):
        with client.stream("GET", f"{space}/{path}") as answer:
            pieces = [*answer.iter_raw()]
        assert len(pieces) > 1
    got = client.get(f"{space}/iterate?limit=100000").json()
    assert ids_of(got["features"]) == [f"{n:05}" for n in range(6000)]
    assert "handle" not in got
    assert len(client.get(f"{space}/search?limit=5999").json()["features"]) == 5999


def test_a_small_answer_is_sent_at_once(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(f"{n:03}") for n in range(100)))
    for path in ("search", "iterate?limit=60", "bbox?west=-1&south=-1&east=1&north=1"):
        answer = client.get(f"{space}/{path}", headers={"Accept-Encoding": "identity"})
        assert int(answer.headers["Content-Length"]) == len(answer.content)
        assert len(answer.json()["features"]) == (60 if "60" in path else 100)
        assert ("handle" in answer.json()) == ("60" in path)


def test_a_slow_reader_blocks_no_other_client(hub: HubServer, client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(f"f{n:04}", text="x" * 4_000) for n in range(3_000)))
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.socket()) for _ in range(14)]
        for one in slow:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.connect(("127.0.0.1", hub.port))
            one.sendall(f"GET /hub{space}/search HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow[0].recv(1, socket.MSG_PEEK) == b"H"  # their answers have begun
        for path in ("features/f0001", "count", "search?limit=10", "iterate?limit=10"):
            assert client.get(f"{space}/{path}", timeout=8).status_code == 200
        assert client.put(f"{space}/features/new", json=point("new"), timeout=8).is_success
        # There are fewer connections for answers that are streamed than slow readers.
        assert len(client.get(f"{space}/search", timeout=20).json()["features"]) == 3_001
        read = http.client.HTTPResponse(slow[0])
        read.begin()
        found = ids_of(json.loads(read.read())["features"])
        assert sorted(found) == [f"f{n:04}" for n in range(3_000)]


async def _ten(closed: asyncio.Event) -> AsyncIterator[bytes]:
    try:
        for n in range(10):
            yield b"%d" % n
            await asyncio.sleep(0)
    finally:
        closed.set()


async def test_responses_to_slow_readers_are_spooled() -> None:
    closed = asyncio.Event()
    budget = SpoolBudget(answer_bytes_max=9, bytes_max=9)
    body = unhurried(_ten(closed), 0.0, budget)
    assert await anext(body) == b"0"
    await asyncio.wait_for(closed.wait(), 30)  # the reader does nothing
    assert budget.bytes_used == 9
    assert b"".join([part async for part in body]) == b"123456789"
    assert budget.bytes_used == 0


@pytest.mark.parametrize("budget", [SpoolBudget(8, 100), SpoolBudget(100, 8)], ids=["one", "all"])
async def test_the_spool_is_limited(budget: SpoolBudget) -> None:
    closed = asyncio.Event()
    body = unhurried(_ten(closed), 0.0, budget)
    assert await anext(body) == b"0"
    await asyncio.wait_for(closed.wait(), 30)
    assert await anext(body) == b"12345678"
    with pytest.raises(LimitExceeded, match="slowly"):
        await anext(body)
    assert budget.bytes_used == 0


async def test_a_disconnected_slow_reader_leaves_nothing() -> None:
    closed = asyncio.Event()
    budget = SpoolBudget(100, 100)

    asked = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"some"
            yield b"more"
            asked.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    body = unhurried(endless(), 0.0, budget)
    await anext(body)
    await asyncio.wait_for(asked.wait(), 30)
    assert budget.bytes_used == 4
    await body.aclose()
    assert closed.is_set()
    assert budget.bytes_used == 0


def test_a_disconnect_closes_everything(client: httpx.Client) -> None:
    space = new_space(client)
    put(client, space, *(point(f"{n}", text="x" * 5000) for n in range(2000)))
    for _ in range(30):  # more than there are connections to a database
        with client.stream("GET", f"{space}/search?limit=100000") as answer:
            next(answer.iter_raw())
    assert client.get(f"{space}/count").json()["count"] == 2000
