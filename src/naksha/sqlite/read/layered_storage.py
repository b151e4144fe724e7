"""The storage seen through its layers (main or a branch): reads, writes and the log."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import NotSupported, Retryable, VersionNotFound
from naksha.model.geo.tile_cells import CellLookUp
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.names import check_app_id, check_author, check_text
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.identity.txn import check_dated
from naksha.model.query import Bbox, Query, SortKey
from naksha.model.state import MatchingState, State
from naksha.model.statistics import Statistics
from naksha.model.transaction import MAIN, MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import HEAD, Head, Version, VersionSelector
from naksha.spi.arrow import STATES, schema_of
from naksha.spi.clock import Clock
from naksha.spi.query.sort_keys import check_matching_query
from naksha.spi.storage import Split, StatePage, StoredObject, WriteSession
from naksha.spi.support import chunks
from naksha.spi.support.version_signal import VersionSignal
from naksha.spi.support.write_input import check_days, check_stored_object
from naksha.spi.tile_cells import CellLog
from naksha.sqlite.bulk import splits
from naksha.sqlite.bulk.stage_files import StagingFiles
from naksha.sqlite.connection.errors import WriteLockTimeout
from naksha.sqlite.connection.file_watch import FileWatch
from naksha.sqlite.connection.readers import PoolExhausted, ReaderPool, ReadSnapshot
from naksha.sqlite.maintenance import pins
from naksha.sqlite.maintenance.cells import UNFOLDED_MAX, fold_all
from naksha.sqlite.read import cells, layers, log, objects, versions
from naksha.sqlite.read import queries as reading
from naksha.sqlite.read.layers import Layers
from naksha.sqlite.sql import queries
from naksha.sqlite.write.session import SqliteSession
from naksha.sqlite.write.transaction import WriteTransaction as OpenTransaction
from naksha.sqlite.write.writer import WITHIN, QueuedTransaction, WriterThread, within

T = TypeVar("T")
CHUNK: Final = 500
"""Number of states per chunk of a stream."""
LOOK_S: Final = 0.05
"""Poll interval of waiting callers for versions that other processes published."""
_random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Resources that all views of one open storage share."""

    info: StorageIdentity
    clock: Clock | None
    readers: ReaderPool
    writer: WriterThread
    version_signal: VersionSignal
    stages: StagingFiles
    cell_log_end: FileWatch[CellLog]
    """The reply about tile cells when nothing has changed."""


