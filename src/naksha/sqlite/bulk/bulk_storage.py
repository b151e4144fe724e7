"""Bulk operations of the storage on main: optimal partitioning."""

from __future__ import annotations

from naksha.spi.partitioning import Partitioning
from naksha.sqlite.bulk.staged_storage import StagedStorage
from naksha.sqlite.maintenance import partitioning
from naksha.sqlite.read.rows import collection_of


class BulkStorage(StagedStorage):
    """Base of `SqliteStorage` with the operations on whole collections of main."""

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
