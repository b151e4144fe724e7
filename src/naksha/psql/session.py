"""A write session: one transaction on one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.features import PreparedFeatures, check_features
from naksha.model.json_rules import json_problem
from naksha.model.names import check_collection_id, check_feature_id, check_text
from naksha.model.state import Outcome, State
from naksha.model.write_checks import check_points, lock_of
from naksha.psql.batch import Batch
from naksha.psql.driver import Connection
from naksha.psql.errors import translated
from naksha.psql.reader import PsqlReader
from naksha.psql.sql import queries
from naksha.spi.merging import merge_into_head
from naksha.spi.storage import Feature

_INFO: Final = msgspec.json.Decoder(CollectionInfo)


class PsqlSession(PsqlReader):
    """See `naksha.spi.storage.WriteSession`."""

    def __init__(self, connection: Connection, storage: tuple[str, int]) -> None:
        super().__init__()
        self._own = connection
        self._storage_info = storage
        self._txn: int | None = None
        self._broken: Exception | None = None
        self.collections_written: set[str] = set()
        self.is_committing = False

    @property
    def txn(self) -> int | None:
        return self._txn

    @property
    def _storage(self) -> tuple[str, int]:
        return self._storage_info

    @property
    def _pins_head(self) -> bool:
        return False

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        self.check_usable()
        with translated():
            yield self._own

    async def _publish(self) -> None:
        """Inside a transaction versions are read as they are."""

    def check_usable(self) -> None:
        if self._broken is not None:
            raise InvalidArgument(
                "The session failed earlier and can only be left", field="session"
            ) from self._broken

    async def _call(self, name: str, collection: str | None, *values: Any) -> list[Any]:
        """Run one of the schema's functions; whatever goes wrong ends the session."""
        self.check_usable()
        if collection is not None:
            self.collections_written.add(collection)
        try:
            with translated():
                rows = await self._own.fetch(queries()[name], *values)
                if self._txn is None:
                    self._txn = await self._own.fetchval(queries()["tx_number"])
        except BaseException as error:
            self._broken = error if isinstance(error, Exception) else RuntimeError("cancelled")
            raise
        return list(rows)

    async def create_collection(self, info: CollectionInfo) -> CollectionInfo:
        check_collection_id(info.id, field="id")
        settings = msgspec.json.encode(info).decode()
        rows = await self._call("collection_create", None, info.id, settings)
        return _INFO.decode(rows[0][0])

    async def change_collection(self, collection: str, change: CollectionChange) -> CollectionInfo:
        settings = msgspec.json.encode(change).decode()
        rows = await self._call("collection_change", collection, collection, settings)
        return _INFO.decode(rows[0][0])

    async def drop_collection(self, collection: str, delete_at: int | None = None) -> None:
        await self._call("collection_drop", collection, collection, delete_at)

    async def restore_collection(self, collection: str) -> CollectionInfo:
        rows = await self._call("collection_restore", collection, collection)
        return _INFO.decode(rows[0][0])

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
        plain = _ids(ids, info.id_prefix)
        cut = info.id_prefix or ""
        given = {
            i.removeprefix(cut): uuid
            for i, uuid in zip(ids, uuids or (), strict=False)
            if uuid is not None
        }
        locks = [self._lock_of(given.get(i), info) for i in plain]
        batch = Batch.of(plain)
        rows = await self._call(
            "delete",
            collection,
            collection,
            batch.counts,
            batch.pick(plain),
            batch.pick(locks),
            returning,
        )
        return _outcomes(rows, plain)

    async def restore(
        self, collection: str, ids: Sequence[str], *, returning: bool = False
    ) -> list[Outcome]:
        return await self._by_ids("restore", collection, ids, returning)

    async def purge(self, collection: str, ids: Sequence[str]) -> list[Outcome]:
        return await self._by_ids("purge", collection, ids)

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
        attachment = None if json is None else msgspec.json.encode(json).decode()
        if attachment is not None:
            check_text(attachment, limits.MESSAGE_JSON_BYTES_MAX, field="message.json")
        if binary is not None and len(binary) > limits.MESSAGE_BINARY_BYTES_MAX:
            raise LimitExceeded("The attachment is too large", field="message.binary")
        await self._call("tx_message", None, id, text, attachment, binary)

    async def _by_ids(
        self, name: str, collection: str, ids: Sequence[str], *values: Any
    ) -> list[Outcome]:
        info = await self.collection(collection)
        plain = _ids(ids, info.id_prefix)
        batch = Batch.of(plain)
        columns = (batch.counts, batch.pick(plain))
        rows = await self._call(name, collection, collection, *columns, *values)
        return _outcomes(rows, plain)

    async def _put(
        self,
        collection: str,
        mode: str,
        features: Sequence[Feature],
        merge: bool,
        returning: bool,
    ) -> list[Outcome]:
        info = await self.collection(collection)
        prepared = check_features(features, id_prefix=info.id_prefix, generate_ids=mode != "update")
        check_points(prepared, info)
        locks = [self._lock_of(uuid, info) for uuid in prepared.lock_uuid]
        muuids: list[str | None] = [None] * len(prepared)
        if merge and any(lock is not None for lock in locks):
            prepared, locks, muuids = await self._merged(info, features, prepared, locks)
        batch = Batch.of(prepared.ids)
        columns = Batch.columns(prepared, locks, muuids)
        rows = await self._call(
            "put",
            collection,
            collection,
            mode,
            batch.counts,
            *(batch.pick(column) for column in columns),
            returning,
        )
        return _outcomes(rows, prepared.ids)

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
        batch = Batch.of(prepared.ids)
        await self._call("lock_rows", info.id, info.id, batch.pick(prepared.ids), batch.counts)
        locked = [f for f, lock in zip(chosen, locks, strict=True) if lock is not None]
        merges = await merge_into_head(self, info.id, locked)
        merged = check_features(
            [
                merges[i].feature if i in merges else f
                for i, f in zip(prepared.ids, chosen, strict=True)
            ]
        )
        check_points(merged, info)
        heads = {id_: self._lock_of(merge.head.uuid, info) for id_, merge in merges.items()}
        return (
            merged,
            [heads.get(i, lock) for i, lock in zip(prepared.ids, locks, strict=True)],
            [merges[i].base_uuid if i in merges else None for i in prepared.ids],
        )

    def _lock_of(self, state_id: str | None, info: CollectionInfo) -> int | None:
        return lock_of(state_id, self._storage, info)


def _ids(ids: Sequence[str], prefix: str | None) -> list[str]:
    """Checked ids without the collection's prefix; each once, in the order of their last place."""
    if len(ids) > limits.IDS_MAX:
        raise LimitExceeded(f"{len(ids)} ids at once, more than {limits.IDS_MAX}", field="ids")
    plain = [check_feature_id(i).removeprefix(prefix or "") for i in ids]
    return list(dict.fromkeys(plain))


def _outcomes(rows: Sequence[Any], ids: Sequence[str]) -> list[Outcome]:
    """Outcomes in the order of the input."""
    by_id = {
        row["id"]: Outcome(
            row["id"],
            row["action"],
            row["uuid"],
            row["version"],
            None if row["feature"] is None else State(row["id"], row["feature"]),
        )
        for row in rows
    }
    return [by_id[i] for i in ids]
