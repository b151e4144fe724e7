"""The storage's bulk work on main: the bulk writer, and optimal partitioning."""

from __future__ import annotations

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.names import check_app_id, check_author, check_collection_id, check_text
from naksha.sqlite import bulk, partitioning
from naksha.sqlite.staged_storage import StagedStorage
from naksha.sqlite.transaction import Transaction
from naksha.sqlite.writer import Entry


class BulkStorage(StagedStorage):
    """The part of `SqliteStorage` that works on whole collections of main."""

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
        known = await self._read(lambda c: bulk.known_empty(c, info.id))
        transaction = Transaction(
            self.id, self._writer.counters, app_id, author, self._now_ms(), dated=False
        )
        entry = Entry(transaction)
        loader = bulk.SqliteBulkWriter(self._file.info, self._writer, entry, info, known)
        try:
            if message is not None:
                await self._writer.step(entry, bulk.message_step(message, draws=exclusive))
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
            await self._writer.task(lambda c: partitioning.keep(c, collection, computed))
        return found
