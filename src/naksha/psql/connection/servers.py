"""Servers of a storage's database: the primary, and read replicas for reads at a version.

A version is the same on every server that knows it, so a read at a version may run on any server
that has replayed it. A replica that cannot be reached is skipped for a while and then retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakSet

import asyncpg

from naksha.model.errors import InvalidArgument, NakshaError, Retryable
from naksha.psql.connection.driver import Connection, Direct, Pool, connect, create_pool
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked
from naksha.psql.read.arrow_stream import ArrowServer
from naksha.psql.sql import queries
from naksha.spi.locations import redacted

CONNECT_S: Final = 2.0
"""Timeout for connecting to a replica before it counts as dead."""
REST_S: Final = 5.0
"""How long a dead replica is skipped."""


class DatabaseServer:
    """One server, and how to connect to it."""

    def __init__(self, dsn: str, settings: Mapping[str, str]) -> None:
        self.dsn = dsn
        self.settings = dict(settings)
        self.arrow = ArrowServer(dsn)
        self._made: WeakSet[Direct] = WeakSet()

    async def connect(self, **settings: str) -> Direct:
        """Open a connection outside of any pool; it is closed with the storage at the latest."""
        with translated():
            made = await connect(self.dsn, self.settings | settings)
        self._made.add(made)
        return made

    async def close(self) -> None:
        await self.arrow.close()
        for connection in list(self._made):
            connection.terminate()


class Replica(DatabaseServer):
    """Server that follows the primary."""

    def __init__(self, dsn: str, settings: Mapping[str, str], pool_max: int) -> None:
        super().__init__(dsn, settings)
        self._pool_max = pool_max
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()
        self._rests_until = 0.0

    @property
    def rests(self) -> bool:
        """Whether the replica failed a short while ago and is skipped."""
        return asyncio.get_running_loop().time() < self._rests_until

    def rest(self) -> None:
        """Skip the replica for a while after a failure."""
        self._rests_until = asyncio.get_running_loop().time() + REST_S

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._opening:
            if self._pool is None:
                # No connection before the first use: it may be dead when the storage is opened.
                await (await connect_checked(self.dsn, CONNECT_S)).close()
                self._pool = await create_pool(
                    self.dsn,
                    self.settings,
                    max_size=self._pool_max,
                    connect_s=CONNECT_S,
                )
        connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            try:
                await self._pool.release(connection)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                # The replica died. The block has raised its own error, or was finished.
                self.rest()

    async def check(self, storage_id: str) -> None:
        """Refuse a reachable server that does not hold the storage."""
        try:
            with translated():
                async with self.connection() as connection:
                    found = await self._storage_on(connection)
        except Retryable:
            self.rest()
            return
        if found is not None and found != storage_id:
            raise InvalidArgument(
                f"The read replica {redacted(self.dsn)} holds storage {found!r}, not "
                f"{storage_id!r}; correct the option readers",
                field="readers",
            )

    async def _storage_on(self, connection: Connection) -> str | None:
        """Return the id of the storage that it holds; None if it has not replayed one yet."""
        try:
            return str(await connection.fetchval(queries()["storage_info"]))
        except asyncpg.UndefinedTableError:
            if await connection.fetchval(queries()["is_replica"]):
                return None
            raise InvalidArgument(
                f"{redacted(self.dsn)} in the option readers is not a replica of the storage's "
                "server; name replicas only",
                field="readers",
            ) from None

    async def close(self) -> None:
        await super().close()
        if self._pool is not None:
            await self._pool.close()


class Servers:
    """The primary and its replicas."""

    def __init__(self, primary: DatabaseServer, replicas: Sequence[Replica] = ()) -> None:
        self.primary = primary
        self.replicas = list(replicas)
        self._turn = 0

    async def check(self, storage_id: str) -> None:
        for replica in self.replicas:
            await replica.check(storage_id)

    async def close(self) -> None:
        for server in (self.primary, *self.replicas):
            await server.close()

    @asynccontextmanager
    async def replica_at(self, txn: int) -> AsyncIterator[tuple[Replica, Connection] | None]:
        """Connect to a replica that knows the version; None if no replica does."""
        async with AsyncExitStack() as stack:
            yield await self._enter(stack, txn)

    async def server_at(self, txn: int) -> DatabaseServer:
        """Return a replica that knows the version, else the primary."""
        async with self.replica_at(txn) as found:
            return self.primary if found is None else found[0]

    def leave_out(self, server: DatabaseServer) -> None:
        """Skip a failed replica for a while."""
        if isinstance(server, Replica):
            server.rest()

    async def _enter(self, stack: AsyncExitStack, txn: int) -> tuple[Replica, Connection] | None:
        for replica in self._round_robin():
            async with AsyncExitStack() as attempt:
                try:
                    with translated():
                        connection = await attempt.enter_async_context(replica.connection())
                        known = await connection.fetchval(queries()["version_replayed"], txn)
                except NakshaError:
                    replica.rest()
                    continue
                if known:
                    stack.push_async_exit(attempt.pop_all())
                    return replica, connection
        return None

    def _round_robin(self) -> Iterator[Replica]:
        count = len(self.replicas)
        self._turn += 1
        for n in range(count):
            replica = self.replicas[(self._turn + n) % count]
            if not replica.rests:
                yield replica
