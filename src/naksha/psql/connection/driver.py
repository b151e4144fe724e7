"""Connections and pools of the driver, with names for its types.

These types are generic only for the type checker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

from naksha.psql.connection.errors import DRIVER_ERRORS, PoolExhausted, translate, translated
from naksha.psql.sql import inlined, queries, sql

if TYPE_CHECKING:
    Direct: TypeAlias = asyncpg.Connection[Any]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    Connection: TypeAlias = Direct | Pooled
    Rows: TypeAlias = asyncpg.cursor.Cursor[Any]
    Prepared: TypeAlias = asyncpg.prepared_stmt.PreparedStatement[Any]
else:
    Pooled = asyncpg.pool.PoolConnectionProxy
    Direct = asyncpg.Connection
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection
    Rows = asyncpg.cursor.Cursor
    Prepared = asyncpg.prepared_stmt.PreparedStatement

__all__ = [
    "Connection",
    "Connections",
    "Direct",
    "Pool",
    "Prepared",
    "Rows",
    "acquired",
    "connect",
    "create_pool",
    "is_lost",
    "planned_for_values",
    "reading",
    "settings_statement",
]

POOL_WAIT_S: Final = 30.0
"""Timeout for a free connection. Sessions that each need one more would wait forever."""

_AT_HAND_MAX: Final = 4
"""Most connections that readers keep outside the pool for the next reader."""

CONNECT_S: Final = 60.0
"""Timeout for connecting to a server."""


class StorageConnection(Direct):
    """Connection with settings of its own.

    They are set in the session, since pgbouncer refuses or drops them as startup parameters.

    When a connection returns to the pool its settings and session locks are reset, which takes a
    round trip. A caller that changes nothing beyond its transaction calls `leaves_nothing`, and
    saves that.
    """

    _set_up = ""
    _pid = 0
    _is_tidy = False

    async def set_up(self, settings: Mapping[str, str]) -> None:
        """Apply the settings to the session."""
        self._set_up = settings_statement(settings)
        self._pid = await self.fetchval(self._set_up)
        await _make_cancellable(self)

    def get_server_pid(self) -> int:
        """Return the id of the server process, also behind a connection pooler."""
        return self._pid

    def leaves_nothing(self) -> None:
        """Declare that the current user of the connection changes nothing in its session."""
        self._is_tidy = True

    async def tidy_up(self) -> None:
        """Reset the session, unless its user declared that this is not needed."""
        if not self._is_tidy:
            await self.execute(f"{self.get_reset_query()}\n{self._set_up}")
        self._is_tidy = False


def settings_statement(settings: Mapping[str, str]) -> str:
    """Return a query that applies session settings; its first value is the server process id."""
    each = (inlined(queries()["setting_set"], setting) for setting in settings.items())
    return sql("settings_set", settings=", ".join(each))


async def connect(dsn: str, settings: Mapping[str, str]) -> Direct:
    """Open a connection outside of any pool."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_S, connection_class=StorageConnection)
    try:
        await connection.set_up(settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_lost(connection: Connection) -> bool:
    """Whether a connection that failed has no server any more."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # The pool has taken it back because it was closed.
        return True


async def planned_for_values(connection: Connection, text: str, values: Sequence[Any]) -> Prepared:
    """Prepare a statement that is planned for its values.

    Without parameters it needs no setting for that, and without a name it is not kept.
    """
    return await connection.prepare(inlined(text, values), name="")


async def create_pool(
    dsn: str,
    settings: Mapping[str, str],
    *,
    max_size: int,
    connect_s: float = CONNECT_S,
) -> Pool:
    """Create a pool of such connections.

    The pool keeps no minimum: it would reconnect in a loop and log errors for as long as the server
    is down.
    """

    async def set_up(connection: Direct) -> None:
        assert isinstance(connection, StorageConnection)
        await connection.set_up(settings)

    return await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=max_size,
        timeout=connect_s,
        init=set_up,
        connection_class=StorageConnection,
        reset=_tidy_up,
    )


async def _make_cancellable(connection: Connection) -> None:
    """Load PostGIS before running anything that may be cancelled.

    Its cancellation handler allocates memory the first time it runs, unless a statement has begun
    since it was loaded. A cancellation that hits a backend in the middle of an allocation then
    corrupts its heap, and the whole server restarts.
    """
    with suppress(asyncpg.UndefinedFunctionError):  # a replica that has replayed nothing yet
        await connection.fetchval(queries()["postgis_load"])


async def _tidy_up(connection: Connection) -> None:
    """Reset a released connection; the driver has ended any transaction by now."""
    assert isinstance(connection, StorageConnection)
    await connection.tidy_up()


class Connections:
    """Pool of a storage's connections, with a few of them kept aside for readers.

    Acquiring and releasing a pooled connection takes as long as a small statement. So a reader
    whose statements succeeded leaves its connection here for the next reader. A caller that finds
    the pool empty gets those connections, too.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool: Final = pool
        self._at_hand: list[Pooled] = []
        self._waiting = 0
        self._is_closing = False

    async def take(self) -> Pooled:
        """Acquire a connection from the pool.

        Raises:
            PoolExhausted: None became free in time.
        """
        # Fast path: with an idle connection there is no need for a timeout, whose timer costs
        # time.
        if self.pool.get_idle_size():
            return await self.pool.acquire()
        self._waiting += 1
        try:
            await self._give_all_back()
            return await self.pool.acquire(timeout=POOL_WAIT_S)
        except TimeoutError as error:
            raise PoolExhausted(
                f"No database connection was available within {POOL_WAIT_S:g} s, because all "
                f"{self.pool.get_max_size()} of the storage are in use; retry later"
            ) from error
        finally:
            self._waiting -= 1

    async def give_back(self, connection: Pooled) -> None:
        """Return a connection to the pool; one that cannot be reset is discarded."""
        with suppress(*DRIVER_ERRORS):
            await self.pool.release(connection)

    async def take_to_read(self) -> Pooled:
        """Acquire a connection for work that changes nothing beyond its transactions."""
        while self._at_hand:
            connection = self._at_hand.pop()
            if not connection.is_closed():
                return connection
            await self.give_back(connection)
        connection = await self.take()
        _leaves_nothing(connection)
        return connection

    async def leave(self, connection: Pooled) -> None:
        """Keep a connection after a successful read for the next reader."""
        is_wanted = self._waiting or self._is_closing or len(self._at_hand) >= _AT_HAND_MAX
        if is_wanted or connection.is_closed() or connection.is_in_transaction():
            await self.give_back(connection)
        else:
            self._at_hand.append(connection)

    def in_use(self) -> dict[str, int]:
        """Return how many connections are in use, and how many are idle."""
        idle = self.pool.get_idle_size() + len(self._at_hand)
        return {"used": self.pool.get_size() - idle, "idle": idle}

    async def close(self) -> None:
        self._is_closing = True
        await self._give_all_back()
        await self.pool.close()

    async def _give_all_back(self) -> None:
        while self._at_hand:
            await self.give_back(self._at_hand.pop())


def _leaves_nothing(connection: Pooled) -> None:
    connection.leaves_nothing()  # type: ignore[attr-defined]


class acquired:  # noqa: N801 - used like a function
    """Acquire a connection for a block; errors raised inside the block pass unchanged.

    With `leaves_nothing` the block sets or locks nothing for longer than a transaction.
    """

    def __init__(self, connections: Connections, *, leaves_nothing: bool = False) -> None:
        self._connections = connections
        self._leaves_nothing = leaves_nothing

    async def __aenter__(self) -> Connection:
        with translated():
            self._connection = await self._connections.take()
        if self._leaves_nothing:
            _leaves_nothing(self._connection)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connections.give_back(self._connection)


class reading:  # noqa: N801 - used like a function
    """Acquire a connection to read on for a block, and translate the driver's errors."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def __aenter__(self) -> Connection:
        with translated():
            self._connection = await self._connections.take_to_read()
        return self._connection

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, *__: object
    ) -> None:
        if error is None:
            await self._connections.leave(self._connection)
            return
        await self._connections.give_back(self._connection)
        translate(error)