class LayeredStorage:
    """Base class for implementations of `naksha.spi.storage.Storage`."""

    def __init__(self, file: OpenFile, seen: Layers, scope: Collection[str] | None = None) -> None:
        """Create a view; `scope` limits the collections that can be written to, None for all."""
        self._file = file
        self._layers = seen
        self._scope = scope

    @property
    def identity(self) -> StorageIdentity:
        return self._file.info

    @property
    def id(self) -> str:
        return self._file.info.id

    @property
    def number(self) -> int:
        return self._file.info.number

    @property
    def _readers(self) -> ReaderPool:
        return self._file.readers

    @property
    def _writer(self) -> WriterThread:
        return self._file.writer

    def _now_ms(self) -> int | None:
        return None if self._file.clock is None else self._file.clock.now_ms()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read on a snapshot of the committed state."""
        async with self._readers.snapshot() as snapshot:
            return await snapshot.read(work)

    async def _publish(self) -> None:
        """Publish transactions that another process committed but did not publish.

        The tile cells of edits in plain SQL are recorded as well.

        Transactions of this process are published with their commit, or wait for a transaction that
        is open here.
        """
        waiting = await self._read(lambda c: c.execute(queries()["is_waiting"]).fetchone()[0])
        if waiting and not self._writer.is_read_only:
            await self._writer.task(lambda _: None)

    # ---- Reading -----------------------------------------------------------------------------

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        return await self._read(lambda c: reading.collections(c, self._layers, dropped=dropped))

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        return await self._read(
            lambda c: layers.collection_on(c, self._layers, collection, dropped=dropped).info
        )

    @asynccontextmanager
    async def _request(
        self, collection: str, query: Query, at: VersionSelector, *, pins_head: bool = True
    ) -> AsyncIterator[tuple[ReadSnapshot, reading.CollectionQuery]]:
        reads_head = query.limit is None or not pins_head
        if query.cursor is None and not (isinstance(at, Head) and reads_head):
            await self._publish()
        async with self._readers.snapshot() as snapshot:
            yield (
                snapshot,
                await snapshot.read(
                    lambda c: reading.CollectionQuery(
                        c, self._layers, collection, query, at, pins_head=pins_head
                    )
                ),
            )

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        async with self._request(collection, query, at) as (snapshot, request):
            return await snapshot.read(lambda _: request.page())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        async with (
            self._readers.streams.slot(query),
            self._request(collection, query, at) as (snapshot, request),
        ):
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

    async def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        whole = reading.counted(query)
        async with self._request(collection, whole, at) as (snapshot, request):
            found = await snapshot.read(lambda _: islice(request.states(), query.limit))
            first = await snapshot.read(partial(_next, found, chunks.FIRST + 1))
        if len(first) <= chunks.FIRST:
            if first:
                yield first
            return
        # Read again from the start with a stream slot; small results do not have to wait for one.
        size = chunks.size_after(first)
        async with (
            self._readers.streams.slot(query),
            self._request(collection, whole, at) as (snapshot, request),
        ):
            found = await snapshot.read(lambda _: islice(request.states(), query.limit))
            while states := await snapshot.read(partial(_next, found, size)):
                yield states
                size = chunks.size_after(states)

    async def matching_states(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        check_matching_query(query, sort, after)
        plain = reading.uncut(query)
        async with self._request(collection, plain, at, pins_head=False) as (snapshot, request):
            return await snapshot.read(lambda _: request.matching_states(sort, after))

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        async with self._request(collection, reading.counted(query), at) as (snapshot, request):
            return await snapshot.read(lambda _: request.count())

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        plain = reading.uncut(query)
        # No further pages follow, so HEAD need not be pinned.
        async with self._request(collection, plain, at, pins_head=False) as (snapshot, request):
            return await snapshot.read(lambda _: request.tile(tile))

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        async with self._request(collection, Query(), at) as (snapshot, request):
            return await snapshot.read(lambda _: request.statistics(fast=fast))

    async def state(self, state_id: str) -> State:
        return await self._read(lambda c: reading.state(c, self._file.info, self._layers, state_id))

    async def stored_object(self, kind: str, id: str) -> StoredObject | None:
        check_stored_object(kind, id)
        return await self._read(lambda c: objects.find(c, kind, id))

    async def stored_objects(self, kind: str, prefix: str = "") -> list[StoredObject]:
        check_stored_object(kind, prefix or kind)
        return await self._read(lambda c: objects.find_all(c, kind, prefix))

    # ---- Tile cells --------------------------------------------------------------------------

    async def cell_log(self, after_txn: int) -> CellLog:
        watch = self._file.cell_log_end
        version = watch.version()
        known = watch.get(version)
        if known is not None and known.txn == after_txn:
            return known
        await self._publish()
        log = await self._read(lambda c: cells.cell_log(c, after_txn))
        if log.is_settled:
            watch.keep(version, msgspec.structs.replace(log, changes=[]))
        return log

    async def last_cell_change(self, collection: str, box: Bbox, *, overlay: int = MAIN) -> int:
        look_up = CellLookUp(box)
        await self._publish()
        found = await self._read(lambda c: cells.last_change(c, collection, look_up, overlay))
        if found.rows > UNFOLDED_MAX and not self._writer.is_read_only:
            await fold_all(self._writer)
        return found.txn

    # ---- Splits ------------------------------------------------------------------------------

    async def plan(
        self, collection: str, query: Query, at: VersionSelector = HEAD, *, hidden: bool = False
    ) -> list[Split]:
        await self._publish()
        return await self._read(
            lambda c: splits.plan(
                c, self._file.info.key, self._layers, collection, query, at, hidden=hidden
            )
        )

    async def read(
        self, split: Split, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Read a split, independent of this view: the split itself names the layers it reads."""
        split.check_storage(self._file.info.key)
        part = splits.payload_of(split)
        names = schema_of(STATES.names if columns is None else columns).names
        async with self._readers.snapshot() as snapshot:
            found = await snapshot.read(lambda c: splits.batches(c, split.collection, part, names))
            while (batch := await snapshot.read(lambda _: next(found, None))) is not None:
                yield batch

    # ---- Writing -----------------------------------------------------------------------------

    @asynccontextmanager
    async def write(
        self, app_id: str, author: str | None = None, *, at_ms: int | None = None
    ) -> AsyncIterator[WriteSession]:
        async with self._session(app_id, author, at_ms, holds_writer=False) as session:
            yield session

    @asynccontextmanager
    async def _session(
        self, app_id: str, author: str | None, at_ms: int | None, *, holds_writer: bool
    ) -> AsyncIterator[SqliteSession]:
        check_app_id(app_id)
        check_author(author)
        if self._layers[0].txn is not None:
            raise NotSupported(
                "The storage was opened at a past version and cannot be written to; open its "
                "branch at HEAD"
            )
        start_ms = self._now_ms()
        if at_ms is not None:
            check_dated(at_ms, time.time_ns() // 1_000_000 if start_ms is None else start_ms)
            start_ms = at_ms
        transaction = OpenTransaction(
            self.id,
            self._writer.counters,
            app_id,
            author,
            start_ms,
            dated=at_ms is not None,
            layers=self._layers,
        )
        entry = QueuedTransaction(transaction, holds_writer=holds_writer, outer=within())
        session = SqliteSession(self._writer, self._readers, entry, self._file.info, self._scope)
        WITHIN.set(entry)
        try:
            yield session
            session.check_unbroken()
            await session.commit()
        except BaseException:
            if not session.is_committed:
                await asyncio.shield(self._writer.rollback(entry))
            raise
        finally:
            WITHIN.set(entry.outer)

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
            session: SqliteSession | None = None
            try:
                async with self._session(app_id, author, at_ms, holds_writer=stays) as session:
                    return await work(session)
            except Retryable as error:
                if (
                    isinstance(error, WriteLockTimeout | PoolExhausted)
                    or (session is not None and session.is_committed)
                    or attempt + 1 == limits.RETRY_COUNT_MAX
                ):
                    raise
            pause = limits.RETRY_DELAY_MS_MIN * 2**attempt * _random.random()
            await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
        raise AssertionError("unreachable")

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        check_text(name, limits.PIN_NAME_BYTES_MAX, field="name")
        await self._writer.task(
            lambda c: pins.pin(c, self._layers, name, at, collection, guards=guards)
        )

    async def unpin(self, name: str) -> None:
        check_text(name, limits.PIN_NAME_BYTES_MAX, field="name")
        await self._writer.task(lambda c: pins.unpin(c, name))

    async def keep_log(self, days: int) -> None:
        """See `Storage.keep_log`."""
        check_days(days)

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(queries()["log_days_set"], (days,))

        await self._writer.task(keep)

    # ---- The log -----------------------------------------------------------------------------

    async def transaction(self, txn: int | str) -> Transaction:
        number = self.identity.txn_of(txn)
        found = await self._read(lambda c: log.find(c, number))
        if found is None:
            raise VersionNotFound(f"Transaction {txn} does not exist")
        return found

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        return await self._read(
            lambda c: log.page(c, after, limit, where, newest_first=newest_first)
        )

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        await self._publish()
        return await self._read(lambda c: layers.resolve(c, self._layers, at, collection))

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        deadline, version_signal = time.monotonic() + timeout_s, self._file.version_signal
        await self._publish()
        while True:
            next_version = version_signal.next_version
            version = await self._read(lambda c: versions.find(c, "version_by_txn", txn))
            left = deadline - time.monotonic()
            if version is not None or left <= 0:
                return version
            await version_signal.wait(next_version, left)

    async def wait_beyond(self, seq_number: int, timeout_s: float) -> int:
        async def look() -> int:
            await self._publish()
            last = await self._read(lambda c: versions.find(c, "last_version"))
            return 0 if last is None else last.seq_number

        return await self._file.version_signal.wait_beyond(seq_number, timeout_s, look)

    async def publication(self) -> PublicationStatus:
        def find(connection: sqlite3.Connection) -> tuple[Version, int]:
            last = versions.find(connection, "last_version") or versions.BEGINNING
            return last, connection.execute(queries()["unpublished"]).fetchone()[0]

        last, unpublished = await self._read(find)
        held = dict(self._writer.counters.open)  # A copy, since the writer changes it concurrently.
        holder = held[min(held)] if unpublished and held else None
        return PublicationStatus(
            last_seq_number=last.seq_number,
            last_txn=last.txn,
            unpublished=unpublished,
            held_back_by=None if holder is None else f"an open session of {holder.app_id!r}",
            held_back_since_ms=None if holder is None else holder.started_ms,
        )


def _next(found: Iterator[State], size: int, _: sqlite3.Connection) -> list[State]:
    return list(islice(found, size))
