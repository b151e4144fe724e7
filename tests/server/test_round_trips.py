"""The number of database round trips of a request: one, where the result is small.

Unlike times, it does not differ from machine to machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from naksha.psql.storage import PsqlStorage
from naksha.server.app import create_app, serving
from naksha.server.process.settings_sources import settings_from
from naksha.spi.support import chunks
from tests.psql.write.statement_log import PUBLISH, StatementLog

SPACE = "/hub/spaces/places"
BOX = "west=0&south=0&east=20&north=20"
MANY = 3 * chunks.FIRST


class Asked:
    """A hub in this process, and what it says to its database."""

    def __init__(self, client: httpx.AsyncClient, storage: PsqlStorage) -> None:
        self.client = client
        self.statements: list[str] = []
        self._connections = storage._connections

    async def listen(self) -> None:
        """To the one connection that there is for readers."""
        connection = await self._connections.take_to_read()
        connection.add_query_logger(lambda record: self.statements.append(record.query))
        await self._connections.leave(connection)

    async def get(self, path: str) -> httpx.Response:
        """The second time, when all that is asked once is known."""
        (await self.client.get(path)).raise_for_status()
        self.statements.clear()
        return (await self.client.get(path)).raise_for_status()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> StatementLog:
    return StatementLog(monkeypatch)


@pytest.fixture
async def asked(log: StatementLog, database: str, tmp_path: Path) -> AsyncIterator[Asked]:
    app = create_app(
        settings_from({"catalog": f"file:{tmp_path}/hub.catalog", "realm_storage": database}, {})
    )
    async with serving(app) as state:
        ((_, storage),) = state.hub.storages.opened()
        assert isinstance(storage, PsqlStorage)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            (await client.post("/hub/spaces", json={"id": "places"})).raise_for_status()
            features = [
                {
                    "type": "Feature",
                    "id": f"p{n}",
                    "geometry": {"type": "Point", "coordinates": [n / 100, n / 100]},
                    "properties": {"n": n},
                }
                for n in range(MANY)
            ]
            body = {"type": "FeatureCollection", "features": features}
            (await client.put(f"{SPACE}/features", json=body)).raise_for_status()
            hub = Asked(client, storage)
            await hub.listen()
            yield hub


async def test_small_reads_are_one_statement(asked: Asked) -> None:
    for path in (
        "/features/p1",
        "/features?id=p1,p2,p3",
        "/bbox?west=0&south=0&east=1&north=1",
        "/spatial?lat=1&lon=1&radius=1000",
        "/search?p.n=7",
        "/count",
    ):
        await asked.get(SPACE + path)
        assert len(asked.statements) == 1, (path, asked.statements)


async def test_a_tile_is_one_statement_and_a_cached_one_reads_no_feature(asked: Asked) -> None:
    url = f"{SPACE}/tile/web/4_8_7.mvt"
    (await asked.client.get(url)).raise_for_status()
    for expected in (1, 0):
        asked.statements.clear()
        (await asked.client.get(f"{url}?unique=1")).raise_for_status()
        reads = [one for one in asked.statements if "ST_AsMVT" in one]
        assert len(reads) == expected, asked.statements


async def test_a_large_read_needs_few_round_trips(asked: Asked) -> None:
    """Small responses need no transaction; a large one is streamed after its first chunk."""
    answer = await asked.get(f"{SPACE}/bbox?{BOX}")
    assert len(answer.json()["features"]) == MANY
    assert len(asked.statements) <= 4, asked.statements  # beginning, BEGIN, perhaps parts, COMMIT


async def test_a_version_is_not_looked_up_again_and_again(asked: Asked) -> None:
    """The statement that reads also checks the version and its history; nothing is published."""
    version = (await asked.client.get(f"{SPACE}/changesets/statistics")).json()["maxVersion"]
    for path in ("/search?p.n=7", "/bbox?west=0&south=0&east=1&north=1", "/features/p1?"):
        await asked.get(f"{SPACE}{path}&versionRef={version}")
        assert len(asked.statements) == 1, (path, asked.statements)
        assert not any("naksha_publish" in statement for statement in asked.statements)


def feature(id: str, **properties: object) -> dict[str, object]:
    return {"type": "Feature", "id": id, "geometry": None, "properties": properties}


WRITES = {
    "put": ("PUT", "/features", [feature("p1", n=-1), feature("new")], 2),
    "put one": ("PUT", "/features/p1", feature("p1", n=-2), 2),
    "delete": ("DELETE", "/features?id=p5,p6", None, 2),
    "delete one": ("DELETE", "/features/p7", None, 2),
    "post": ("POST", "/features", [feature("p1", n=-3), feature("newer")], 5),
    "patch": ("PATCH", "/features/p2", {"properties": {"m": 1}}, 5),
    "put with conflict detection": (
        "PUT",
        "/features?conflictDetection=true",
        [feature("newest")],
        5,
    ),
}


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_is_few_statements_its_publication_included(
    asked: Asked, log: StatementLog, name: str
) -> None:
    """A plain put or delete is one function and the publication, for which the client waits."""
    method, path, body, most = WRITES[name]
    # What is read and made once, such as today's partition of the history.
    await asked.client.put(f"{SPACE}/features", json=collection(feature("warm", n=1)))
    await asked.client.put(f"{SPACE}/features", json=collection(feature("warm", n=2)))
    await asyncio.sleep(0.2)  # The sequencer goes to sleep.
    log.take()
    sent = collection(*body) if isinstance(body, list) else body
    answer = await asked.client.request(method, SPACE + path, json=sent)
    answer.raise_for_status()
    statements = log.take()
    assert sum(PUBLISH in each for each in statements) >= 1
    own = [each for each in statements if PUBLISH not in each and "advisory" not in each]
    assert len(own) + 1 <= most, own


def collection(*features: dict[str, object]) -> dict[str, object]:
    return {"type": "FeatureCollection", "features": features}
