"""Databases of the benchmark `catalog`, and a bare loop that swaps one row through the driver.

Each has its own server, which is durable and has default settings.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
from redis.asyncio import Redis

from benchmarks._frame import postgres_database
from naksha.mariadb import MariadbCatalog
from naksha.memory import MemoryCatalog
from naksha.psql import PsqlCatalog
from naksha.redis import RedisCatalog
from naksha.spi.catalog import CatalogBackend
from naksha.sqlite import SqliteCatalog
from naksha.testing.servers.mariadb_server import MariadbServer
from naksha.testing.servers.redis_server import RedisServer

TABLE = "CREATE TABLE bare (id int PRIMARY KEY, pointer bigint NOT NULL)"
ROW = "INSERT INTO bare VALUES (1, 0)"
SWAP = "UPDATE bare SET pointer = pointer + 1 WHERE id = 1 AND pointer = {}"
SCRIPT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2]) return 1
"""


@dataclass
class RunningDatabase:
    """Running database."""

    name: str
    open: Callable[[], Awaitable[CatalogBackend]]
    bare: Callable[[float], Awaitable[float]]
    """Swap for a number of seconds; returns swaps/s."""


async def swaps(swap: Callable[[int], Awaitable[object]], seconds: float, start: int = 0) -> float:
    """Return the number of swaps per second of a single client, one after the other."""
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        assert await swap(start + count)
        count += 1
    return count / (time.perf_counter() - begin)


@contextmanager
def database(name: str) -> Iterator[RunningDatabase]:
    """Start the database with a name."""
    with {
        "memory": _memory,
        "sqlite": _sqlite,
        "postgresql": _postgresql,
        "redis": _redis,
        "mariadb": _mariadb,
    }[name]() as opened:
        yield opened


@contextmanager
def _memory() -> Iterator[RunningDatabase]:
    row = {1: 0}

    async def bare(seconds: float) -> float:
        async def swap(count: int) -> bool:
            if row[1] != start + count:
                return False
            row[1] += 1
            return True

        start = row[1]
        return await swaps(swap, seconds)

    yield RunningDatabase("memory", lambda: MemoryCatalog.open("memory:"), bare)


@contextmanager
def _sqlite() -> Iterator[RunningDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        plain = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("PRAGMA synchronous = FULL")
        plain.execute(TABLE)
        plain.execute(ROW)

        async def bare(seconds: float) -> float:
            async def swap(count: int) -> bool:
                return plain.execute(SWAP.format("?"), (count,)).rowcount == 1

            (start,) = plain.execute("SELECT pointer FROM bare").fetchone()
            return await swaps(swap, seconds, start)

        path = Path(folder) / "catalog.naksha"
        yield RunningDatabase("sqlite", lambda: SqliteCatalog.open(f"file:{path}"), bare)
        plain.close()


@contextmanager
def _postgresql() -> Iterator[RunningDatabase]:
    with postgres_database() as dsn:

        async def bare(seconds: float) -> float:
            connection = await asyncpg.connect(dsn)
            await connection.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            await connection.execute(f"{ROW} ON CONFLICT DO NOTHING")
            prepared = await connection.prepare(f"{SWAP.format('$1')} RETURNING 1")
            start: Any = await connection.fetchval("SELECT pointer FROM bare")
            found = await swaps(prepared.fetchval, seconds, start)
            await connection.close()
            return found

        yield RunningDatabase("postgresql", lambda: PsqlCatalog.open(dsn), bare)


@contextmanager
def _redis() -> Iterator[RunningDatabase]:
    with RedisServer() as server:

        async def bare(seconds: float) -> float:
            client: Any = Redis(unix_socket_path=str(server.socket_path), db=1)
            script = client.register_script(SCRIPT)
            await client.set("bare", 0)

            async def swap(count: int) -> object:
                return await script(keys=["bare"], args=[count, count + 1])

            found = await swaps(swap, seconds)
            await client.aclose()
            return found

        yield RunningDatabase("redis", lambda: RedisCatalog.open(server.location()), bare)


@contextmanager
def _mariadb() -> Iterator[RunningDatabase]:
    with MariadbServer() as server:
        server.create_database("bench")

        async def bare(seconds: float) -> float:
            connection: Any = await asyncmy.connect(
                unix_socket=str(server.socket_path), user="root", db="bench", autocommit=True
            )
            async with connection.cursor() as cursor:
                await cursor.execute("DROP TABLE IF EXISTS bare")
                await cursor.execute(TABLE)
                await cursor.execute(ROW)

                async def swap(count: int) -> bool:
                    changed: int = await cursor.execute(SWAP.format("%s"), (count,))
                    return changed == 1

                found = await swaps(swap, seconds)
            await connection.ensure_closed()
            return found

        yield RunningDatabase(
            "mariadb", lambda: MariadbCatalog.open(server.location("bench")), bare
        )


__all__ = ["RunningDatabase", "database"]
