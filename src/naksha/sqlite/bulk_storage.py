"""The storage's bulk work: splits, the bulk writer, and optimal partitioning."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pyarrow as pa

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.names import check_app_id, check_author, check_collection_id, check_text
from naksha.model.query import Query
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Split
from naksha.sqlite import bulk, partitioning, splits
from naksha.sqlite.readers import Readers
from naksha.sqlite.rows import collection_of
from naksha.sqlite.transaction import Transaction
from naksha.sqlite.writer import Entry, Writer

T = TypeVar("T")


class BulkStorage(ABC):
    """The part of `SqliteStorage` that works on whole collections."""

    _info: tuple[str, int]
    _readers: Readers
    _writer: Writer

    @abstractmethod
    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read on a snapshot of what is committed now."""

    @abstractmethod
    async def _publish(self) -> None:
        """Publish what can be published."""

    @abstractmethod
    def _now_ms(self) -> int | None:
        """The time of the storage's own clock, if it has one."""

    async def plan(self, collection: str, query: Query, at: VersionSelector = HEAD) -> list[Split]:
        await self._publish()
        return await self._read(lambda c: splits.plan(c, self._info[0], collection, query, at))

    async def read(self, split: Split) -> AsyncIterator[pa.RecordBatch]:
        if split.storage != self._info[0]:
            raise InvalidArgument(f"The split is of storage {split.storage!r}", field="split")
        part = splits.part_of(split)
        async with self._readers.snapshot() as snapshot:
            found = await snapshot.read(lambda c: splits.batches(c, split.collection, part))
            while (batch := await snapshot.read(lambda _: next(found, None))) is not None:
                yield batch

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> bulk.SqliteBulkWriter:
        """See `Storage.bulk_writer`; a collection that is there keeps its own settings."""
        check_collection_id(info.id, field="id")
        check_app_id(app_id)
        check_author(author)
        if message is not None:
            check_text(message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
        known = await self._known(info.id)
        transaction = Transaction(
            self._info[0], self._writer.counters, app_id, author, self._now_ms(), dated=False
        )
        # It is large: to do it again would cost more than to wait for it.
        entry = Entry(transaction, keeps_place=True)
        loader = bulk.SqliteBulkWriter(self._writer, entry, known or info, known is None)
        try:
            if message is not None:
                await self._writer.step(entry, bulk.message_step(message, draws=exclusive))
            elif exclusive:
                await self._writer.step(entry, lambda t: t.txn)
        except BaseException:
            await loader.abort()
            raise
        return loader

    async def _known(self, name: str) -> CollectionInfo | None:
        def find(connection: sqlite3.Connection) -> CollectionInfo | None:
            try:
                found = collection_of(connection, name)
            except CollectionNotFound:
                return None
            bulk.check_empty(connection, name)
            return found.info

        return await self._read(find)

    async def partitioning(self, collection: str) -> dict[str, int]:
        await self._publish()
        stored = await self._read(lambda c: partitioning.kept(c, collection))
        if stored is not None:
            return stored
        async with self._readers.snapshot() as snapshot:
            computed, found = await partitioning.compute(snapshot, collection)
        if computed is not None:
            await self._writer.task(lambda c: partitioning.keep(c, collection, computed))
        return found
