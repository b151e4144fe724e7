"""The driver: names for its types, which are generic only for the type checker, and its pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

from naksha.psql.errors import DRIVER_ERRORS, PoolExhausted, translated

if TYPE_CHECKING:
    Direct: TypeAlias = asyncpg.Connection[Any]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    Connection: TypeAlias = Direct | Pooled
else:
    Direct = asyncpg.Connection
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection

__all__ = ["Connection", "Direct", "Pool", "acquired"]

POOL_WAIT_S: Final = 30.0
"""How long anybody waits for a connection. Sessions that each need one more would wait for ever."""


@asynccontextmanager
async def acquired(pool: Pool) -> AsyncIterator[Connection]:
    """A connection of the pool; what is raised inside the block passes as it is."""
    with translated():
        try:
            connection = await pool.acquire(timeout=POOL_WAIT_S)
        except TimeoutError as error:
            raise PoolExhausted(
                f"No connection was free within {POOL_WAIT_S:g} seconds; "
                f"all {pool.get_max_size()} are in use"
            ) from error
    try:
        yield connection
    finally:
        # The work is done or undone by now; a connection that cannot be cleaned is thrown away.
        with suppress(*DRIVER_ERRORS):
            await pool.release(connection)
