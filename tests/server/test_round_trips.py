"""The number of database round trips of a request: one, where the result is small.

Unlike times, it does not differ from machine to machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from naksha.psql.storage import PsqlStorage
from naksha.server.app import create_app, serving
from naksha.server.process.settings_sources import settings_from
from naksha.spi.support import chunks

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
async def asked(database: str, tmp_path: Path) -> AsyncIterator[Asked]:
    app = create_app(
        settings_from({"catalog": f"file:{tmp_path}/hub.catalog", "storage": database}, {})
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
        "/tile/web/4_8_7.mvt",
        "/count",
    ):
        await asked.get(SPACE + path)
        assert len(asked.statements) == 1, (path, asked.statements)


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
