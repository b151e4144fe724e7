"""Baselines of the benchmark `rest`: tipg, a bare handler, the library and plain tables.

The bare handler is an ASGI application with one route and one prepared statement: the least that a
Python server must do to look a feature up and send it.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncpg

from benchmarks import _data
from benchmarks._http import SendRequest, get, once
from naksha.model.features import check_features
from naksha.psql import PsqlStorage
from naksha.spi.storage import WriteSession
from naksha.testing.servers._private_server import free_port

START_SECONDS_MAX: Final = 60.0
_TABLES: Final = """
CREATE TABLE public.plain AS
SELECT jsondata->>'id' AS id, ST_Force2D(geo)::geometry(Geometry, 4326) AS geom,
       p->>'name' AS name, (p->>'speedLimit')::int AS speed_limit, (p->>'lanes')::int AS lanes,
       (p->>'oneway')::bool AS oneway, p->>'surface' AS surface, p->'@ns:com:here:xyz' AS xyz
  FROM {collection}, LATERAL (SELECT jsondata->'properties' AS p) AS q ORDER BY id;
ALTER TABLE public.plain ADD PRIMARY KEY (id);
CREATE INDEX ON public.plain USING gist (geom);
CREATE TABLE public.bodies AS
SELECT jsondata->>'id' AS id, convert_to(replace(
           convert_from({schema}.naksha_feature(geo, jsondata), 'UTF8'),
           '"@ns:com:here:xyz": {{', '"@ns:com:here:xyz": {{"space": "{space}", '), 'UTF8') AS body
  FROM {collection} ORDER BY id;
ALTER TABLE public.bodies ADD PRIMARY KEY (id);
CREATE TABLE public.inserted (id text PRIMARY KEY, geom geometry(Geometry, 4326), document jsonb);
CREATE INDEX ON public.inserted USING gist (geom);"""
_BODY: Final = "SELECT body FROM public.bodies WHERE id = $1"
_INSERT: Final = "INSERT INTO public.inserted VALUES ($1, ST_GeomFromWKB($2, 4326), $3)"
_DSN: Final = "BARE_DSN"
_HEADERS: Final = (b"content-type", b"application/geo+json")


async def plain_tables(dsn: str, space: str) -> None:
    """Create tables with the same features, without versions."""
    connection = await asyncpg.connect(dsn)
    try:
        schema = await connection.fetchval(
            "SELECT schemaname FROM pg_tables WHERE tablename = $1", space
        )
        table = f'{schema}."{space}"'
        await connection.execute(_TABLES.format(collection=table, schema=schema, space=space))
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


# ---- servers -------------------------------------------------------------------------------------


@contextmanager
def tipg(dsn: str) -> Iterator[int]:
    """Run tipg with one worker; yield its port."""
    environment = {
        "DATABASE_URL": dsn,
        "TIPG_DB_SCHEMAS": '["public"]',
        "TIPG_MAX_FEATURES_PER_QUERY": "100000",
        "TIPG_MAX_FEATURES_PER_TILE": "100000",
        "TIPG_CATALOG_TTL": "100000",
    }
    with served("tipg.main:app", environment, "/collections/public.plain") as port:
        yield port


@contextmanager
def bare(dsn: str, id: str) -> Iterator[int]:
    """Run the bare handler; yield its port. It must find the feature with the id."""
    with served(f"{__name__}:bare_app", {_DSN: dsn}, f"/{id}") as port:
        yield port


@contextmanager
def served(app: str, environment: Mapping[str, str], path: str) -> Iterator[int]:
    """Run an ASGI application with one worker, and wait until it responds to a path."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", app, "--port", str(port), "--no-access-log"),
            *("--loop", "uvloop", "--http", "httptools", "--log-level", "warning"),
        ],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )
    try:
        asyncio.run(_wait(port, path))
        yield port
    finally:
        process.terminate()
        process.wait()


async def _wait(port: int, path: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await once(port, get(port, path))
            return
        except (OSError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


_pools: list[asyncpg.Pool[asyncpg.Record]] = []


async def bare_app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Send the stored body of the feature whose id is the path."""
    if scope["type"] == "lifespan":
        await receive()
        _pools.append(await asyncpg.create_pool(os.environ[_DSN]))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await _pools.pop().close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body: bytes = await _pools[0].fetchval(_BODY, scope["path"][1:])
    headers = [_HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---- writers without HTTP ------------------------------------------------------------------------


class LibraryWriter:
    """Writes features through the library, and waits for their publication."""

    def __init__(
        self, storage: PsqlStorage, collection: str, some: Callable[[int], list[_data.Feature]]
    ) -> None:
        self._storage = storage
        self._collection = collection
        self._some = some

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[SendRequest]:
        async def send_request(number: int) -> int:
            features = self._some(number)

            async def upsert(session: WriteSession) -> WriteSession:
                await session.upsert(self._collection, features)
                return session

            session = await self._storage.run(upsert, "bench")
            assert session.txn is not None
            assert await self._storage.wait_published(session.txn)
            return len(features)

        yield send_request


class Inserter:
    """Inserts new features into a plain table, each in its own transaction."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[SendRequest]:
        connection = await asyncpg.connect(self._dsn)
        insert = await connection.prepare(_INSERT)

        async def send_request(number: int) -> int:
            prepared = check_features([new_road(number)])
            await insert.fetch(*prepared.ids, *prepared.wkb, prepared.json[0].decode())
            return 1

        try:
            yield send_request
        finally:
            await connection.close()


def new_road(number: int) -> _data.Feature:
    """Return a feature that no other request has."""
    return _data.road(number, random.Random(number), prefix="new")
