"""A storage as a branch sees it: the same connections and the same versions, read through the
branch's layers and written to in its top overlay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pyarrow as pa

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, NotSupported
from naksha.model.query import Query
from naksha.model.transaction import MAIN, MAIN_LOG, LogFilter, PublicationStatus, Transaction
from naksha.model.version import HEAD, AtTxn, Version, VersionSelector
from naksha.psql import splits, versions
from naksha.psql.layers import Branch, sources_of
from naksha.psql.partitioning import CELLS_AT_ONCE_MAX, sampled_size
from naksha.psql.writing import Writing
from naksha.spi.partitioning import NOWHERE, features_max, partition
from naksha.spi.storage import Layer, Split, Storage

if TYPE_CHECKING:
    from naksha.psql.storage import PsqlStorage


class PsqlBranch(Writing):
    """See `Storage.on_branch`. Replicas are not asked: one that knows a version may still lack the
    tables of an overlay."""

    def __init__(self, main: PsqlStorage, branch: Branch) -> None:
        super().__init__()
        self._main = main
        self._branch = branch
        self._pool = main._pool
        self._info = main._info
        self._sequencer = main._sequencer
        self._clock = main._clock
        self._connect = main._connect

    async def close(self) -> None:
        """The storage stays open."""

    def on_branch(self, layers: Sequence[Layer]) -> Storage:
        return self._main.on_branch(layers)

    # ---- The log and its versions --------------------------------------------------------------

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
        if where.overlays == (MAIN,):
            where = msgspec.structs.replace(where, overlays=(self._branch[0].overlay,))
        return await self._main.transactions(after, limit, where, newest_first=newest_first)

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        await self._publish()
        async with self._connection() as connection:
            version = await versions.resolve(connection, at)
            if collection is not None:
                if await self._info_of(connection, collection, dropped=True) is None:
                    raise CollectionNotFound(
                        f"No collection {collection!r}", collection_id=collection
                    )
                sources = await sources_of(connection, self._branch, collection, version.txn)
                await versions.check_histories(connection, [(s.table, s.at) for s in sources])
            return version

    async def wait_published(self, txn: int, timeout_s: float = 5.0) -> Version | None:
        return await self._main.wait_published(txn, timeout_s)

    async def publication(self) -> PublicationStatus:
        return await self._main.publication()

    async def maintain(self, now_ms: int | None = None) -> None:
        await self._main.maintain(now_ms)

    # ---- Bulk work -----------------------------------------------------------------------------

    async def partitioning(self, collection: str) -> dict[str, int]:
        """Counted anew each time: nothing is kept for a branch."""
        await self.collection(collection)
        version = await self.resolve(HEAD, collection)
        if version.seq_number == 0:
            return {}
        at = AtTxn(version.txn)
        free = asyncio.Semaphore(CELLS_AT_ONCE_MAX)

        async def cell(prefix: str, _: int | None) -> int:
            async with free:
                return await self.count(collection, Query(qrid_prefix=prefix), at)

        async with self._connection() as connection:
            sources = await sources_of(connection, self._branch, collection, version.txn)
            size = max([await sampled_size(connection, source.table) for source in sources])
        found = await partition(cell, features_max(size))
        nowhere = await self.count(collection, Query(), at) - await cell("", None)
        return {NOWHERE: nowhere, **found} if nowhere else found

    async def plan(self, collection: str, query: Query, at: VersionSelector = HEAD) -> list[Split]:
        await self._publish()
        async with self._connection() as connection:
            if await self._info_of(connection, collection) is None:
                raise CollectionNotFound(f"No collection {collection!r}", collection_id=collection)
            version = await versions.resolve(connection, at)
            sources = await sources_of(connection, self._branch, collection, version.txn)
            await versions.check_histories(connection, [(s.table, s.at) for s in sources])
        return splits.plan_layers(self.id, collection, query, version.txn, sources)

    def read(self, split: Split) -> AsyncIterator[pa.RecordBatch]:
        return self._main.read(split)

    async def bulk_writer(
        self,
        info: CollectionInfo,
        app_id: str,
        author: str | None = None,
        *,
        exclusive: bool = False,
        message: str | None = None,
    ) -> NoReturn:
        raise NotSupported(
            "Collections are loaded in bulk on main only", field="layers", collection_id=info.id
        )
