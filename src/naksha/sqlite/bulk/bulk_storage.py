"""Bulk operations of the storage on main: the bulk writer and optimal partitioning."""

from __future__ import annotations

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.identity.names import check_app_id, check_author, check_collection_id, check_text
from naksha.spi.partitioning import Partitioning
from naksha.sqlite.bulk.bulk_writer import SqliteBulkWriter, empty_collection, message_step
from naksha.sqlite.bulk.staged_storage import StagedStorage
from naksha.sqlite.maintenance import partitioning
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.write.transaction import WriteTransaction
from naksha.sqlite.write.writer import QueuedTransaction


class BulkStorage(StagedStorage):
    """Base of `SqliteStorage` with the operations on whole collections of main."""

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> SqliteBulkWriter:
        """See `Storage.bulk_writer`; an existing collection keeps its own settings."""
        check_collection_id(info.id, field="id")
        check_app_id(app_id)
        check_author(author)
        if message is not None:
            check_text(message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
        known = await self._read(lambda c: empty_collection(c, info.id))
        transaction = WriteTransaction(
            self.id, self._writer.counters, app_id, author, self._now_ms(), dated=False
        )
        entry = QueuedTransaction(transaction)
        loader = SqliteBulkWriter(self._file.info, self._writer, entry, info, known)
        try:
            if message is not None:
                await self._writer.step(entry, message_step(message, draws=exclusive))
            elif exclusive:
                await self._writer.step(entry, lambda t: t.txn)
        except BaseException:
            await loader.abort()
            raise
        return loader

    async def partitioning(self, collection: str) -> dict[str, int]:
        await self._publish()
        stored = await self._read(lambda c: partitioning.kept(c, collection))
        if stored is not None:
            return stored
        async with self._readers.snapshot() as snapshot:
            computed, found = await partitioning.compute(snapshot, collection)
        if computed is not None:
            await self.store_partitioning(collection, computed)
        return found

    async def feature_size(self, collection: str) -> int:
        return await self._read(lambda c: partitioning.byte_size(c, collection_of(c, collection)))

    async def store_partitioning(self, collection: str, found: Partitioning) -> None:
        await self._writer.task(lambda c: partitioning.keep(c, collection, found))
