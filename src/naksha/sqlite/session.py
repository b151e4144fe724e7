"""A write session: one transaction, whose steps are done by the writer's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.features import PreparedFeatures, check_features
from naksha.model.json_rules import json_problem
from naksha.model.names import check_collection_id, check_feature_id, check_text
from naksha.model.query import Query
from naksha.model.state import Outcome, State
from naksha.model.version import HEAD, VersionSelector
from naksha.model.write_checks import check_points, lock_of
from naksha.spi.merging import merge_into_head
from naksha.spi.storage import Feature, Page
from naksha.sqlite import collections, reading, writes
from naksha.sqlite.readers import Readers
from naksha.sqlite.rows import Collection, collection_of
from naksha.sqlite.sql import queries
from naksha.sqlite.states import shapes_of
from naksha.sqlite.transaction import Message, Transaction, encoded
from naksha.sqlite.writer import Entry, Writer

T = TypeVar("T")


class SqliteSession:
    """See `naksha.spi.storage.WriteSession`."""

    def __init__(
        self, writer: Writer, readers: Readers, entry: Entry, storage: tuple[str, int]
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._storage = storage
        self._broken: Exception | None = None
        self.entry = entry

    @property
    def txn(self) -> int | None:
        return self.entry.transaction.logged

    def check_usable(self) -> None:
        if self._broken is not None:
            raise InvalidArgument(
                "The session failed earlier and can only be left", field="session"
            ) from self._broken

    async def _step(self, work: Callable[[Transaction], T]) -> T:
        """Do something; whatever goes wrong ends the session."""
        self.check_usable()
        try:
            return await self._writer.step(self.entry, work)
        except BaseException as error:
            self._broken = error if isinstance(error, Exception) else RuntimeError("cancelled")
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

    # ---- Features ----------------------------------------------------------------------------

    async def create(
        self, collection: str, features: Sequence[Feature], *, returning: bool = False
    ) -> list[Outcome]:
        return await self._put(collection, "create", features, False, returning)

    async def update(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        returning: bool = False,
    ) -> list[Outcome]:
        return await self._put(collection, "update", features, merge, returning)

    async def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        returning: bool = False,
    ) -> list[Outcome]:
        return await self._put(collection, "upsert", features, merge, returning)

    async def delete(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        uuids: Sequence[str | None] | None = None,
        returning: bool = False,
    ) -> list[Outcome]:
        info = await self.collection(collection)
        if uuids is not None and len(uuids) != len(ids):
            raise InvalidArgument("One uuid (or None) for each id is needed", field="uuids")
        plain = plain_ids(ids, info.id_prefix)
        cut = info.id_prefix or ""
        given = {
            i.removeprefix(cut): uuid
            for i, uuid in zip(ids, uuids or (), strict=False)
            if uuid is not None
        }
        locks = [lock_of(given.get(i), self._storage, info) for i in plain]
        return await self._step(lambda t: writes.delete(t, collection, plain, locks, returning))

    async def restore(
        self, collection: str, ids: Sequence[str], *, returning: bool = False
    ) -> list[Outcome]:
        plain = plain_ids(ids, (await self.collection(collection)).id_prefix)
        return await self._step(lambda t: writes.restore(t, collection, plain, returning))

    async def purge(self, collection: str, ids: Sequence[str]) -> list[Outcome]:
        plain = plain_ids(ids, (await self.collection(collection)).id_prefix)
        return await self._step(lambda t: writes.purge(t, collection, plain))

    async def message(
        self,
        id: str,
        text: str | None = None,
        *,
        json: Any = None,
        binary: bytes | None = None,
    ) -> None:
        check_text(id, limits.MESSAGE_ID_BYTES_MAX, field="message.id")
        if text is not None:
            check_text(text, limits.MESSAGE_TEXT_BYTES_MAX, field="message.text")
        problem = json_problem(json)
        if problem is not None:
            raise InvalidArgument(problem.message, field=f"message.json{problem.path}")
        attachment = encoded(json)
        if attachment is not None:
            check_text(attachment, limits.MESSAGE_JSON_BYTES_MAX, field="message.json")
        if binary is not None and len(binary) > limits.MESSAGE_BINARY_BYTES_MAX:
            raise LimitExceeded("The attachment is too large", field="message.binary")

        def add(transaction: Transaction) -> None:
            transaction.add_message(id, Message(text, attachment, binary))
            _ = transaction.txn

        await self._step(add)

    async def _put(
        self,
        collection: str,
        mode: writes.Mode,
        features: Sequence[Feature],
        merge: bool,
        returning: bool,
    ) -> list[Outcome]:
        info = await self.collection(collection)
        prepared = check_features(features, id_prefix=info.id_prefix, generate_ids=mode != "update")
        check_points(prepared, info)
        locks = [lock_of(uuid, self._storage, info) for uuid in prepared.lock_uuid]
        muuids: list[str | None] = [None] * len(prepared)
        if merge and any(lock is not None for lock in locks):
            prepared, locks, muuids = await self._merged(info, features, prepared, locks)
        batch = writes.Batch(prepared, shapes_of(prepared), locks, muuids)
        return await self._step(lambda t: writes.put(t, collection, mode, batch, returning))

    async def _merged(
        self,
        info: CollectionInfo,
        features: Sequence[Feature],
        prepared: PreparedFeatures,
        locks: list[int | None],
    ) -> tuple[PreparedFeatures, list[int | None], list[str | None]]:
        """The batch with every feature that is based on an older state merged into HEAD."""
        chosen = [
            {**features[position], "id": id_}
            for position, id_ in zip(prepared.positions, prepared.ids, strict=True)
        ]
        locked = [f for f, lock in zip(chosen, locks, strict=True) if lock is not None]
        merges = await merge_into_head(self, info.id, locked)
        merged = check_features(
            [
                merges[i].feature if i in merges else f
                for i, f in zip(prepared.ids, chosen, strict=True)
            ]
        )
        check_points(merged, info)
        heads = {
            id_: lock_of(merge.head.uuid, self._storage, info) for id_, merge in merges.items()
        }
        return (
            merged,
            [heads.get(i, lock) for i, lock in zip(prepared.ids, locks, strict=True)],
            [merges[i].base_uuid if i in merges else None for i in prepared.ids],
        )


def list_collections(connection: sqlite3.Connection, *, dropped: bool) -> list[CollectionInfo]:
    """See `Reader.collections`."""
    rows = connection.execute(queries()["collections"], (dropped,))
    return [Collection(*row).info for row in rows]


def plain_ids(ids: Sequence[str], prefix: str | None) -> list[str]:
    """Checked ids without the collection's prefix; each once, in the order of their last place."""
    if len(ids) > limits.IDS_MAX:
        raise LimitExceeded(f"{len(ids)} ids at once, more than {limits.IDS_MAX}", field="ids")
    plain = [check_feature_id(i).removeprefix(prefix or "") for i in ids]
    return list(dict.fromkeys(plain))
