"""A branch: the storage as its layers show it. Features are written to the topmost of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import NotSupported
from naksha.model.query import Query
from naksha.model.transaction import MAIN_LOG, LogFilter, Transaction
from naksha.model.version import HEAD, AtTxn
from naksha.spi.partitioning import NOWHERE, features_max, partition
from naksha.spi.storage import BulkWriter, Layer, Storage
from naksha.sqlite import partitioning
from naksha.sqlite.layers import Layers, collection_on, levels
from naksha.sqlite.views import OpenFile, View


class SqliteBranch(View):
    """See `naksha.spi.storage.Storage.on_branch`."""

    def __init__(self, file: OpenFile, main: Storage, layers: Layers) -> None:
        super().__init__(file, layers)
        self._main = main

    async def close(self) -> None:
        """Nothing to do: the storage is closed by those who opened it."""

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        if where.overlays == MAIN_LOG.overlays:
            where = msgspec.structs.replace(where, overlays=(self._layers[0].overlay,))
        return await super().transactions(after, limit, where, newest_first=newest_first)

    def on_branch(self, layers: Sequence[Layer]) -> Storage:
        return self._main.on_branch(layers)

    async def maintain(self, now_ms: int | None = None) -> None:
        await self._main.maintain(now_ms)

    async def partitioning(self, collection: str) -> dict[str, int]:
        """Counted anew each time: nothing is kept for a branch."""
        version = await self.resolve(HEAD, collection)
        if version.seq_number == 0:
            return {}
        at = AtTxn(version.txn)

        async def count(prefix: str, limit: int | None) -> int:
            return await self.count(collection, Query(qrid_prefix=prefix), at)

        def size_of(connection: sqlite3.Connection) -> int:
            c = collection_on(connection, self._layers, collection)
            found = levels(connection, self._layers, c, version.txn)
            return max(partitioning.byte_size(connection, level.collection) for level in found)

        found = await partition(count, features_max(await self._read(size_of)))
        whole = await self.count(collection, Query(), at)
        nowhere = whole - await count("", None)
        return {NOWHERE: nowhere, **found} if nowhere else found

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> BulkWriter:
        raise NotSupported("Collections are loaded on main only", field="collection")
