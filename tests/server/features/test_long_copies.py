"""Copies that outlast the time limit of a request, which continue as long as they progress."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from httpx import AsyncClient

from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import WriteFeatures
from naksha.model import limits
from naksha.server.app import Application, create_app, serving
from naksha.server.process.settings import ServerSettings
from naksha.testing.servers._private_server import free_port
from tests.hub.remote.support import forget_handlers, install
from tests.server.raw_connection import wait_until
from tests.server.towns import collection, point

FEATURES = 100
PATIENCE = 60.0
SECONDS = 2.5
"""That a request may take: many times as long as a part takes, and less than eight that wait."""
FROM = "/spaces/from/copy"
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the servers in this process."""
    monkeypatch.setattr(limits, "COPY_PART_FEATURES", 1)


@asynccontextmanager
async def served(directory: Path, seconds: float) -> AsyncIterator[tuple[Application, AsyncClient]]:
    """A server in which a request may take so long, and a client of it."""
    port = free_port()
    app = create_app(ServerSettings(data=str(directory), request_seconds=seconds))
    async with serving(app):
        server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_level="error"))
        serves = asyncio.create_task(server.serve())
        await asyncio.to_thread(wait_until, lambda: server.started)
        async with AsyncClient(base_url=f"http://127.0.0.1:{port}/hub", timeout=PATIENCE) as client:
            yield app, client
        server.should_exit = True
        await serves


async def fill(client: AsyncClient, **target: Any) -> None:
    """A space full of features, and another one for them."""
    for space in ({"id": "from"}, {"id": "to", **target}):
        (await client.post("/spaces", json=space)).raise_for_status()
    some = collection(*(point(f"f{n}") for n in range(FEATURES)))
    (await client.put("/spaces/from/features", json=some)).raise_for_status()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Application, AsyncClient]]:
    async with served(tmp_path, PATIENCE) as (app, client):
        await fill(client)
        yield app, client


@pytest.fixture
def client(running: tuple[Application, AsyncClient]) -> AsyncClient:
    return running[1]


class Slow:
    """A handler of others that takes its time to write."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        if isinstance(event.request, WriteFeatures):
            await asyncio.sleep(0.4)
        return await event.send_upstream()


@pytest.fixture
def _slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The handler as that of an installed distribution."""
    names = f"[naksha.handlers]\ntests:slow = {__name__}:Slow\n"
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", names)))
    forget_handlers()
    yield
    forget_handlers()


@pytest.mark.usefixtures("_slow")
async def test_a_copy_may_take_longer_than_a_request(tmp_path: Path) -> None:
    async with served(tmp_path, PATIENCE) as (_, client):
        connectors = {"slow": "tests:slow", "kept": "storage"}
        for id, name in connectors.items():
            made = await client.post("/connectors", json={"id": id, "className": name})
            made.raise_for_status()
        await fill(client, eventHandlerIds=[*connectors])
    async with served(tmp_path, SECONDS) as (_, client):
        began = time.monotonic()
        answer = await client.post(f"{FROM}?limit=8", json={"targetSpaceId": "to"})
        assert time.monotonic() - began > SECONDS
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert (report["inserted"], len(report["parts"])) == (8, 8)
    assert report["isComplete"]


async def test_a_copy_reports_progress(client: AsyncClient) -> None:
    order = {"targetSpaceId": "to"}
    answer = await client.post(f"{FROM}?limit=3", json=order, headers=LINES)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    told = [(line["type"], line["read"]) for line in lines]
    assert told == [("CopyProgress", 1), ("CopyProgress", 2), ("CopyResponse", 3)]
    assert lines[-1]["isComplete"]
    nowhere = {"targetSpaceId": "nowhere"}
    failed = await client.post(FROM, json=nowhere, headers=LINES)
    assert (failed.status_code, failed.json()["type"]) == (404, "ErrorResponse")


async def test_a_failed_copy_ends_with_an_error_line(client: AsyncClient) -> None:
    order = {"targetSpaceId": "to"}
    async with client.stream("POST", FROM, json=order, headers=LINES) as answer:
        lines = answer.aiter_lines()
        assert json.loads(await anext(lines))["type"] == "CopyProgress"
        (await client.patch("/spaces/to", json={"readOnly": True})).raise_for_status()
        *_, last = [json.loads(line) async for line in lines]
    assert (answer.status_code, last["type"]) == (200, "ErrorResponse")
    assert 0 < last["copied"]["inserted"] < FEATURES
    assert not last["copied"]["isComplete"]


async def test_further_copies_wait_for_their_turn(running: tuple[Application, AsyncClient]) -> None:
    app, client = running
    admission = app.state.server.copies
    for _ in range(limits.COPIES_PARALLEL_MAX):
        await admission.enter("another actor")
    one_more = asyncio.create_task(client.post(f"{FROM}?limit=1", json={"targetSpaceId": "to"}))
    await asyncio.to_thread(wait_until, lambda: admission.waiting == 1)
    admission.leave("another actor")
    assert (await one_more).status_code == 200
    assert admission.running == limits.COPIES_PARALLEL_MAX - 1
