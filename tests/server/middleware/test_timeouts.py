"""Limits of long requests: time, number per actor, disconnected clients, and shutdown."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from tests.server.held_requests import PATH, fill, locked
from tests.server.raw_connection import connected, get_line

QUICK = ["--request-seconds", "1.5", "--log-format", "json"]
NARROW = ["--actor-parallel", "2", "--actor-queue", "1"]


@pytest.fixture(scope="module")
def dsn(
    database_factory: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with database_factory.fresh() as dsn:
        with HubServer(tmp_path_factory.mktemp("hub"), storage=dsn, catalog=dsn) as hub:
            fill(hub)
        yield dsn


@pytest.fixture(scope="module")
def hub(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    directory = tmp_path_factory.mktemp("hub")
    with HubServer(directory, storage=dsn, catalog=dsn, arguments=QUICK) as hub:
        yield hub


@contextmanager
def narrow_hub(dsn: str, directory: Path, queue_seconds: int) -> Iterator[HubServer]:
    """Few slots, and requests that may take long."""
    arguments = [*NARROW, "--queue-seconds", str(queue_seconds)]
    with HubServer(directory, storage=dsn, catalog=dsn, arguments=arguments) as hub:
        yield hub


def lines(hub: HubServer) -> list[dict[str, object]]:
    return [json.loads(line) for line in hub.log().splitlines() if line.startswith("{")]


async def until_refused(client: httpx.AsyncClient) -> None:
    """Wait until the server accepts no more connections."""
    while True:
        try:
            await client.get("/hub", headers={"Connection": "close"})
        except httpx.ConnectError:
            return
        except httpx.TransportError:  # accepted at the last moment, and closed
            continue


async def in_line(client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """A request that waits for a slot; sent again while the line is full."""
    while True:
        waiting = asyncio.create_task(client.get(PATH))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        if not done:
            return waiting
        assert waiting.result().status_code == 503


async def test_a_timeout_cancels_the_statement(hub: HubServer, dsn: str) -> None:
    async with locked(dsn) as table, httpx.AsyncClient(base_url=hub.url, timeout=30) as client:
        began = time.monotonic()
        answer = await client.get(PATH)
        assert answer.status_code == 504
        assert 1.4 < time.monotonic() - began < 10
        assert (answer.json()["error"], answer.json()["code"]) == ("Timeout", "timed_out")
        await table.wait_for(0)
        # The outcome of a write is not known.
        answer = await client.delete(PATH)
        assert (answer.status_code, answer.json()["code"]) == (504, "outcome_unknown")
        await table.wait_for(0)
        await table.release()
        assert (await client.get(PATH)).status_code == 200


async def test_a_disconnect_cancels_the_work(hub: HubServer, dsn: str) -> None:
    async with locked(dsn) as table:
        with connected(hub.port) as connection:
            connection.sendall(get_line(hub.port, PATH, "Stream-Id: gone"))
            await table.wait_for(1)
        await table.wait_for(0)
    (line,) = [line for line in lines(hub) if line.get("streamId") == "gone"]
    assert line["status"] == 499
    assert "Traceback" not in hub.log()


async def test_a_disconnected_request_leaves_the_queue(dsn: str, tmp_path: Path) -> None:
    async with (
        locked(dsn) as table,
        httpx.AsyncClient(timeout=60) as client,
    ):
        with narrow_hub(dsn, tmp_path, queue_seconds=1000) as hub:
            client.base_url = hub.url
            both = [asyncio.create_task(client.get(PATH)) for _ in range(2)]
            await table.wait_for(2)
            with connected(hub.port) as connection:
                connection.sendall(get_line(hub.port, PATH))
                await asyncio.sleep(0.3)
            third = await in_line(client)  # there is a place in the line again
            await table.release()
            answers = await asyncio.gather(*both, third)
            assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_parallel_requests_are_limited_per_actor(dsn: str, tmp_path: Path) -> None:
    async with (
        locked(dsn) as table,
        httpx.AsyncClient(timeout=60) as client,
    ):
        with narrow_hub(dsn, tmp_path, queue_seconds=2) as hub:
            client.base_url = hub.url
            both = [asyncio.create_task(client.get(PATH)) for _ in range(2)]
            await table.wait_for(2)
            more = [asyncio.create_task(client.get(PATH)) for _ in range(2)]
            # One of them is refused at once, the other when it has waited for long enough.
            refused, waiting = await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
            assert (len(refused), len(waiting)) == (1, 1)
            for answer in await asyncio.gather(*more):
                assert answer.status_code == 503
                assert answer.headers["Retry-After"] == "1"
                assert (answer.json()["error"], answer.json()["code"]) == ("Exception", "busy")
            # Health has no line.
            assert (await client.get("/hub/health-status")).status_code == 200
            assert await table.waiters() == 2
            await table.release()
            assert [answer.status_code for answer in await asyncio.gather(*both)] == [200, 200]


# ---- The end of a server -------------------------------------------------------------------------


async def test_a_request_that_runs_may_end_before_the_server_does(dsn: str, tmp_path: Path) -> None:
    with HubServer(tmp_path, storage=dsn, catalog=dsn) as hub:
        async with locked(dsn) as table, httpx.AsyncClient(base_url=hub.url) as client:
            running = asyncio.create_task(client.get(PATH, timeout=30))
            await table.wait_for(1)
            hub.process.send_signal(signal.SIGTERM)
            await until_refused(client)
            assert hub.process.poll() is None
            await table.release()
            assert (await running).status_code == 200
        assert await asyncio.to_thread(hub.process.wait, 20) == 0
    assert "Traceback" not in hub.log()


async def test_a_second_signal_hastens(dsn: str, tmp_path: Path) -> None:
    with HubServer(tmp_path, storage=dsn, catalog=dsn) as hub:
        async with locked(dsn) as table, httpx.AsyncClient(base_url=hub.url) as client:
            running = asyncio.create_task(client.get(PATH, timeout=30))
            await table.wait_for(1)
            hub.process.send_signal(signal.SIGTERM)
            await until_refused(client)
            assert hub.process.poll() is None
            hub.process.send_signal(signal.SIGTERM)
            answer = await running
            assert (answer.status_code, answer.json()["code"]) == (503, "busy")
            assert await asyncio.to_thread(hub.process.wait, 20) == 0
            assert await table.waiters() == 0


async def test_the_drain_time_is_limited(dsn: str, tmp_path: Path) -> None:
    arguments = ["--drain-seconds", "1"]
    with HubServer(tmp_path, storage=dsn, catalog=dsn, arguments=arguments) as hub:
        async with locked(dsn) as table, httpx.AsyncClient(base_url=hub.url) as client:
            running = asyncio.create_task(client.get(PATH, timeout=30))
            await table.wait_for(1)
            hub.process.send_signal(signal.SIGINT)
            assert (await running).status_code == 503
            assert await asyncio.to_thread(hub.process.wait, 20) == 0
            assert await table.waiters() == 0


async def test_a_storage_that_is_not_there_shows_in_the_health(
    database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    with database_factory.fresh() as dsn, HubServer(tmp_path, storage=dsn) as hub:
        name = dsn.rpartition("/")[2].partition("?")[0]
        admin = await asyncpg.connect(dsn, database="postgres")
        async with httpx.AsyncClient(base_url=f"{hub.url}/hub", timeout=30) as client:
            assert (await client.get("/health-status?detailed")).status_code == 200
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )
            answer = await client.get("/health-status?detailed")
            assert answer.status_code == 503
            assert answer.json()["checks"]["catalog"] == {"result": "OK"}
            assert answer.json()["checks"]["storage/default"]["result"] == "FAILED"
            assert (await client.get("/health-status")).status_code == 200
        await admin.close()
