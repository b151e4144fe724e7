"""A branch: the storage seen through its layers, with writes going to the topmost layer."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from naksha.spi.branches import BranchView
from naksha.spi.storage import Storage
from naksha.sqlite.bulk.staged_storage import StagedStorage
from naksha.sqlite.maintenance import partitioning
from naksha.sqlite.read.layered_storage import OpenFile
from naksha.sqlite.read.layers import Layers, collection_on, levels


class SqliteBranch(BranchView, StagedStorage):
    """The storage on a branch; see `naksha.spi.storage.Storage.on_branch`."""

    def __init__(
        self, file: OpenFile, main: Storage, layers: Layers, scope: Collection[str] | None
    ) -> None:
        super().__init__(file, layers, scope)
        self._main = main

    async def close(self) -> None:
        """Do nothing: the storage is closed by the code that opened it."""

    @property
    def _overlay(self) -> int:
        return self._layers[0].overlay

    async def _byte_size(self, collection: str, txn: int) -> int:
        def size_of(connection: sqlite3.Connection) -> int:
            c = collection_on(connection, self._layers, collection)
            found = levels(connection, self._layers, c, txn)
            return max(partitioning.byte_size(connection, level.collection) for level in found)

        return await self._read(size_of)
