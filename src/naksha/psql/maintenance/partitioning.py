"""Optimal partitioning (see `naksha.spi.partitioning`): counting of cells, and storage.

Cells are counted through the index on qrid, by tasks with a connection each. All of them read at
the same published version, so the result depends neither on the server or snapshot nor on
concurrent writes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Expired, Retryable
from naksha.model.identity.names import collection_not_found
from naksha.model.version import HEAD, AtTxn
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import translated
from naksha.psql.read import versions
from naksha.psql.sql import ident, queries, sql
from naksha.spi.partitioning import (
    FEATURE_ID,
    NOWHERE,
    SAMPLE_FEATURES_MAX,
    Partitioning,
    decode_partitioning,
    features_max,
    partition,
)

CELLS_AT_ONCE_MAX: Final = 4
"""Connections used at once: one for each child of a cell, and a quarter of the pool."""
_ATTEMPTS_MAX: Final = 5
"""Attempts for a collection without history, where a write expires the version being read."""
_log = logging.getLogger(__name__)

Source: TypeAlias = Callable[[int], AbstractAsyncContextManager[Connection]]
"""Factory of connections to a server that should know the given version."""


class CellReader:
    """Counter of the cells of a collection at one version, a few at a time, over all servers."""

    def __init__(self, collection: str, txn: int, sources: Sequence[Source]) -> None:
        self._tables = {"head": ident(collection), "hst": ident(collection + "_hst")}
        self._txn = txn
        self._primary = sources[0]
        # With replicas, the primary is left to the writers.
        self._turn = itertools.cycle(sources[1:] or sources)
        self._free = asyncio.Semaphore(CELLS_AT_ONCE_MAX * max(1, len(sources) - 1))

    async def cell(self, prefix: str, limit: int | None) -> int:
        """Count the features of a cell; see `CellCount`."""
        # The greatest digit is 3, so the prefix followed by 4 is above everything with the
        # prefix.
        return await self._read("partition_cell", prefix, prefix + "4", self._txn, limit)

    async def nowhere(self) -> int:
        """Count the features without geometry."""
        return await self._read("partition_nowhere", self._txn)

    async def _read(self, query: str, *values: str | int | None) -> int:
        async with self._free:
            source = next(self._turn)
            try:
                number = await self._count(source, query, *values)
            except Retryable as error:  # unreachable, or a conflict with its replay
                if source is self._primary:
                    raise
                _log.warning("Could not count cells on a replica; using the primary: %s", error)
                number = None
            if number is None:
                number = await self._count(self._primary, query, *values)
        if number is None:
            raise Expired(
                "The version whose partitioning is computed was removed from the transaction "
                "log; compute it for a later version"
            )
        return number

    async def _count(self, source: Source, query: str, *values: str | int | None) -> int | None:
        """Run a counting query; return None if the server does not know the version."""
        with translated():
            async with source(self._txn) as connection, connection.transaction(readonly=True):
                await connection.fetchval(queries()["partition_plan"])
                row = await connection.fetchrow(sql(query, **self._tables), *values)
        assert row is not None
        return row["n"] if row["known"] else None


class PartitioningStore:
    """The stored partitionings of a storage's collections, computed when missing or outdated."""

    def __init__(
        self,
        primary: Source,
        publish: Callable[[], Awaitable[object]],
        replicas: Sequence[Source] = (),
    ) -> None:
        self._primary = primary
        self._publish = publish
        self._sources = (primary, *replicas)

    async def of(self, collection: str) -> dict[str, int]:
        """Return the partitioning of the last published version."""
        await self._publish()
        stored = await self.stored(collection)
        return stored if stored is not None else await self.refresh(collection)

    async def stored(self, collection: str) -> dict[str, int] | None:
        """Return the stored partitioning, or None if the collection was written to since."""
        with translated():
            async with self._primary(0) as connection:
                await _info(connection, collection)
                meta = sql("meta_get", meta=ident(collection + "_meta"))
                text = await connection.fetchval(meta, FEATURE_ID)
                written = await connection.fetchrow(queries()["partition_last_write"], collection)
        assert written is not None
        kept = decode_partitioning(text)
        if kept is None or int(kept.txn) < max(written["txn"], written["first_txn"]):
            return None
        return kept.by_qrid

    async def refresh(self, collection: str) -> dict[str, int]:
        """Compute the partitioning and store it."""
        for attempt in range(_ATTEMPTS_MAX):
            await self._publish()
            try:
                return await self._compute(collection)
            except Expired:
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise
        raise AssertionError("unreachable")

    async def _compute(self, collection: str) -> dict[str, int]:
        with translated():
            async with self._primary(0) as connection:
                info = await _info(connection, collection)
                version = await versions.resolve(connection, HEAD)
                size = await _byte_size(connection, info)
        if version.seq_number == 0:
            return {}
        most = features_max(size)
        reader = CellReader(collection, version.txn, self._sources)
        found = await partition(reader.cell, most)
        nowhere = await reader.nowhere()
        if nowhere:
            found = {NOWHERE: nowhere, **found}
        await self.keep(collection, Partitioning.of(found, version, most, size))
        return found

    async def feature_size(self, collection: str) -> int:
        """Return the size of a feature; see `Storage.feature_size`."""
        with translated():
            async with self._primary(0) as connection:
                return await _byte_size(connection, await _info(connection, collection))

    async def keep(self, collection: str, kept: Partitioning) -> None:
        """Store a partitioning; see `Storage.store_partitioning`.

        A partitioning of a later version is not replaced.
        """
        with translated():
            async with self._primary(0) as connection:
                # If the version still exists now, it existed during the whole count.
                await versions.resolve(connection, AtTxn(int(kept.txn)), collection)
                text = kept.encoded()
                await connection.execute(queries()["meta_put"], collection, FEATURE_ID, text)


async def _info(connection: Connection, collection: str) -> CollectionInfo:
    text = await connection.fetchval(queries()["collection"], collection, False, limits.INT8_MAX)
    if text is None:
        raise collection_not_found(collection)
    return msgspec.json.decode(text, type=CollectionInfo)


async def _byte_size(connection: Connection, info: CollectionInfo) -> int:
    return info.byte_size if info.byte_size > 0 else await sampled_size(connection, info.id)


async def sampled_size(connection: Connection, table: str) -> int:
    """Return the size of the largest feature in a sample of a table."""
    text = sql("partition_byte_size", head=ident(table))
    size: int = await connection.fetchval(text, SAMPLE_FEATURES_MAX)
    return size
