"""Connections that fill and index the leaf tables of one collection side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import asyncpg

from naksha.psql.bulk import staged_rows
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.connection.servers import DatabaseServer
from naksha.psql.sql import queries

CLOSE_S: Final = 10.0
"""Time that a server has to end a cancelled statement."""
LANES: Final = 4
"""Connections that copy and index side by side, besides the coordinator's."""
SETTINGS: Final = {
    # Durability comes from the coordinator's commit, which flushes everything written before it.
    "synchronous_commit": "off",
    # The tables are built side by side; parallel workers for each of them would only compete.
    "max_parallel_maintenance_workers": "0",
    "maintenance_work_mem": "256MB",
    "jit": "off",
}


class Lanes:
    """The working connections; each leaf is processed by one, so none waits for a table."""

    def __init__(self) -> None:
        self._connections: list[Direct] = []
        self._locks: list[asyncio.Lock] = []

    @classmethod
    async def open(cls, server: DatabaseServer, count: int) -> Self:
        lanes = cls()
        try:
            await _gather_all(lanes._add(server) for _ in range(count))
        except BaseException:
            await lanes.close()
            raise
        return lanes

    async def _add(self, server: DatabaseServer) -> None:
        self._connections.append(await server.connect(**SETTINGS))
        self._locks.append(asyncio.Lock())

    async def own(self) -> int:
        """Create a job; these connections own it as long as they live."""
        job: int = await self.first("stage_open")
        return job

    async def first(self, query: str, *values: Any) -> Any:
        """Call a function of the schema on the first connection."""
        async with self._locks[0]:
            with translated():
                return await self._connections[0].fetchval(queries()[query], *values)

    async def close(self) -> None:
        """Close the connections.

        A cancelled statement is waited for: otherwise its tables might be created after the
        cleanup.
        """
        try:
            for connection in self._connections:
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                    await connection.close(timeout=CLOSE_S)
        finally:
            for connection in self._connections:
                connection.terminate()

    async def each(self, work: Callable[[Direct, int], Awaitable[Any]]) -> list[Any]:
        """Run work for each of the 16 leaves; a free connection takes the next leaf."""
        results: list[Any] = [None] * staged_rows.LEAF_COUNT
        left = iter(range(staged_rows.LEAF_COUNT))

        async def lane(number: int) -> None:
            for leaf in left:
                async with self._locks[number]:
                    results[leaf] = await work(self._connections[number], leaf)

        with translated():
            await _gather_all(lane(number) for number in range(len(self._connections)))
        return results


async def _gather_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side; if one fails, cancel the others and wait for them."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
