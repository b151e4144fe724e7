"""A write session: one transaction, whose steps are done by the writer's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.names import check_collection_id
from naksha.model.query import Query
from naksha.model.state import Outcome, State
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.sessions import CheckedSession, Locks, Mode, WriteBatch
from naksha.spi.storage import Page
from naksha.sqlite import collections, reading, writes
from naksha.sqlite.readers import Readers
from naksha.sqlite.rows import Collection, collection_of
from naksha.sqlite.sql import queries
from naksha.sqlite.states import shapes_of
from naksha.sqlite.transaction import Message, Transaction
from naksha.sqlite.writer import Entry, Writer

T = TypeVar("T")


class SqliteSession(CheckedSession):
    """See `naksha.spi.storage.WriteSession`."""

    def __init__(
        self, writer: Writer, readers: Readers, entry: Entry, storage: tuple[str, int]
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._storage_info = storage
        self.entry = entry

    @property
    def txn(self) -> int | None:
        return self.entry.transaction.logged

    async def _step(self, work: Callable[[Transaction], T]) -> T:
        """Do something; whatever goes wrong ends the session."""
        self.check_usable()
        try:
            return await self._writer.step(self.entry, work)
        except BaseException as error:
            self._break(error)
            raise

    async def _look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read; what the session itself wrote can only be seen where it was written."""
        self.check_usable()
        if self.entry.steps:
            return await self._writer.look(self.entry, work)
        async with self._readers.snapshot() as snapshot:
            return await snapshot.read(work)

    # ---- Reading -----------------------------------------------------------------------------

    async def collections(self, *, dropped: bool = False) -> list[CollectionInfo]:
        return await self._look(partial(list_collections, dropped=dropped))

    async def collection(self, collection: str, *, dropped: bool = False) -> CollectionInfo:
        return await self._look(lambda c: collection_of(c, collection, dropped=dropped).info)

    async def page(self, collection: str, query: Query, at: VersionSelector = HEAD) -> Page:
        return await self._look(
            lambda c: reading.Request(c, collection, query, at, pins_head=False).page()
        )

    async def states(
        self, collection: str, query: Query, at: VersionSelector = HEAD
    ) -> AsyncIterator[State]:
        for state in (await self.page(collection, query, at)).states:
            yield state

    async def count(self, collection: str, query: Query, at: VersionSelector = HEAD) -> int:
        return await self._look(
            lambda c: reading.Request(
                c, collection, reading.counted(query), at, pins_head=False
            ).count()
        )

    async def state(self, state_id: str) -> State:
        return await self._look(lambda c: reading.state(c, self._storage, state_id))

    # ---- Collections -------------------------------------------------------------------------

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        check_collection_id(info.id, field="id")
        return await self._step(lambda t: collections.create(t, info))

    async def change_collection(self, collection: str, change: CollectionChange) -> CollectionInfo:
        return await self._step(lambda t: collections.change(t, collection, change))

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        await self._step(lambda t: collections.drop(t, collection, delete_at))

    async def restore_collection(self, collection: str) -> CollectionInfo:
        return await self._step(lambda t: collections.restore(t, collection))

    # ---- What was found to be right ----------------------------------------------------------

    @property
    def _storage(self) -> tuple[str, int]:
        return self._storage_info

    def _reader(self) -> SqliteSession:
        return self

    async def _info(self, collection: str) -> CollectionInfo:
        return await self.collection(collection)

    async def _write(
        self, collection: str, mode: Mode, batch: WriteBatch, returning: bool
    ) -> list[Outcome]:
        shapes = shapes_of(batch.prepared)
        return await self._step(
            lambda t: writes.put(t, collection, mode, batch, shapes, want=returning)
        )

    async def _delete(
        self, collection: str, ids: list[str], locks: Locks, returning: bool
    ) -> list[Outcome]:
        return await self._step(lambda t: writes.delete(t, collection, ids, locks, returning))

    async def _restore(self, collection: str, ids: list[str], returning: bool) -> list[Outcome]:
        return await self._step(lambda t: writes.restore(t, collection, ids, returning))

    async def _purge(self, collection: str, ids: list[str]) -> list[Outcome]:
        return await self._step(lambda t: writes.purge(t, collection, ids))

    async def _before_merge(self, collection: str, ids: list[str]) -> None:
        """Nothing to lock: `writes.put` looks whether HEAD is still what was merged."""

    async def _message(
        self, id: str, text: str | None, attachment: str | None, binary: bytes | None
    ) -> None:
        def add(transaction: Transaction) -> None:
            transaction.add_message(id, Message(text, attachment, binary))
            _ = transaction.txn

        await self._step(add)


def list_collections(connection: sqlite3.Connection, *, dropped: bool) -> list[CollectionInfo]:
    """See `Reader.collections`."""
    rows = connection.execute(queries()["collections"], (dropped,))
    return [Collection(*row).info for row in rows]
