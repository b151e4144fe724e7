"""Connection pool of a catalog in PostgreSQL, and the outcome of failed calls.

Every call is one statement in autocommit. When the server reports an error, nothing was changed.
When no response arrives, because the connection is lost or the call timed out, the change may have
been made or may still be made: `OutcomeUnknown`. When no connection was available, nothing was
sent: `Unavailable`.
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
"""Timeout for connecting to the server."""
ACQUIRE_S: Final = 10.0
"""Timeout for getting a connection from the pool."""
_RELEASE_S: Final = 2.0
"""Time that a connection has to become usable again after a cancelled call."""
CLOSE_S: Final = 10.0
_QUERIES_MAX: Final = 10**9
"""Connections are never replaced because of their age; they keep no state that would grow."""
_DEADLOCKS_MAX: Final = 3
"""Attempts to run a statement that the server chose as the victim of a deadlock."""
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P04", "57P05")
"""SQLSTATEs of a lost connection. The server may send one even after a commit."""
_READ_ONLY: Final = "25006"


class CatalogPool:
    """Pool of connections for the statements of a catalog. Open it with `CatalogPool.open`."""

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
                max_queries=_QUERIES_MAX,
                timeout=CONNECT_S,
                init=lambda connection: connection.execute(set_up),
                reset=_no_reset,
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
        """Run a statement that only reads, and return its rows."""
        rows: list[asyncpg.Record] = await self._run("fetch", query, values, Unavailable)
        return rows

    async def change(self, query: str, *values: object) -> Any:
        """Run a statement that changes something, and return the one value of its result."""
        return await self._run("fetchval", query, values, OutcomeUnknown)

    async def _run(
        self, method: str, query: str, values: tuple[object, ...], lost: type[NakshaError]
    ) -> Any:
        for _ in range(_DEADLOCKS_MAX):
            async with self._acquired() as connection:
                try:
                    call = getattr(connection, method)
                    return await call(query, *values, timeout=self._call_s)
                except asyncpg.DeadlockDetectedError:
                    continue
                except DRIVER_ERRORS as error:
                    raise _naksha_error(error, lost) from error
        raise Unavailable(
            f"The statement was aborted by a deadlock {_DEADLOCKS_MAX} times in a row; retry later"
        )

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        """Acquire a connection for a block; errors raised inside the block pass unchanged."""
        if self._is_closed:
            raise Unavailable("The catalog is closed; open it again")
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE_S)
        except TimeoutError as error:
            raise Unavailable(
                f"No connection to the catalog's database was available within {ACQUIRE_S:g} s, "
                f"because all {self._pool.get_max_size()} may be in use; retry later"
            ) from error
        except DRIVER_ERRORS as error:
            raise Unavailable(f"The catalog's database cannot be reached: {error}") from error
        try:
            yield connection
        finally:
            # A connection that cannot be used again is discarded; the pool replaces it when
            # needed.
            with suppress(*DRIVER_ERRORS):
                await self._pool.release(connection, timeout=_RELEASE_S)


async def _no_reset(connection: Connection) -> None:
    """Do nothing, instead of the driver's reset.

    The reset would double the duration of each call, and no statement of the catalog leaves
    anything behind in its session.
    """


def _naksha_error(error: BaseException, lost: type[NakshaError]) -> NakshaError:
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state.startswith(_LOST):
            return lost(f"The connection to the database was lost: {error}")
        if state == _READ_ONLY:
            return Unavailable(
                f"The catalog's database is read-only; use the location of its primary: {error}"
            )
        ours = of(error)
        return Unavailable(ours.message) if isinstance(ours, Retryable) else ours
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return InvalidArgument(f"A value cannot be stored: {error}")
    if isinstance(error, TimeoutError):
        return lost("The database did not respond in time")
    return lost(f"The connection to the database was lost: {error!r}")
