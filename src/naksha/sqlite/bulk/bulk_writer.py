"""The bulk writer: stages features in a temporary file, then writes them as one transaction.

Staging does not block other writers.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionExists, Conflict, InvalidArgument, Retryable
from naksha.model.features import PreparedFeatures, check_features
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.limits import RETRY_COUNT_MAX, WRITE_FEATURES_MAX
from naksha.model.write_checks import check_points, check_unlocked
from naksha.spi.changes import PutMode
from naksha.spi.storage import Feature
from naksha.spi.support.write_input import TransactionMessage, WriteBatch
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.sql import queries
from naksha.sqlite.write import collections, writes
from naksha.sqlite.write.states import StoredGeometries, stored_geometries_of
from naksha.sqlite.write.transaction import WriteTransaction
from naksha.sqlite.write.writer import QueuedTransaction, WriterThread

CHUNK: Final = 10_000


class SettingsChanged(Retryable):
    """The collection's settings changed after the features were checked against them."""


class SqliteBulkWriter:
    """Bulk writer into one collection; see `naksha.spi.storage.BulkWriter`.

    `known` is the collection if it already exists.
    """

    def __init__(
        self,
        storage: StorageIdentity,
        writer: WriterThread,
        entry: QueuedTransaction,
        info: CollectionInfo,
        known: CollectionInfo | None,
    ) -> None:
        self._storage = storage
        self._writer = writer
        self._entry = entry
        self._info = known or info
        self._is_new = known is None
        with translated():
            # An anonymous temporary file, which SQLite deletes with the connection.
            self._stage = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._stage.execute(queries()["stage_unsafe"])
            self._stage.execute(queries()["stage_create"])
        self._turn = asyncio.Lock()
        self._is_open = True
        self._failed = False

    async def add(self, features: Iterable[Feature]) -> int:
        self._check_open()
        given = iter(features)
        count = 0
        try:
            while chunk := list(islice(given, CHUNK)):
                count += len(chunk)
                await self._add(chunk)
        except BaseException:
            # It is unknown which of the features are staged.
            self._failed = True
            raise
        return count

    async def _add(self, chunk: list[Feature]) -> None:
        def prepare() -> list[tuple[Any, ...]]:
            prepared = check_features(chunk, id_prefix=self._info.id_prefix, generate_ids=True)
            check_points(prepared, self._info)
            check_unlocked(prepared, self._storage, self._info)
            return list(rows_of(prepared, stored_geometries_of(prepared)))

        rows = await asyncio.to_thread(prepare)
        async with self._turn:
            await asyncio.to_thread(self._keep, rows)

    def _keep(self, rows: list[tuple[Any, ...]]) -> None:
        with translated():
            self._stage.execute(queries()["begin"])
            try:
                self._stage.executemany(queries()["stage_put"], rows)
                self._stage.execute(queries()["commit"])
            except BaseException:
                if self._stage.in_transaction:
                    self._stage.execute(queries()["rollback"])
                raise

    async def commit(self) -> int:
        self._check_open()
        async with self._turn:
            try:
                txn = await self._written()
            except BaseException:
                await asyncio.shield(self._give_up())
                raise
            await self._close()
        return txn

    async def _written(self) -> int:
        # A large transaction: repeating it would cost more than making other writers wait.
        self._entry.holds_writer = True
        for attempt in range(RETRY_COUNT_MAX):
            try:
                txn = await self._writer.step(self._entry, self._load)
                await self._writer.commit(self._entry)
                return txn
            except Retryable as error:
                # The features are still staged, so the transaction can be repeated.
                if isinstance(error, SettingsChanged) or attempt + 1 == RETRY_COUNT_MAX:
                    raise
            await self._writer.rollback(self._entry)
            self._entry = self._again()
        raise AssertionError("unreachable")

    async def abort(self) -> None:
        if self._is_open:
            async with self._turn:
                await self._give_up()

    async def _give_up(self) -> None:
        await self._writer.rollback(self._entry)
        await self._close()

    async def _close(self) -> None:
        self._is_open = False
        await asyncio.to_thread(self._stage.close)

    def _again(self) -> QueuedTransaction:
        """Return a new transaction that replaces one that conflicted with other writers."""
        message = self._entry.transaction.messages
        entry = QueuedTransaction(self._entry.transaction.fresh(), holds_writer=True)
        entry.transaction.messages = dict(message)
        return entry

    def _check_open(self) -> None:
        if not self._is_open or self._failed:
            why = (
                "failed in an earlier call; abort it and open another one"
                if self._failed
                else "was already committed or aborted; open another one"
            )
            raise InvalidArgument(
                f"The bulk writer of collection {self._info.id!r} {why}", field="bulk_writer"
            )

    # ---- In the writer's thread --------------------------------------------------------------

    def _load(self, transaction: WriteTransaction) -> int:
        if self._is_new:
            collections.create(transaction, self._info)
        else:
            self._check_unchanged(transaction.connection)
        for batch, shapes in self._batches():
            writes.put(transaction, self._info.id, batch, shapes, returning=False)
        transaction.changes_of(self._info.id)  # An empty load is logged, too.
        return transaction.txn

    def _check_unchanged(self, connection: sqlite3.Connection) -> None:
        found = empty_collection(connection, self._info.id)
        if found is None or _settings(found) != _settings(self._info):
            raise SettingsChanged(
                f"The settings of collection {self._info.id!r} changed during the load; repeat "
                "the load",
                collection_id=self._info.id,
            )

    def _batches(self) -> Iterator[tuple[WriteBatch, StoredGeometries]]:
        rows = self._stage.execute(queries()["stage_all"])
        while chunk := rows.fetchmany(WRITE_FEATURES_MAX // 4):
            yield batch_of(chunk, "create")


def empty_collection(connection: sqlite3.Connection, name: str) -> CollectionInfo | None:
    """Return the empty collection to load into; None if it does not exist.

    Raises:
        CollectionExists: The collection is dropped but not yet deleted.
        Conflict: The collection has features.
    """
    row = connection.execute(queries()["collection"], (name,)).fetchone()
    if row is None:
        return None
    found = CollectionRow(*row)
    if found.dropped_at:
        raise CollectionExists(
            f"Collection {name!r} is dropped but not yet deleted; restore it, or load it after "
            "maintenance has deleted it",
            collection_id=name,
        )
    if connection.execute(queries()["has_features"], (found.t,)).fetchone()[0]:
        raise Conflict(
            f"Collection {name!r} is not empty; a bulk load needs a new or empty collection",
            collection_id=name,
        )
    return found.info


def _settings(info: CollectionInfo) -> CollectionInfo:
    """Return the collection without its estimates, which maintenance may refresh at any time."""
    return msgspec.structs.replace(info, estimated_feature_count=0, byte_size=0, compressed_size=0)


def rows_of(prepared: PreparedFeatures, shapes: StoredGeometries) -> Iterator[tuple[Any, ...]]:
    """Convert features to rows of a stage."""
    for k, id_ in enumerate(prepared.ids):
        tags = prepared.tags[k]
        yield (
            id_,
            prepared.json[k],
            prepared.wkb[k],
            shapes.geometry[k],
            *(shapes.box[k] or (None,) * 4),
            prepared.qrid[k],
            None if tags is None else msgspec.json.encode(tags),
            prepared.crid[k],
        )


def batch_of(rows: list[tuple[Any, ...]], mode: PutMode) -> tuple[WriteBatch, StoredGeometries]:
    """Convert rows of a stage to features to write."""
    count = len(rows)
    ids, json, wkb, geometry, west, south, east, north, qrid, tags, crid = map(
        list, zip(*rows, strict=True)
    )
    boxes = [
        None if w is None else (w, s, e, n)
        for w, s, e, n in zip(west, south, east, north, strict=True)
    ]
    prepared = PreparedFeatures(
        positions=list(range(count)),
        ids=ids,
        json=json,
        wkb=wkb,
        has_z=[False] * count,
        qrid=qrid,
        tags=[None if each is None else msgspec.json.decode(each) for each in tags],
        crid=crid,
        lock_uuid=[None] * count,
        lock_version=[None] * count,
        values=[None] * count,
    )
    nothing = [None] * count
    return WriteBatch(mode, prepared, [*nothing], [*nothing]), StoredGeometries(geometry, boxes)


def message_step(text: str, *, draws: bool) -> Callable[[WriteTransaction], object]:
    """Return a step that adds the message of a load; with `draws` it also draws the txn."""

    def add(transaction: WriteTransaction) -> None:
        transaction.add_message("load", TransactionMessage(text, None, None))
        if draws:
            _ = transaction.txn

    return add
