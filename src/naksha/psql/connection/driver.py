"""The driver: names for its types, which are generic only for the type checker, and its pool."""

from __future__ import annotations

from collections.abc import Mapping
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
else:
    Pooled = asyncpg.pool.PoolConnectionProxy
    Direct = asyncpg.Connection
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection
    Rows = asyncpg.cursor.Cursor

__all__ = [
    "Connection",
    "Connections",
    "Direct",
    "Pool",
    "Rows",
    "acquired",
    "connect",
    "create_pool",
    "reading",
    "settings_statement",
]

POOL_WAIT_S: Final = 30.0
"""How long anybody waits for a connection. Sessions that each need one more would wait for ever."""

AT_HAND_MAX: Final = 4
"""Connections at hand of readers."""

CONNECT_S: Final = 60.0
"""How long a server may take to answer."""


class StorageConnection(Direct):
    """A connection with settings of its own. They are set in the session, since pgbouncer refuses
    or drops them as parameters of the startup.

    What was set and locked on a connection of a pool is undone when it goes back, which is a round
    trip; a caller that does nothing that outlasts a transaction says so, and need not wait."""

    _set_up = ""
    _pid = 0
    _is_tidy = False

    async def set_up(self, settings: Mapping[str, str]) -> None:
        """Make the settings those of the session."""
        self._set_up = settings_statement(settings)
        self._pid = await self.fetchval(self._set_up)
        await _make_cancellable(self)

    def get_server_pid(self) -> int:
        """The process of the server, also behind a connection pooler."""
        return self._pid

    def leaves_nothing(self) -> None:
        """Whoever has it now changes nothing of its session."""
        self._is_tidy = True

    async def tidy_up(self) -> None:
        """Make it as good as new."""
        if not self._is_tidy:
            await self.execute(f"{self.get_reset_query()}\n{self._set_up}")
        self._is_tidy = False


def settings_statement(settings: Mapping[str, str]) -> str:
    """A query that sets them for the session; its first value is the process of the server."""
    each = (inlined(queries()["setting_set"], setting) for setting in settings.items())
    return sql("settings_set", settings=", ".join(each))


async def connect(dsn: str, settings: Mapping[str, str]) -> Direct:
    """A connection of its own."""
    connection = await asyncpg.connect(dsn, timeout=CONNECT_S, connection_class=StorageConnection)
    try:
        await connection.set_up(settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def create_pool(
    dsn: str,
    settings: Mapping[str, str],
    *,
    max_size: int,
    connect_s: float = CONNECT_S,
) -> Pool:
    """A pool of such connections. It keeps none for its own sake: it would try to make that again
    and again, and complain, for as long as the server is gone."""

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
    """Load PostGIS before anything that may be cancelled.

    Its handler of a cancellation allocates memory the first time it runs, unless a statement has
    begun since it was loaded. A cancellation that hits a backend in the middle of an allocation
    then corrupts its heap, and the whole server restarts."""
    with suppress(asyncpg.UndefinedFunctionError):  # a replica that has replayed nothing yet
        await connection.fetchval(queries()["postgis_load"])


async def _tidy_up(connection: Connection) -> None:
    """The driver has ended any transaction by now."""
    assert isinstance(connection, StorageConnection)
    await connection.tidy_up()


class Connections:
    """The connections of a storage: a pool, and some of its connections at hand. To take one from
    the pool and to give it back takes as long as a small statement; so who has read in peace leaves
    it here for who reads next. Whoever needs one and finds the pool empty gets those too."""

    def __init__(self, pool: Pool) -> None:
        self.pool: Final = pool
        self._at_hand: list[Pooled] = []
        self._waiting = 0
        self._is_closing = False

    async def take(self) -> Pooled:
        """A connection, from the pool."""
        # Where one is free there is nothing to wait for, and no clock to be set.
        if self.pool.get_idle_size():
            return await self.pool.acquire()
        self._waiting += 1
        try:
            await self._give_all_back()
            return await self.pool.acquire(timeout=POOL_WAIT_S)
        except TimeoutError as error:
            raise PoolExhausted(
                f"No connection was free within {POOL_WAIT_S:g} seconds; "
                f"all {self.pool.get_max_size()} are in use"
            ) from error
        finally:
            self._waiting -= 1

    async def give_back(self, connection: Pooled) -> None:
        """It goes to the pool; one that cannot be cleaned is thrown away."""
        with suppress(*DRIVER_ERRORS):
            await self.pool.release(connection)

    async def take_to_read(self) -> Pooled:
        """A connection on which nothing is done that outlasts a transaction."""
        while self._at_hand:
            connection = self._at_hand.pop()
            if not connection.is_closed():
                return connection
            await self.give_back(connection)
        connection = await self.take()
        _leaves_nothing(connection)
        return connection

    async def leave(self, connection: Pooled) -> None:
        """It was read on, and all went well."""
        is_wanted = self._waiting or self._is_closing or len(self._at_hand) >= AT_HAND_MAX
        if is_wanted or connection.is_closed() or connection.is_in_transaction():
            await self.give_back(connection)
        else:
            self._at_hand.append(connection)

    def in_use(self) -> dict[str, int]:
        """How many are in use, and how many wait for work."""
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
    """A connection for a block; what is raised inside the block passes as it is. With
    `leaves_nothing` nothing is set or locked in the block for longer than a transaction."""

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
    """A connection to read on for a block. What the driver raises becomes ours."""

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
