"""Input side of write sessions, shared by all storages: checks, id prefixes, locks and merges.

A storage implements how the checked features are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, LimitExceeded, NotSupported
from naksha.model.features import PreparedFeatures, check_features
from naksha.model.identity.names import check_feature_id, check_text
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.json_rules import json_problem
from naksha.model.state import WriteOutcome
from naksha.model.version import Version
from naksha.model.write_checks import check_points, lock_of
from naksha.spi.changes import Change, Delete, Put, PutMode, Restore
from naksha.spi.storage import Feature, StoredObject
from naksha.spi.support.write_merge import StateReader, merge_into_head

Locks: TypeAlias = list[int | None]
"""State numbers (`i`) that HEAD must have, one per feature, or None."""


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Checked features to write, with the lock of each and the state it was merged from, if any.

    `is_merged`: they were merged with a very recent HEAD, whose states the locks are.
    """

    mode: PutMode
    prepared: PreparedFeatures
    locks: Locks
    muuids: list[str | None]
    is_merged: bool = False
    after: list[int] | None = None
    """Versions that the features had elsewhere, after which new ones continue."""

    @property
    def ids(self) -> list[str]:
        return self.prepared.ids


@dataclass(frozen=True, slots=True)
class IdBatch:
    """Checked ids of features to delete or restore; `unmask` is a deletion that masks nothing."""

    mode: Literal["delete", "unmask", "restore"]
    ids: list[str]
    locks: Locks


Batch: TypeAlias = WriteBatch | IdBatch


@dataclass(frozen=True, slots=True)
class TransactionMessage:
    """Checked message of a transaction; `json` is encoded."""

    text: str | None
    json: str | None
    binary: bytes | None


