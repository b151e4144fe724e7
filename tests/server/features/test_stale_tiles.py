"""No tile is ever stale: random writes while tiles are requested, also by what clients have."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import mapbox_vector_tile
import pytest

from naksha.model.version import HEAD
from naksha.server.app import create_app, serving
from naksha.server.process.settings import ServerSettings
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from tests.server.towns import collection, point

SPACE = "town"
SEED = 20_261_119
FEATURES, REQUESTS, WRITES = 60, 60, 25
BRANCH = "fix"
WEST, SOUTH, SIZE = 13.0, 52.4, 0.2
"""The area of all features: about two by five cells."""
TILES = ["9_274_168", "11_1098_672", "12_2196_1344", "12_2197_1344", "13_4393_2688", "14_8787_5377"]
PlainSql = Callable[[str, float, float], Awaitable[None]]
"""Function that moves a feature by plain SQL."""


class Town:
    """A server in this process, its storage, and what happens to it."""

    def __init__(self, client: httpx.AsyncClient, storage: Storage, move_by_sql: PlainSql) -> None:
        self.client = client
        self.storage = storage
        self.rng = random.Random(SEED)
        self.counts = {"answers": 0, "unmodified": 0, "unkeyed": 0, "sql": 0}
        self._move_by_sql = move_by_sql
        self._unique = count()

    def anywhere(self) -> tuple[float, float]:
        return WEST + self.rng.random() * SIZE, SOUTH + self.rng.random() * SIZE

    async def write(self) -> None:
        """Change something, on main or on the branch."""
        rng = self.rng
        id, ref = f"f{rng.randrange(FEATURES)}", rng.choice(["", "", BRANCH])
        params = {"versionRef": ref} if ref else {}
        url = f"/hub/spaces/{SPACE}/features"
        kind = rng.random()
        if kind < 0.2:
            await self._move_by_sql(id, *self.anywhere())
            self.counts["sql"] += 1
        elif kind < 0.4:
            answer = await self.client.delete(url, params={"id": id, **params})
            assert answer.is_success, answer.text
        else:
            features = [point(id, *self.anywhere(), n=rng.randrange(10**6))]
            if rng.random() < 0.2:
                features[0]["geometry"] = None
            answer = await self.client.put(url, json=collection(*features), params=params)
            assert answer.is_success, answer.text

    async def check(self, known: dict[str, tuple[str, Any]]) -> None:
        """Request a tile, as a client that has tiles, and compare it with the versions."""
        ref = self.rng.choice(["", BRANCH])
        name = self.rng.choice(TILES)
        url = f"/hub/spaces/{SPACE}/tile/web/{name}.mvt"
        params = {"versionRef": ref} if ref else {}
        tag, content = known.get(url + ref, ("", None))
        headers = {"If-None-Match": tag} if tag and self.rng.random() < 0.7 else {}
        before = (await self.storage.resolve(HEAD)).seq_number
        answer = await self.client.get(url, params=params, headers=headers)
        after = (await self.storage.resolve(HEAD)).seq_number
        self.counts["answers"] += 1
        if answer.status_code == 304:
            self.counts["unmodified"] += 1
            assert answer.headers["ETag"] == tag
        else:
            content = decoded(answer)
            known[url + ref] = answer.headers["ETag"], content
        if "-" not in answer.headers["ETag"]:
            self.counts["unkeyed"] += 1
            return
        for number in range(before, after + 1):
            at = f"{ref or 'main'}:{number}"
            fresh = {"versionRef": at, "unique": str(next(self._unique))}
            if decoded(await self.client.get(url, params=fresh)) == content:
                return
        raise AssertionError(f"{name} at {ref or 'main'} is of no version of {before}..{after}")


def decoded(answer: httpx.Response) -> dict[str, Any]:
    """The features of a tile by id; rows have no order."""
    assert answer.status_code == 200, answer.text
    if not answer.content:
        return {}
    ((_, layer),) = mapbox_vector_tile.decode(answer.content).items()
    return {
        one["properties"]["id"]: (one["properties"], one["geometry"]) for one in layer["features"]
    }


@asynccontextmanager
async def open_town(directory: Path, storage: str, move_by_sql: PlainSql) -> AsyncIterator[Town]:
    settings = ServerSettings(
        data=str(directory), realm_storage=storage, maintenance=False, log_level="error"
    )
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
    async with serving(app) as state, httpx.AsyncClient(transport=transport) as client:
        client.base_url = httpx.URL("http://127.0.0.1")
        answer = await client.post("/hub/spaces", json={"id": SPACE, "title": "A town"})
        assert answer.is_success, answer.text
        realm = await state.hub.realm("default")
        town = Town(client, await realm.storage("default"), move_by_sql)
        first = [point(f"f{n}", *town.anywhere()) for n in range(FEATURES)]
        url = f"/hub/spaces/{SPACE}"
        answer = await client.put(f"{url}/features", json=collection(*first))
        assert answer.is_success, answer.text
        made = await client.post(f"{url}/branches", json={"id": BRANCH})
        assert made.is_success, made.text
        yield town


@pytest.fixture
async def sqlite_town(tmp_path: Path) -> AsyncIterator[Town]:
    """A town in a file, which a shell changes, too."""
    path = tmp_path / "default.naksha"

    def move(id: str, lon: float, lat: float) -> None:
        with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            connection.execute("UPDATE naksha_storage SET app_id = 'desk'")
            connection.execute(
                "UPDATE feature SET geometry = ? WHERE collection = ? AND id = ?",
                (f'{{"type": "Point", "coordinates": [{lon}, {lat}]}}', SPACE, id),
            )

    async def move_by_sql(id: str, lon: float, lat: float) -> None:
        await asyncio.to_thread(move, id, lon, lat)

    async with open_town(tmp_path, f"file:{tmp_path}/{{realm}}.naksha", move_by_sql) as town:
        yield town


@pytest.fixture
async def psql_town(tmp_path: Path, database_factory: DatabaseFactory) -> AsyncIterator[Town]:
    """A town in a database, which other clients change, too."""
    with database_factory.fresh() as dsn:

        async def move_by_sql(id: str, lon: float, lat: float) -> None:
            connection = await asyncpg.connect(dsn)
            try:
                async with connection.transaction():
                    await connection.execute("SELECT naksha.naksha_tx_start('desk', NULL)")
                    await connection.execute(
                        f"UPDATE naksha.{SPACE} SET geo = ST_Force3D(ST_Point($2, $3, 4326))"
                        " WHERE jsondata->>'id' = $1",
                        *(id, lon, lat),
                    )
            finally:
                await connection.close()

        async with open_town(tmp_path, dsn, move_by_sql) as town:
            yield town


@pytest.fixture(params=["sqlite", pytest.param("psql", marks=pytest.mark.postgres)])
def town(request: pytest.FixtureRequest) -> Town:
    """A town on each storage."""
    found: Town = request.getfixturevalue(f"{request.param}_town")
    return found


async def test_every_answer_is_a_version_between_request_and_answer(town: Town) -> None:
    async def read() -> None:
        known: dict[str, tuple[str, Any]] = {}
        for _ in range(REQUESTS):
            await town.check(known)

    async def write() -> None:
        for _ in range(WRITES):
            await town.write()
            await asyncio.sleep(town.rng.random() * 0.02)

    await asyncio.gather(write(), write(), *(read() for _ in range(4)))
    # What a client has is still right after everything, and now all is published.
    unkeyed = town.counts["unkeyed"]
    known: dict[str, tuple[str, Any]] = {}
    for _ in range(REQUESTS):
        await town.check(known)
    counts = town.counts
    assert counts["answers"] == 5 * REQUESTS
    assert counts["unmodified"] > 20
    assert counts["sql"] > 2
    assert counts["unkeyed"] == unkeyed
