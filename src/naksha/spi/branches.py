"""Base class for branch views: operations that are delegated to the storage itself."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import pyarrow as pa

from naksha.model.errors import NotSupported
from naksha.model.query import Bbox, Query
from naksha.model.transaction import MAIN, MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import HEAD, AtTxn, Version, VersionSelector
from naksha.spi.maintenance import StorageRound
from naksha.spi.partitioning import NOWHERE, Partitioning, features_max, partition
from naksha.spi.storage import BranchLayer, Mismatch, Split, Storage
from naksha.spi.tile_cells import CellLog

CELLS_AT_ONCE_MAX: Final = 4
"""Cells of a partitioning that are counted concurrently."""


class BranchView(ABC):
    """Mixin that must precede the class that reads and writes through the layers."""

    _main: Storage

    @property
    @abstractmethod
    def _overlay(self) -> int:
        """Number of the overlay that is written to."""

    @abstractmethod
    async def _byte_size(self, collection: str, txn: int) -> int:
        """Return the approximate size of the collection's largest features at a transaction."""

    if TYPE_CHECKING:
        # Provided by the class that reads.
        async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int: ...

        async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version: ...

    def on_branch(
        self, layers: Sequence[BranchLayer], collections: Collection[str] | None = None
    ) -> Storage:
        return self._main.on_branch(layers, collections)

    async def transaction(self, txn: int | str) -> Transaction:
        return await self._main.transaction(txn)

    async def transactions(
        self,
        after: int = 0,
        limit: int = 1000,
        where: LogFilter = MAIN_LOG,
        *,
        newest_first: bool = False,
    ) -> list[Transaction]:
        if where.overlays == MAIN_LOG.overlays:
            where = msgspec.structs.replace(where, overlays=(self._overlay,))
        return await self._main.transactions(after, limit, where, newest_first=newest_first)

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        return await self._main.wait_published(txn, timeout_s)

    async def wait_beyond(self, seq_number: int, timeout_s: float) -> int:
        return await self._main.wait_beyond(seq_number, timeout_s)

    async def publication(self) -> PublicationStatus:
        return await self._main.publication()

    async def cell_log(self, after_txn: int) -> CellLog:
        return await self._main.cell_log(after_txn)

    async def last_cell_change(self, collection: str, box: Bbox, *, overlay: int = MAIN) -> int:
        return await self._main.last_cell_change(collection, box, overlay=overlay)

    async def maintain(
        self, now_ms: int | None = None, *, record: StorageRound | None = None
    ) -> None:
        await self._main.maintain(now_ms, record=record)

    async def refresh_partitionings(self) -> list[str]:
        return await self._main.refresh_partitionings()

    async def expire(self, collection: str, before: date) -> None:
        raise NotSupported(
            f"The history of collection {collection!r} cannot be expired on a branch; "
            "expire it on main",
            collection_id=collection,
        )

    async def partitioning(self, collection: str) -> dict[str, int]:
        """Count on every call: partitionings of branches are not stored."""
        version = await self.resolve(HEAD, collection)
        if version.seq_number == 0:
            return {}
        at = AtTxn(version.txn)
        free = asyncio.Semaphore(CELLS_AT_ONCE_MAX)

        async def count(prefix: str, _: int | None) -> int:
            async with free:
                return await self.count(collection, Query(qrid_prefix=prefix), at)

        found = await partition(count, features_max(await self._byte_size(collection, version.txn)))
        nowhere = await self.count(collection, Query(), at) - await count("", None)
        return {NOWHERE: nowhere, **found} if nowhere else found

    async def feature_size(self, collection: str) -> int:
        version = await self.resolve(HEAD, collection)
        return await self._byte_size(collection, version.txn)

    async def mismatches(self, collection: str, limit: int) -> list[Mismatch]:
        """Report mismatches of main and all branches."""
        return await self._main.mismatches(collection, limit)

    async def meta(self, collection: str, id: str) -> dict[str, Any] | None:
        """Return a meta feature; they belong to the collection, independently of branches."""
        return await self._main.meta(collection, id)

    async def all_meta(self, collection: str) -> list[dict[str, Any]]:
        return await self._main.all_meta(collection)

    async def put_meta(self, collection: str, feature: Mapping[str, Any]) -> None:
        await self._main.put_meta(collection, feature)

    async def remove_meta(self, collection: str, id: str) -> bool:
        return await self._main.remove_meta(collection, id)

    async def store_partitioning(self, collection: str, found: Partitioning) -> NoReturn:
        raise NotSupported(
            f"The partitioning of collection {collection!r} cannot be stored on a branch; "
            "store it on main",
            field="layers",
            collection_id=collection,
        )

    def read(
        self, split: Split, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Read on main: the split itself contains the layers."""
        return self._main.read(split, columns)
