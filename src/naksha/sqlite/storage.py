"""The embedded storage: SQLite, one file, no server."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self, TypeVar

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, Retryable, VersionNotFound
from naksha.model.names import check_app_id, check_author, check_storage_id
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.transaction import PublicationStatus, Transaction
from naksha.model.uuids import STORAGE_NUMBER_MAX, txn_number
from naksha.model.version import HEAD, Head, Version, VersionSelector
from naksha.spi.clock import Clock
from naksha.spi.locations import path_of
from naksha.spi.log_rows import transactions_of
from naksha.spi.storage import Page, WriteSession
from naksha.sqlite import reading, versions
from naksha.sqlite.bulk_storage import BulkStorage
from naksha.sqlite.errors import Locked
from naksha.sqlite.files import BUSY_S, open_file
from naksha.sqlite.maintenance import maintain
from naksha.sqlite.readers import READERS_MAX, NoReaderFree, Readers, Snapshot
from naksha.sqlite.rows import collection_of, dicts
from naksha.sqlite.session import SqliteSession, list_collections
from naksha.sqlite.sql import queries
from naksha.sqlite.transaction import Transaction as OpenTransaction
from naksha.sqlite.writer import Entry, Writer

T = TypeVar("T")
CHUNK: Final = 500
"""States handed over at once when they are streamed."""
LOOK_S: Final = 0.05
"""How often somebody who waits looks for what other processes published."""
_random = random.SystemRandom()


class SqliteStorage(BulkStorage):
    """See `naksha.spi.storage.Storage`. Open it with `SqliteStorage.open`."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        info: tuple[str, int],
        clock: Clock | None,
        busy_s: float,
        readers_max: int,
    ) -> None:
        self.path = path
        self._info = info
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._readers = Readers(path, busy_s, readers_max)
        self._writer = Writer(connection, self._committed)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        storage_id: str | None = None,
        *,
        number: int | None = None,
        clock: Clock | None = None,
        busy_s: float = BUSY_S,
        readers_max: int = READERS_MAX,
    ) -> Self:
        """Open the storage in a file (a path, or a location `file:…`), which is made when it is
        not there.

        `storage_id` is that of a new storage ("naksha" when not given), and must be that of an
        existing one. `number` is the storage's 40-bit number, random when a new storage gets none.
        A `clock` makes transactions start at its time. A writer waits `busy_s` seconds for
        another process that writes."""
        if storage_id is not None:
            check_storage_id(storage_id)
        if number is None:
            number = _random.randint(0, STORAGE_NUMBER_MAX)
        place = path_of(path)
        connection, id_, known = await asyncio.to_thread(
            open_file, place, storage_id, number, busy_s
        )
        storage = cls(place, connection, (id_, known), clock, busy_s, readers_max)
        try:
            await storage._publish()
        except BaseException:
            await storage.close()
            raise
        return storage

    @property
    def id(self) -> str:
        return self._info[0]

    @property
    def number(self) -> int:
        return self._info[1]

    async def close(self) -> None:
        await self._writer.close()
        self._readers.close()

    def _committed(self) -> None:
        self._loop.call_soon_threadsafe(self._news.set)

    def _now_ms(self) -> int | None:
        return None if self._clock is None else self._clock.now_ms()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        async with self._readers.snapshot() as snapshot:
            return await snapshot.read(work)

    async def _publish(self) -> None:
        """Publish what another process left behind; what is ours is published with its commit,
        or waits for a transaction that is open here."""
        waiting = await self._read(lambda c: c.execute(queries()["unpublished"]).fetchone()[0])
        if waiting:
            await self._writer.task(lambda _: None)

    # ---- Reading -----------------------------------------------------------------------------

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        return await self._read(partial(list_collections, dropped=dropped))

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        return await self._read(lambda c: collection_of(c, collection, dropped=dropped).info)

    @asynccontextmanager
    async def _request(
        self, collection: str, query: Query, at: VersionSelector
    ) -> AsyncIterator[tuple[Snapshot, reading.Request]]:
        if query.cursor is None and not (isinstance(at, Head) and query.limit is None):
            await self._publish()
        async with self._readers.snapshot() as snapshot:
            yield (
                snapshot,
                await snapshot.read(
                    lambda c: reading.Request(c, collection, query, at, pins_head=True)
                ),
            )

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> Page:
        async with self._request(collection, query, at) as (snapshot, request):
            return await snapshot.read(lambda _: request.page())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        async with self._request(collection, query, at) as (snapshot, request):
            left = query.limit
            found = await snapshot.read(lambda _: request.states())
            while left != 0:
                size = CHUNK if left is None else min(CHUNK, left)
                chunk = await snapshot.read(partial(_next, found, size))
                for state in chunk:
                    yield state
                if len(chunk) < size:
                    break
                left = None if left is None else left - len(chunk)

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        async with self._request(collection, reading.counted(query), at) as (snapshot, request):
            return await snapshot.read(lambda _: request.count())

    async def state(self, state_id: str) -> State:
        return await self._read(lambda c: reading.state(c, self._info, state_id))

    # ---- Writing -----------------------------------------------------------------------------

    @asynccontextmanager
    async def write(
        self, app_id: str, author: str | None = None, *, at_ms: int | None = None
    ) -> AsyncIterator[WriteSession]:
        async with self._session(app_id, author, at_ms, keeps_place=False) as session:
            yield session

    @asynccontextmanager
    async def _session(
        self, app_id: str, author: str | None, at_ms: int | None, *, keeps_place: bool
    ) -> AsyncIterator[SqliteSession]:
        check_app_id(app_id)
        check_author(author)
        start_ms = self._now_ms() if at_ms is None else at_ms
        transaction = OpenTransaction(
            self.id,
            self._writer.counters,
            app_id,
            author,
            start_ms,
            dated=at_ms is not None,
        )
        entry = Entry(transaction, keeps_place=keeps_place)
        session = SqliteSession(self._writer, self._readers, entry, self._info)
        try:
            yield session
            session.check_usable()
        except BaseException:
            await asyncio.shield(self._writer.rollback(entry))
            raise
        if entry.steps:
            try:
                await self._writer.commit(entry)
            except BaseException:
                await asyncio.shield(self._writer.rollback(entry))
                raise

    async def run(
        self,
        work: Callable[[WriteSession], Awaitable[T]],
        app_id: str,
        author: str | None = None,
        *,
        at_ms: int | None = None,
    ) -> T:
        for attempt in range(limits.RETRY_COUNT_MAX):
            stays = attempt >= limits.RETRY_GATE_COUNT
            try:
                async with self._session(app_id, author, at_ms, keeps_place=stays) as session:
                    return await work(session)
            except Retryable as error:
                if (
                    isinstance(error, Locked | NoReaderFree)
                    or attempt + 1 == limits.RETRY_COUNT_MAX
                ):
                    raise
            pause = limits.RETRY_DELAY_MS_MIN * 2**attempt * _random.random()
            await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
        raise AssertionError("unreachable")

    # ---- The log -----------------------------------------------------------------------------

    async def transaction(self, txn: int | str) -> Transaction:
        number = txn_number(txn, self.number)

        def find(connection: sqlite3.Connection) -> Sequence[Transaction]:
            rows = dicts(connection.execute(queries()["transaction"], (number,)))
            found = transactions_of(rows)
            if not found:
                versions.check_log(connection, number)
            return found

        found = await self._read(find)
        if not found:
            raise VersionNotFound(f"There is no transaction {txn}")
        return found[0]

    async def transactions(self, after: int = 0, limit: int = 1000) -> list[Transaction]:
        if not 1 <= limit <= limits.PAGE_MAX:
            raise InvalidArgument(f"limit must be between 1 and {limits.PAGE_MAX}", field="limit")

        def find(connection: sqlite3.Connection) -> list[Transaction]:
            versions.check_log_after(connection, after)
            rows = connection.execute(queries()["transactions"], (after, limit))
            return transactions_of(dicts(rows))

        return await self._read(find)

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        await self._publish()

        def find(connection: sqlite3.Connection) -> Version:
            known = None if collection is None else collection_of(connection, collection)
            return versions.resolve(connection, at, known)

        return await self._read(find)

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        deadline = time.monotonic() + timeout_s
        await self._publish()
        while True:
            self._news.clear()
            version = await self._read(lambda c: versions.find(c, "version_by_txn", txn))
            left = deadline - time.monotonic()
            if version is not None or left <= 0:
                return version
            try:
                async with asyncio.timeout(min(left, LOOK_S)):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def publication(self) -> PublicationStatus:
        def find(connection: sqlite3.Connection) -> tuple[Version, int]:
            last = versions.find(connection, "last_version") or versions.BEGINNING
            return last, connection.execute(queries()["unpublished"]).fetchone()[0]

        last, unpublished = await self._read(find)
        held = dict(self._writer.counters.open)  # A copy: the writer goes on.
        holder = held[min(held)] if unpublished and held else None
        return PublicationStatus(
            last_seq_number=last.seq_number,
            last_txn=last.txn,
            unpublished=unpublished,
            held_back_by=None if holder is None else f"an open session of {holder.app_id!r}",
            held_back_since_ms=None if holder is None else holder.started_ms,
        )

    async def pin(self, name: str, at: Version, collection: str | None = None) -> None:
        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(queries()["pin"], (name, collection, at.txn))
            if collection is not None:
                known = collection_of(connection, collection)
                versions.check_history(connection, known, at.txn)
            versions.check_log(connection, at.txn)

        await self._writer.task(keep)

    async def unpin(self, name: str) -> None:
        await self._writer.task(lambda c: c.execute(queries()["unpin"], (name,)).rowcount)

    async def maintain(self, now_ms: int | None = None) -> None:
        if now_ms is None:
            now_ms = self._now_ms()
        await self._publish()
        await maintain(self._writer, self._read, now_ms or time.time_ns() // 1_000_000)
        for info in await self.collections():
            if info.optimal_partitioning:
                await self.partitioning(info.id)


def _next(found: Iterator[State], size: int, _: sqlite3.Connection) -> list[State]:
    return list(islice(found, size))
