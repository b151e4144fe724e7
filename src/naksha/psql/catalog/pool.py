"""Connections of a catalog in PostgreSQL, and what a failed call means.

Every call is one statement in autocommit. When the server says that it failed, nothing was changed.
When no answer comes, because the connection is lost or the time is over, a change may have been
made or may be made yet: `OutcomeUnknown`. When there was no connection, nothing was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import asyncpg

from naksha.model.errors import (
    InvalidArgument,
    NakshaError,
    OutcomeUnknown,
    Retryable,
    Unavailable,
)
from naksha.psql.connection.driver import Connection, Pool, settings_statement
from naksha.psql.connection.errors import DRIVER_ERRORS, of, translated

POOL_MAX: Final = 10
CONNECT_S: Final = 5.0
"""How long a server may take to answer."""
ACQUIRE_S: Final = 10.0
"""How long a call waits for a connection."""
RELEASE_S: Final = 2.0
"""How long a connection may take to become usable again after a call that was cancelled."""
CLOSE_S: Final = 10.0
QUERIES_MAX: Final = 10**9
"""A connection is used for ever; it keeps no state that would grow."""
DEADLOCKS_MAX: Final = 3
"""How often a statement is repeated that the server gave up in favour of another one."""
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P04", "57P05")
"""The connection ended. The server may say so even after a commit."""
_READ_ONLY: Final = "25006"


class CatalogPool:
    """Open it with `CatalogPool.open`."""

    def __init__(self, pool: Pool, call_s: float) -> None:
        self._pool = pool
        self._call_s = call_s
        self._is_closed = False

    @classmethod
    async def open(
        cls, dsn: str, settings: Mapping[str, str], *, pool_max: int, call_s: float
    ) -> Self:
        set_up = settings_statement(settings)
        with translated():
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=pool_max,
                max_queries=QUERIES_MAX,
                timeout=CONNECT_S,
                init=lambda connection: connection.execute(set_up),
                reset=_nothing,
            )
        return cls(pool, call_s)

    async def close(self) -> None:
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]:
        """The rows of a statement that reads."""
        rows: list[asyncpg.Record] = await self._run("fetch", query, values, Unavailable)
        return rows

    async def change(self, query: str, *values: object) -> Any:
        """The one value that a statement gives which changes something."""
        return await self._run("fetchval", query, values, OutcomeUnknown)

    async def _run(
        self, method: str, query: str, values: tuple[object, ...], lost: type[NakshaError]
    ) -> Any:
        for _ in range(DEADLOCKS_MAX):
            async with self._acquired() as connection:
                try:
                    call = getattr(connection, method)
                    return await call(query, *values, timeout=self._call_s)
                except asyncpg.DeadlockDetectedError:
                    continue
                except DRIVER_ERRORS as error:
                    raise _as_ours(error, lost) from error
        raise Unavailable("Others were in the way, again and again")

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        """A connection; what is raised inside the block passes as it is."""
        if self._is_closed:
            raise Unavailable("The catalog is closed")
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE_S)
        except TimeoutError as error:
            raise Unavailable(
                f"No connection within {ACQUIRE_S:g} seconds; "
                f"perhaps all {self._pool.get_max_size()} are in use"
            ) from error
        except DRIVER_ERRORS as error:
            raise Unavailable(f"The database cannot be reached: {error}") from error
        try:
            yield connection
        finally:
            # A connection that cannot be used again is thrown away, and replaced when needed.
            with suppress(*DRIVER_ERRORS):
                await self._pool.release(connection, timeout=RELEASE_S)


async def _nothing(connection: Connection) -> None:
    """Instead of the driver's reset, which would double the time of each call: no statement of ours
    leaves anything behind in its session."""


def _as_ours(error: BaseException, lost: type[NakshaError]) -> NakshaError:
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state.startswith(_LOST):
            return lost(f"The connection to the database was lost: {error}")
        if state == _READ_ONLY:
            return Unavailable(f"The database takes no writes: {error}")
        ours = of(error)
        return Unavailable(ours.message) if isinstance(ours, Retryable) else ours
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return InvalidArgument(f"A value cannot be kept: {error}")
    if isinstance(error, TimeoutError):
        return lost("The database did not answer in time")
    return lost(f"The connection to the database was lost: {error!r}")