class CheckedSession(ABC):
    """Base class of write sessions."""

    _broken: Exception | None = None
    _is_committed = False
    _scope: Collection[str] | None = None
    """The only collections that may be written to; None for all."""

    def __init__(self) -> None:
        self._messages_if_changed: dict[str, TransactionMessage] = {}

    def check_usable(self) -> None:
        """Refuse any call after a failure or the commit; the session can then only be left."""
        self.check_unbroken()
        if self._is_committed:
            raise InvalidArgument(
                "The write session was committed by its last call; open another one",
                field="session",
            )

    def check_unbroken(self) -> None:
        """Refuse to commit after a failure."""
        if self._broken is not None:
            raise InvalidArgument(
                "The write session can only be rolled back, because an earlier call failed: "
                f"{self._broken!s:.200}",
                field="session",
            ) from self._broken

    def _break(self, error: BaseException) -> None:
        """Mark the session as failed, whatever the error."""
        self._broken = error if isinstance(error, Exception) else RuntimeError("cancelled")

    # ---- Implemented by the storage ----------------------------------------------------------

    @property
    @abstractmethod
    def txn(self) -> int | None:
        """See `WriteSession.txn`."""

    @property
    @abstractmethod
    def _storage(self) -> StorageIdentity:
        """Id and number of the storage."""

    @abstractmethod
    def _reader(self) -> StateReader:
        """Return the reader of HEAD and states, as the session sees them."""

    @abstractmethod
    async def resolve_collection(self, collection: str) -> CollectionInfo:
        """See `WriteSession.resolve_collection`."""

    @abstractmethod
    async def _write(
        self, collection: str, batches: Sequence[Batch], *, returning: bool, commit: bool
    ) -> list[list[WriteOutcome]]:
        """Write the batches, whose ids differ, in a resolved collection."""

    @abstractmethod
    async def _purge(self, collection: str, ids: list[str]) -> list[WriteOutcome]: ...

    @abstractmethod
    async def _commit(self) -> None:
        """Commit, and refuse further calls."""

    @abstractmethod
    async def _message(self, id: str, message: TransactionMessage) -> None: ...

    @abstractmethod
    async def _store_object(self, kind: str, id: str, json: str, expected: int | None) -> int:
        """Store an object and return its new revision."""

    @abstractmethod
    async def _remove_object(self, kind: str, id: str, expected: int | None) -> None: ...

    @abstractmethod
    async def _pin(self, name: str, at: Version, collection: str | None, guards: bool) -> None: ...

    @abstractmethod
    async def _unpin(self, name: str) -> None: ...

    @abstractmethod
    async def _before_merge(self, collection: str, ids: list[str]) -> None:
        """Lock HEAD of these features until the merged ones are written."""

    # ---- See `naksha.spi.storage.WriteSession` -----------------------------------------------

    async def apply(
        self,
        collection: str,
        changes: Sequence[Change],
        *,
        returning: bool = False,
        commit: bool = False,
    ) -> list[list[WriteOutcome]]:
        info = await self._open(collection)
        batches = [await self._batch(info, change) for change in changes]
        check_distinct(batches)
        return await self._write(collection, batches, returning=returning, commit=commit)

    async def create(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        lock: bool = True,
        after: Sequence[int] | None = None,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        change = Put("create", features, lock=lock, after=after)
        return (await self.apply(collection, [change], returning=returning, commit=commit))[0]

    async def update(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        lock: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        change = Put("update", features, lock=lock, merge=merge)
        return (await self.apply(collection, [change], returning=returning, commit=commit))[0]

    async def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        muuids: Sequence[str | None] | None = None,
        lock: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        change = Put("upsert", features, lock=lock, merge=merge, muuids=muuids)
        return (await self.apply(collection, [change], returning=returning, commit=commit))[0]

    async def delete(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        uuids: Sequence[str | None] | None = None,
        masks: bool = True,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        change = Delete(ids, uuids, masks)
        return (await self.apply(collection, [change], returning=returning, commit=commit))[0]

    async def restore(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        returning: bool = False,
        commit: bool = False,
    ) -> list[WriteOutcome]:
        change = Restore(ids)
        return (await self.apply(collection, [change], returning=returning, commit=commit))[0]

    async def purge(
        self, collection: str, ids: Sequence[str], *, commit: bool = False
    ) -> list[WriteOutcome]:
        plain = plain_ids(ids, (await self._open(collection)).id_prefix)
        outcomes = await self._purge(collection, plain)
        if commit:
            await self._commit()
        return outcomes

    async def message(
        self,
        id: str,
        text: str | None = None,
        *,
        json: Any = None,
        binary: bytes | None = None,
        if_changed: bool = False,
    ) -> None:
        check_text(id, limits.MESSAGE_ID_BYTES_MAX, field="message.id")
        if text is not None:
            check_text(text, limits.MESSAGE_TEXT_BYTES_MAX, field="message.text")
        attachment = None
        if json is not None:
            attachment = checked_json(json, limits.MESSAGE_JSON_BYTES_MAX, field="message.json")
        if binary is not None and len(binary) > limits.MESSAGE_BINARY_BYTES_MAX:
            raise LimitExceeded(
                f"The binary attachment of message {id!r:.64} has {len(binary)} bytes, but at most "
                f"{limits.MESSAGE_BINARY_BYTES_MAX} are allowed",
                field="message.binary",
            )
        if if_changed:
            self._messages_if_changed[id] = TransactionMessage(text, attachment, binary)
        else:
            await self._message(id, TransactionMessage(text, attachment, binary))

    async def store_object(
        self, kind: str, id: str, value: Any, *, expected: int | None = None
    ) -> StoredObject:
        check_stored_object(kind, id, expected)
        json = checked_json(value, limits.KEPT_JSON_BYTES_MAX, field="value")
        revision = await self._store_object(kind, id, json, expected)
        return StoredObject(kind, id, msgspec.json.decode(json), revision)

    async def remove_object(self, kind: str, id: str, *, expected: int | None = None) -> None:
        check_stored_object(kind, id, expected)
        await self._remove_object(kind, id, expected)

    async def pin(
        self, name: str, at: Version, collection: str | None = None, *, guards: bool = False
    ) -> None:
        check_text(name, limits.PIN_NAME_BYTES_MAX, field="name")
        await self._pin(name, at, collection, guards)

    async def unpin(self, name: str) -> None:
        check_text(name, limits.PIN_NAME_BYTES_MAX, field="name")
        await self._unpin(name)

    async def _add_messages(self) -> None:
        """Add the messages that depend on a change, before the commit."""
        messages, self._messages_if_changed = self._messages_if_changed, {}
        if self.txn is not None:
            for id, message in messages.items():
                await self._message(id, message)

    # ---- Inside ------------------------------------------------------------------------------

    async def _open(self, collection: str) -> CollectionInfo:
        """Return a collection to which features may be written."""
        info = await self.resolve_collection(collection)
        if self._scope is not None and collection not in self._scope:
            raise NotSupported(
                f"Collection {collection!r} is not in the scope of this branch, which is "
                f"{', '.join(sorted(self._scope))}; write to it on main, or on a branch with this "
                "collection in its scope",
                field="collection",
                collection_id=collection,
            )
        return info

    async def _batch(self, info: CollectionInfo, change: Change) -> Batch:
        """Check a change against the collection, and merge where that is asked for."""
        if isinstance(change, Put):
            return await self._put_batch(info, change)
        if isinstance(change, Restore):
            ids = plain_ids(change.ids, info.id_prefix)
            return IdBatch("restore", ids, [None] * len(ids))
        ids = plain_ids(change.ids, info.id_prefix)
        check_uuids(change.uuids, len(change.ids))
        cut = info.id_prefix or ""
        given = {
            i.removeprefix(cut): uuid
            for i, uuid in zip(change.ids, change.uuids or (), strict=False)
            if uuid is not None
        }
        locks = [lock_of(given.get(i), self._storage, info) for i in ids]
        return IdBatch("delete" if change.masks else "unmask", ids, locks)

    async def _put_batch(self, info: CollectionInfo, put: Put) -> WriteBatch:
        if put.muuids is not None:
            check_muuids(put.muuids, len(put.features), put.merge)
        if put.after is not None:
            check_versions(put.after, len(put.features))
        prepared = check_features(
            put.features,
            id_prefix=info.id_prefix,
            generate_ids=put.mode != "update",
            is_json=put.is_json,
        )
        check_points(prepared, info)
        uuids = prepared.lock_uuid if put.lock or put.merge else [None] * len(prepared.ids)
        locks = [lock_of(uuid, self._storage, info) for uuid in uuids]
        merged_from = [put.muuids[at] if put.muuids else None for at in prepared.positions]
        versions = None if put.after is None else [put.after[at] for at in prepared.positions]
        batch = WriteBatch(put.mode, prepared, locks, merged_from, after=versions)
        if put.merge and any(lock is not None for lock in locks):
            return await self._merged(info, put, batch)
        return batch

    async def _merged(self, info: CollectionInfo, put: Put, batch: WriteBatch) -> WriteBatch:
        """Return the batch with features based on an older state merged into HEAD."""
        ids = batch.prepared.ids
        chosen = [
            {**put.features[position], "id": id_}
            for position, id_ in zip(batch.prepared.positions, ids, strict=True)
        ]
        await self._before_merge(info.id, ids)
        locked = [f for f, lock in zip(chosen, batch.locks, strict=True) if lock is not None]
        merges = await merge_into_head(self._reader(), info.id, locked)
        merged = check_features(
            [merges[i].feature if i in merges else f for i, f in zip(ids, chosen, strict=True)],
            is_json=put.is_json,
        )
        check_points(merged, info)
        heads = {i: lock_of(merge.head.uuid, self._storage, info) for i, merge in merges.items()}
        return WriteBatch(
            batch.mode,
            merged,
            [heads.get(i, lock) for i, lock in zip(ids, batch.locks, strict=True)],
            [merges[i].base_uuid if i in merges else None for i in ids],
            is_merged=True,
        )


def plain_ids(ids: Sequence[str], prefix: str | None) -> list[str]:
    """Check ids and remove the collection's prefix; duplicates are removed."""
    if len(ids) > limits.IDS_MAX:
        raise LimitExceeded(
            f"The call has {len(ids)} ids, but at most {limits.IDS_MAX} are allowed; split it",
            field="ids",
        )
    plain = [check_feature_id(i).removeprefix(prefix or "") for i in ids]
    return list(dict.fromkeys(plain))


def check_distinct(batches: Sequence[Batch]) -> None:
    """Refuse changes of one feature by several batches, whose order would be undefined."""
    seen: set[str] = set()
    for batch in batches if len(batches) > 1 else ():
        twice = seen.intersection(batch.ids)
        if twice:
            raise InvalidArgument(
                "Several changes that are applied at once have the same feature; apply them one "
                "after the other",
                field="changes",
                feature_id=min(twice),
            )
        seen.update(batch.ids)


def check_uuids(uuids: Sequence[str | None] | None, count: int) -> None:
    """Refuse locks unless there is one, or None, for each id."""
    if uuids is not None and len(uuids) != count:
        raise InvalidArgument(
            f"uuids must have one state id or None for each of the {count} ids, not "
            f"{len(uuids)} entries",
            field="uuids",
        )


def check_muuids(muuids: Sequence[str | None], count: int, merge: bool) -> None:
    """Refuse merged state ids whose number differs from that of the features, or with `merge`."""
    if merge:
        raise InvalidArgument(
            "muuids and merge cannot be combined; omit one of them", field="muuids"
        )
    if len(muuids) != count:
        raise InvalidArgument(
            f"muuids must have one state id or None for each of the {count} features, not "
            f"{len(muuids)} entries",
            field="muuids",
        )
    for muuid in muuids:
        if muuid is not None:
            check_text(muuid, limits.STATE_ID_BYTES_MAX, field="muuids")


def check_versions(after: Sequence[int], count: int) -> None:
    """Refuse versions to continue after unless there is one for each feature."""
    if len(after) != count:
        raise InvalidArgument(
            f"after must have one version for each of the {count} features, not {len(after)} "
            "entries; use 0 for none",
            field="after",
        )
    for version in after:
        if not 0 <= version <= limits.INT8_MAX // 4:
            raise InvalidArgument(
                f"{version} is not a version of a feature; "
                f"use a number from 0 to {limits.INT8_MAX // 4}",
                field="after",
            )


def check_stored_object(kind: str, id: str, expected: int | None = None) -> None:
    """Check the kind, id and expected revision of a stored object."""
    check_text(kind, limits.KEPT_KIND_BYTES_MAX, field="kind")
    check_text(id, limits.KEPT_ID_BYTES_MAX, field="id")
    if expected is not None and not 0 <= expected <= limits.INT8_MAX:
        raise InvalidArgument(
            f"The expected revision of {kind} {id!r:.64} must be 0 or more, not {expected}",
            field="expected",
        )


def check_days(days: int) -> None:
    """Check a number of days."""
    if not 0 <= days <= limits.INT8_MAX:
        raise InvalidArgument(
            f"The number of days must be between 0 and {limits.INT8_MAX}, not {days}", field="days"
        )


def checked_json(value: Any, bytes_max: int, *, field: str) -> str:
    """Check a value and encode it as JSON text."""
    problem = json_problem(value)
    if problem is not None:
        message = problem.below(field).sentence()
        raise InvalidArgument(message, field=f"{field}{problem.path}")
    return check_text(msgspec.json.encode(value).decode(), bytes_max, field=field)
