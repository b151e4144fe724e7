"""The driver: names for its types, which are generic only for the type checker, and its pool."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

from naksha.psql.errors import DRIVER_ERRORS, PoolExhausted, translate, translated
from naksha.psql.sql import queries

if TYPE_CHECKING:
    Direct: TypeAlias = asyncpg.Connection[Any]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    Connection: TypeAlias = Direct | Pooled
    Rows: TypeAlias = asyncpg.cursor.Cursor[Any]
else:
    Direct = asyncpg.Connection
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection
    Rows = asyncpg.cursor.Cursor

__all__ = [
    "Connection",
    "Direct",
    "Pool",
    "Rows",
    "acquired",
    "connect",
    "create_pool",
    "reading",
]

POOL_WAIT_S: Final = 30.0
"""How long anybody waits for a connection. Sessions that each need one more would wait for ever."""

CONNECT_S: Final = 60.0
"""How long a server may take to answer."""


class PoolConnection(Direct):
    """A connection of a pool. What was set and locked on it is undone when it goes back, which is a
    round trip; who does nothing that outlasts a transaction says so, and need not wait for that."""

    _is_tidy = False

    def leaves_nothing(self) -> None:
        """Whoever has it now changes nothing of its session."""
        self._is_tidy = True

    async def tidy_up(self) -> None:
        """Make it as good as new."""
        if not self._is_tidy:
            await self.execute(self.get_reset_query())
        self._is_tidy = False


async def connect(dsn: str, settings: Mapping[str, str]) -> Direct:
    """A connection of its own."""
    connection = await asyncpg.connect(dsn, server_settings=dict(settings), timeout=CONNECT_S)
    try:
        await _make_cancellable(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def create_pool(
    dsn: str,
    settings: Mapping[str, str],
    *,
    min_size: int,
    max_size: int,
    connect_s: float = CONNECT_S,
) -> Pool:
    """A pool of such connections."""
    return await asyncpg.create_pool(
        dsn,
        min_size=min_size,
        max_size=max_size,
        timeout=connect_s,
        server_settings=dict(settings),
        init=_make_cancellable,
        connection_class=PoolConnection,
        reset=_tidy_up,
    )


async def _make_cancellable(connection: Connection) -> None:
    """Load PostGIS before anything that may be cancelled.

    Its handler of a cancellation allocates memory the first time it runs, unless a statement has
    begun since it was loaded. A cancellation that hits a backend in the middle of an allocation
    then corrupts its heap, and the whole server restarts."""
    with suppress(asyncpg.UndefinedFunctionError):  # a replica that has replayed nothing yet
        await connection.fetchval(queries()["postgis_load"])


async def _tidy_up(connection: Connection) -> None:
    """The driver has ended any transaction by now."""
    assert isinstance(connection, PoolConnection)
    await connection.tidy_up()


class acquired:  # noqa: N801 - used like a function
    """A connection of the pool for a block; what is raised inside the block passes as it is. With
    `leaves_nothing` nothing is set or locked in the block for longer than a transaction."""

    def __init__(self, pool: Pool, *, leaves_nothing: bool = False) -> None:
        self._pool = pool
        self._leaves_nothing = leaves_nothing

    async def __aenter__(self) -> Connection:
        pool = self._pool
        # Where one is free there is nothing to wait for, and no clock to be set.
        patience = None if pool.get_idle_size() else POOL_WAIT_S
        with translated():
            try:
                connection = self._connection = await pool.acquire(timeout=patience)
            except TimeoutError as error:
                raise PoolExhausted(
                    f"No connection was free within {POOL_WAIT_S:g} seconds; "
                    f"all {pool.get_max_size()} are in use"
                ) from error
        if self._leaves_nothing:
            connection.leaves_nothing()  # type: ignore[attr-defined]
        return connection

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, *__: object
    ) -> None:
        # The work is done or undone by now; a connection that cannot be cleaned is thrown away.
        with suppress(*DRIVER_ERRORS):
            await self._pool.release(self._connection)


class reading(acquired):  # noqa: N801 - used like a function
    """A connection to read on, which leaves nothing. What the driver raises becomes ours."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool, leaves_nothing=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *more: object
    ) -> None:
        await super().__aexit__(kind, error, *more)
        if error is not None:
            translate(error)
