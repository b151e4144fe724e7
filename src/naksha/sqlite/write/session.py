"""Write sessions: one transaction each, whose steps run in the writer thread."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import islice
from typing import TypeVar

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import CollectionNotFound, NotSupported, Retryable
from naksha.model.geo.tiles import VectorTile
from naksha.model.identity.names import check_collection_id
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.query import Query, SortKey
from naksha.model.state import MatchingState, State, WriteOutcome
from naksha.model.statistics import Statistics
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.query.sort_keys import check_matching_query
from naksha.spi.storage import BranchLayer, StatePage, StorageReader, StoredObject
from naksha.spi.support.write_input import (
    Batch,
    CheckedSession,
    TransactionMessage,
    WriteBatch,
    check_stored_object,
)
from naksha.sqlite.connection.readers import ReaderPool
from naksha.sqlite.maintenance import pins
from naksha.sqlite.read import layers, objects, queries
from naksha.sqlite.read.layers import Layers, checked_layers
from naksha.sqlite.read.rows import CollectionRow
from naksha.sqlite.write import collections, overlays, writes
from naksha.sqlite.write.states import stored_geometries_of
from naksha.sqlite.write.transaction import WriteTransaction
from naksha.sqlite.write.writer import QueuedTransaction, WriterThread

T = TypeVar("T")


class SessionReader(ABC):
    """Reader inside a session, through some layers."""

    @property
    @abstractmethod
    def _layers(self) -> Layers: ...

    @property
    @abstractmethod
    def _storage(self) -> StorageIdentity:
        """Id and number of the storage."""

    @abstractmethod
    async def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read on the state that the session sees."""

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        return await self._look(lambda c: queries.collections(c, self._layers, dropped=dropped))

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        return await self._look(
            lambda c: layers.collection_on(c, self._layers, collection, dropped=dropped).info
        )

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> StatePage:
        return await self._look(lambda c: self._request(c, collection, query, at).page())

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        for state in (await self.page(collection, query, at)).states:
            yield state

    async def chunks(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[list[State]]:
        whole = queries.counted(query)
        found = await self._look(
            lambda c: list(islice(self._request(c, collection, whole, at).states(), query.limit))
        )
        if found:
            yield found

    async def matching_states(
        self,
        collection: str,
        query: Query,
        at: VersionSelector = HEAD,
        *,
        sort: Sequence[SortKey] = (),
        after: MatchingState | None = None,
    ) -> list[MatchingState]:
        check_matching_query(query, sort, after)
        plain = queries.uncut(query)
        return await self._look(
            lambda c: self._request(c, collection, plain, at).matching_states(sort, after)
        )

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        counted = queries.counted(query)
        return await self._look(lambda c: self._request(c, collection, counted, at).count())

    async def tile(
        self, collection: str, query: Query, at: VersionSelector, tile: VectorTile
    ) -> bytes:
        plain = queries.uncut(query)
        return await self._look(lambda c: self._request(c, collection, plain, at).tile(tile))

    async def statistics(
        self, collection: str, at: VersionSelector = HEAD, *, fast: bool = False
    ) -> Statistics:
        return await self._look(
            lambda c: self._request(c, collection, Query(), at).statistics(fast=fast)
        )

    def _request(
        self, connection: sqlite3.Connection, collection: str, query: Query, at: VersionSelector
    ) -> queries.CollectionQuery:
        return queries.CollectionQuery(
            connection, self._layers, collection, query, at, pins_head=False
        )

    async def state(self, state_id: str) -> State:
        return await self._look(lambda c: queries.state(c, self._storage, self._layers, state_id))

    async def resolve(self, at: VersionSelector, collection: str | None = None) -> Version:
        return await self._look(lambda c: layers.resolve(c, self._layers, at, collection))

    async def stored_object(self, kind: str, id: str) -> StoredObject | None:
        check_stored_object(kind, id)
        return await self._look(lambda c: objects.find(c, kind, id))

    async def stored_objects(self, kind: str, prefix: str = "") -> list[StoredObject]:
        check_stored_object(kind, prefix or kind)
        return await self._look(lambda c: objects.find_all(c, kind, prefix))


class SqliteSession(SessionReader, CheckedSession):
    """Write session; see `naksha.spi.storage.WriteSession`."""

    def __init__(
        self,
        writer: WriterThread,
        readers: ReaderPool,
        entry: QueuedTransaction,
        storage: StorageIdentity,
        scope: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        self._writer = writer
        self._readers = readers
        self._storage_info = storage
        self._scope = scope
        self._resolved: dict[str, CollectionRow] = {}
        self.entry = entry

    @property
    def is_committed(self) -> bool:
        return self._is_committed

    @property
    def txn(self) -> int | None:
        return self.entry.transaction.logged

    @property
    def _layers(self) -> Layers:
        return self.entry.transaction.layers

    async def load(self, collection: str, work: Callable[[WriteTransaction], T]) -> T:
        """Write many features of a collection in one step.

        Repeating it would cost more than waiting for it, so other writers wait.
        """
        await self.close_gates([collection])
        if self._scope is not None:
            await self._open(collection)
        return await self._step(work)

    async def _step(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run a step in the writer thread; any error ends the session."""
        self.check_usable()
        try:
            return await self._writer.step(self.entry, work)
        except BaseException as error:
            self._break(error)
            raise

    async def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read, on the writer's connection once the session has written something."""
        self.check_usable()
        if self.entry.steps:
            return await self._writer.look(self.entry, work)
        async with self._readers.snapshot() as snapshot:
            return await snapshot.read(work)

    async def close_gates(self, collections: Sequence[str]) -> None:
        """Enter the writer and keep the place; this one gate covers all collections."""
        self.entry.holds_writer = True
        await self._step(lambda _: None)

    def on_branch(self, layers: Sequence[BranchLayer]) -> StorageReader:
        return InSession(self, checked_layers(layers))

    # ---- Collections -------------------------------------------------------------------------

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        check_collection_id(info.id, field="id")
        return await self._on_main(lambda t: collections.create(t, info))

    async def change_collection(self, collection: str, change: CollectionChange) -> CollectionInfo:
        return await self._on_main(lambda t: collections.change(t, collection, change))

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        await self._on_main(lambda t: collections.drop(t, collection, delete_at))

    async def restore_collection(self, collection: str) -> CollectionInfo:
        return await self._on_main(lambda t: collections.restore(t, collection))

    async def _on_main(self, work: Callable[[WriteTransaction], T]) -> T:
        if self.entry.transaction.overlay != MAIN:
            raise NotSupported(
                "Collections cannot be changed on a branch; change them on main", field="collection"
            )
        self._resolved.clear()
        return await self._step(work)

    # ---- Overlays ----------------------------------------------------------------------------

    async def branch_off(self, below: Sequence[BranchLayer]) -> int:
        return await self._step(lambda t: overlays.branch_off(t, below))

    async def new_overlay(self) -> int:
        return await self._step(overlays.new)

    async def freeze_overlay(self, overlay: int) -> None:
        await self._step(lambda t: overlays.freeze(t.connection, overlay))

    async def drop_overlay(self, overlay: int) -> None:
        await self._step(lambda t: overlays.drop(t.connection, overlay))

    # ---- Checked operations ------------------------------------------------------------------

    @property
    def _storage(self) -> StorageIdentity:
        return self._storage_info

    def _reader(self) -> SqliteSession:
        return self

    async def resolve_collection(self, collection: str) -> CollectionInfo:
        found = self._resolved.get(collection)
        if found is None:
            found = await self._look(lambda c: layers.collection_on(c, self._layers, collection))
            self._resolved[collection] = found
        return found.info

    async def _write(
        self, collection: str, batches: Sequence[Batch], *, returning: bool, commit: bool
    ) -> list[list[WriteOutcome]]:
        shapes = [
            stored_geometries_of(b.prepared) if isinstance(b, WriteBatch) else None for b in batches
        ]
        known = self._resolved[collection]

        def write(transaction: WriteTransaction) -> list[WriteOutcome]:
            _check_unchanged(transaction, known)
            return [
                outcome
                for batch, of in zip(batches, shapes, strict=True)
                for outcome in writes.write(transaction, collection, batch, of, returning=returning)
            ]

        outcomes = iter(await self._step(write))
        if commit:
            await self._commit()
        return [list(islice(outcomes, len(batch.ids))) for batch in batches]

    async def _purge(self, collection: str, ids: list[str]) -> list[WriteOutcome]:
        known = self._resolved[collection]

        def purge(transaction: WriteTransaction) -> list[WriteOutcome]:
            _check_unchanged(transaction, known)
            return writes.purge(transaction, collection, ids)

        return await self._step(purge)

    async def _commit(self) -> None:
        try:
            await self.commit()
        except BaseException as error:
            self._break(error)
            raise

    async def commit(self) -> None:
        """Commit what was written, if that has not been done."""
        if self.entry.steps and not self._is_committed:
            await self._add_messages()
            await self._writer.commit(self.entry)
            self._is_committed = True

    async def _before_merge(self, collection: str, ids: list[str]) -> None:
        """Do nothing: instead of a lock, `writes.put` checks that HEAD is still what was merged."""

    async def _message(self, id: str, message: TransactionMessage) -> None:
        def add(transaction: WriteTransaction) -> None:
            transaction.add_message(id, message)
            _ = transaction.txn

        await self._step(add)

    async def _store_object(self, kind: str, id: str, json: str, expected: int | None) -> int:
        return await self._step(lambda t: objects.keep(t.connection, kind, id, json, expected))

    async def _remove_object(self, kind: str, id: str, expected: int | None) -> None:
        await self._step(lambda t: objects.forget(t.connection, kind, id, expected))

    async def _pin(self, name: str, at: Version, collection: str | None, guards: bool) -> None:
        await self._step(
            lambda t: pins.pin(t.connection, t.layers, name, at, collection, guards=guards)
        )

    async def _unpin(self, name: str) -> None:
        await self._step(lambda t: pins.unpin(t.connection, name))


class InSession(SessionReader):
    """Reader of other layers inside a session."""

    def __init__(self, session: SqliteSession, layers: Layers) -> None:
        self._session = session
        self._seen = layers

    @property
    def _layers(self) -> Layers:
        return self._seen

    @property
    def _storage(self) -> StorageIdentity:
        return self._session._storage

    async def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._session._look(work)


def _check_unchanged(transaction: WriteTransaction, known: CollectionRow) -> None:
    """Refuse to write to a collection that was changed or dropped since it was resolved."""
    try:
        now = layers.collection_on(transaction.connection, transaction.layers, known.id)
    except CollectionNotFound as error:
        raise _changed(known.id) from error
    if now.txn != known.txn:
        raise _changed(known.id)


def _changed(collection: str) -> Retryable:
    return Retryable(
        f"The collection {collection!r} was changed since it was read; repeat the transaction",
        collection_id=collection,
    )
