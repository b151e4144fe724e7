"""Write sessions of a storage, on main and on branches.

Each is one transaction, which `run` retries after a conflict with a concurrent one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from naksha.model import limits
from naksha.model.errors import NakshaError, Retryable
from naksha.model.identity.names import check_app_id, check_author, check_text
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.txn import LAST_MS, check_dated
from naksha.model.query import Query
from naksha.model.version import Version
from naksha.psql.connection.driver import Connection, Connections, Direct, acquired, reading
from naksha.psql.connection.errors import LockTimeout, PoolExhausted, translated
from naksha.psql.maintenance.daily_partitions import DailyPartitions
from naksha.psql.maintenance.growth import GrowthTask
from naksha.psql.maintenance.sequencer import Sequencer
from naksha.psql.read.reader import PsqlReader
from naksha.psql.sql import queries
from naksha.psql.write.session import PsqlSession, Start
from naksha.spi.clock import Clock
from naksha.spi.storage import WriteSession
from naksha.spi.support.stream_limit import StreamLimit
from naksha.spi.support.write_input import check_days

T = TypeVar("T")
_random = random.SystemRandom()


class Writing(PsqlReader):
    """Reader and writer on a pool of connections."""

    _connections: Connections
    _streams: StreamLimit
    _info: StorageIdentity
    _sequencer: Sequencer
    _clock: Clock | None
    _connect: Callable[[], Awaitable[Direct]]
    _days: DailyPartitions
    _growth: GrowthTask
    _scope: Collection[str] | None = None

    @property
    def identity(self) -> StorageIdentity:
        return self._info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def number(self) -> int:
        return self._info.number

    @property
    def _storage(self) -> StorageIdentity:
        return self._info

    def _connection(self) -> AbstractAsyncContextManager[Connection]:
        return reading(self._connections)

    def _turn_to_stream(self, query: Query) -> AbstractAsyncContextManager[object]:
        return self._streams.slot(query)

    async def _publish(self) -> None:
        with translated():
            await self._sequencer.publish()

    async def _last_published(self) -> int:
        await self._publish()
        seq_number, txn = self._sequencer.last
        self._facts.add_version(seq_number, txn)
        return txn

    @asynccontextmanager
    async def write(
        self, app_id: str, author: str | None = None, *, at_ms: int | None = None
    ) -> AsyncIterator[WriteSession]:
        async with self._session(app_id, author, at_ms) as session:
            yield session

    @asynccontextmanager
    async def _session(
        self,
        app_id: str,
        author: str | None,
        at_ms: int | None,
        *,
        trusts_facts: bool = False,
    ) -> AsyncIterator[PsqlSession]:
        check_app_id(app_id)
        check_author(author)
        if at_ms is not None:
            # Without an injected clock the storage uses the clock of the server.
            check_dated(at_ms, LAST_MS if self._clock is None else self._clock.now_ms())
            await self._publish()
        now_ms = at_ms if at_ms is not None else self._days.now_ms()
        await self._days.prepare_log(now_ms)
        start = Start(app_id, author, now_ms, at_ms is not None)
        async with acquired(self._connections, leaves_nothing=True) as connection:
            prepare = partial(self._prepare, now_ms)
            session = PsqlSession(
                connection,
                self._connect,
                self._info,
                start,
                self._branch,
                prepare,
                self._scope,
                self._facts,
                trusts_facts,
            )
            try:
                # Errors of the caller's own code are not translated.
                yield session
                session.check_unbroken()
                await session.commit()
            except BaseException:
                await session.rollback()
                for collection in session.resolved:  # Outdated facts may be the reason.
                    self._facts.forget(collection)
                raise
            finally:
                if session.is_committed:
                    self._sequencer.poke()
        for known in session.resolved.values():
            self._facts.add_collection(known)
        self._growth.written(session.features_written)

    async def _prepare(self, now_ms: int | None, connection: Connection, collection: str) -> None:
        """Create the tables that a write to a collection needs, before the write.

        These are the collection's tables on the branch, and today's partition of its history.
        """
        overlay = self._branch[0].overlay
        if self._days.has_history(collection, overlay, now_ms):
            return
        with translated():
            if overlay != 0:
                await self._prepare_overlay(connection, collection, overlay, now_ms)
            await self._days.prepare_history(connection, collection, overlay, now_ms)

    async def _prepare_overlay(
        self, connection: Connection, collection: str, overlay: int, now_ms: int | None
    ) -> None:
        """Create the tables of a collection on the branch, if they are missing.

        This uses a connection outside of the pool: all pooled ones may be waiting for this session.
        """
        rows = await connection.fetch(queries()["overlay_tables"], collection, [overlay])
        if any(row["table"] is not None for row in rows):
            return
        other = await self._connect()
        try:
            await other.execute(queries()["overlay_prepare"], collection, overlay, now_ms)
        finally:
            await other.close()

    async def run(
        self,
        work: Callable[[WriteSession], Awaitable[T]],
        app_id: str,
        author: str | None = None,
        *,
        at_ms: int | None = None,
    ) -> T:
        touched: set[str] = set()
        for attempt in range(limits.RETRY_COUNT_MAX):
            session: PsqlSession | None = None
            try:
                is_first = attempt == 0
                async with self._session(app_id, author, at_ms, trusts_facts=is_first) as session:
                    if attempt >= limits.RETRY_GATE_COUNT:
                        await session.close_gates(sorted(touched))
                    result = await work(session)
                    await session.check_resolved()
                    return result
            except NakshaError as error:
                is_last = attempt + 1 == limits.RETRY_COUNT_MAX
                if is_last or not await self._may_repeat(error, session):
                    raise
            finally:
                if session is not None:
                    touched |= session.collections_written
            pause = limits.RETRY_DELAY_MS_MIN * 2**attempt * _random.random()
            await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
        raise AssertionError("unreachable")

    async def _may_repeat(self, error: NakshaError, session: PsqlSession | None) -> bool:
        """Whether a transaction has surely not taken place, and may succeed if it is repeated."""
        if session is not None and (session.is_unsure or session.is_committed):
            return False
        if isinstance(error, Retryable):
            return not isinstance(error, PoolExhausted | LockTimeout)
        # The reason may be a collection that has been changed since it was read.
        is_current = session is None or await self._are_current(session.unverified.values())
        return not is_current

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        check_text(name, limits.PIN_NAME_BYTES_MAX, field="name")
        async with self._connection() as connection, connection.transaction():
            await connection.execute(queries()["pin"], name, at.txn, collection, guards)
            # Expiry locks the pins, so history that exists now is kept.
            await self._check_kept(connection, at, collection)

    async def unpin(self, name: str) -> None:
        async with self._connection() as connection:
            await connection.execute(queries()["unpin"], name)

    async def keep_log(self, days: int) -> None:
        """See `Storage.keep_log`."""
        check_days(days)
        async with self._connection() as connection:
            await connection.execute(queries()["keep_log"], days)
