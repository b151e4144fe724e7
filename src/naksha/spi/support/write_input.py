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
from naksha.spi.storage import Feature, StoredObject
from naksha.spi.support.write_merge import StateReader, merge_into_head

Mode: TypeAlias = Literal["create", "update", "upsert"]
Locks: TypeAlias = list[int | None]
"""State numbers (`i`) that HEAD must have, one per feature, or None."""


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Checked features to write, with the lock of each and the state it was merged from, if any.

    `is_merged`: they were merged with a very recent HEAD, whose states the locks are.
    """

    prepared: PreparedFeatures
    locks: Locks
    muuids: list[str | None]
    is_merged: bool = False
    after: list[int] | None = None
    """Versions that the features had elsewhere, after which new ones continue."""


class CheckedSession(ABC):
    """Base class of write sessions."""

    _broken: Exception | None = None
    _scope: Collection[str] | None = None
    """The only collections that may be written to; None for all."""

    def check_usable(self) -> None:
        """Refuse any call after a failure; the session can then only be left."""
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
    def _storage(self) -> StorageIdentity:
        """Id and number of the storage."""

    @abstractmethod
    def _reader(self) -> StateReader:
        """Return the reader of HEAD and states, as the session sees them."""

    @abstractmethod
    async def _info(self, collection: str) -> CollectionInfo: ...

    @abstractmethod
    async def _write(
        self, collection: str, mode: Mode, batch: WriteBatch, returning: bool
    ) -> list[WriteOutcome]: ...

    @abstractmethod
    async def _delete(
        self,
        collection: str,
        ids: list[str],
        locks: Locks,
        returning: bool,
        masks: bool = True,
    ) -> list[WriteOutcome]: ...

    @abstractmethod
    async def _restore(
        self, collection: str, ids: list[str], returning: bool
    ) -> list[WriteOutcome]: ...

    @abstractmethod
    async def _purge(self, collection: str, ids: list[str]) -> list[WriteOutcome]: ...

    @abstractmethod
    async def _message(
        self, id: str, text: str | None, attachment: str | None, binary: bytes | None
    ) -> None: ...

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

    async def create(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        lock: bool = True,
        after: Sequence[int] | None = None,
        returning: bool = False,
    ) -> list[WriteOutcome]:
        if after is not None:
            check_versions(after, len(features))
        return await self._put(collection, "create", features, returning, lock=lock, after=after)

    async def update(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        lock: bool = True,
        returning: bool = False,
    ) -> list[WriteOutcome]:
        return await self._put(collection, "update", features, returning, merge=merge, lock=lock)

    async def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        *,
        merge: bool = False,
        muuids: Sequence[str | None] | None = None,
        lock: bool = True,
        returning: bool = False,
    ) -> list[WriteOutcome]:
        if muuids is not None:
            check_muuids(muuids, len(features), merge)
        return await self._put(
            collection, "upsert", features, returning, merge=merge, lock=lock, muuids=muuids
        )

    async def delete(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        uuids: Sequence[str | None] | None = None,
        masks: bool = True,
        returning: bool = False,
    ) -> list[WriteOutcome]:
        info = await self._open(collection)
        if uuids is not None and len(uuids) != len(ids):
            raise InvalidArgument(
                f"uuids must have one state id or None for each of the {len(ids)} ids, not "
                f"{len(uuids)} entries",
                field="uuids",
            )
        plain = plain_ids(ids, info.id_prefix)
        cut = info.id_prefix or ""
        given = {
            i.removeprefix(cut): uuid
            for i, uuid in zip(ids, uuids or (), strict=False)
            if uuid is not None
        }
        locks = [lock_of(given.get(i), self._storage, info) for i in plain]
        return await self._delete(collection, plain, locks, returning, masks)

    async def restore(
        self, collection: str, ids: Sequence[str], *, returning: bool = False
    ) -> list[WriteOutcome]:
        plain = plain_ids(ids, (await self._open(collection)).id_prefix)
        return await self._restore(collection, plain, returning)

    async def purge(self, collection: str, ids: Sequence[str]) -> list[WriteOutcome]:
        plain = plain_ids(ids, (await self._open(collection)).id_prefix)
        return await self._purge(collection, plain)

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
        attachment = None
        if json is not None:
            attachment = checked_json(json, limits.MESSAGE_JSON_BYTES_MAX, field="message.json")
        if binary is not None and len(binary) > limits.MESSAGE_BINARY_BYTES_MAX:
            raise LimitExceeded(
                f"The binary attachment of message {id!r:.64} has {len(binary)} bytes, but at most "
                f"{limits.MESSAGE_BINARY_BYTES_MAX} are allowed",
                field="message.binary",
            )
        await self._message(id, text, attachment, binary)

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

    # ---- Inside ------------------------------------------------------------------------------

    async def _open(self, collection: str) -> CollectionInfo:
        """Return a collection to which features may be written."""
        info = await self._info(collection)
        if self._scope is not None and collection not in self._scope:
            raise NotSupported(
                f"Collection {collection!r} is not in the scope of this branch, which is "
                f"{', '.join(sorted(self._scope))}; write to it on main, or on a branch with this "
                "collection in its scope",
                field="collection",
                collection_id=collection,
            )
        return info

    async def _put(
        self,
        collection: str,
        mode: Mode,
        features: Sequence[Feature],
        returning: bool,
        *,
        merge: bool = False,
        lock: bool = True,
        muuids: Sequence[str | None] | None = None,
        after: Sequence[int] | None = None,
    ) -> list[WriteOutcome]:
        info = await self._open(collection)
        prepared = check_features(features, id_prefix=info.id_prefix, generate_ids=mode != "update")
        check_points(prepared, info)
        uuids = prepared.lock_uuid if lock or merge else [None] * len(prepared.ids)
        locks = [lock_of(uuid, self._storage, info) for uuid in uuids]
        merged_from = [muuids[at] if muuids else None for at in prepared.positions]
        versions = None if after is None else [after[at] for at in prepared.positions]
        batch = WriteBatch(prepared, locks, merged_from, after=versions)
        if merge and any(lock is not None for lock in locks):
            batch = await self._merged(info, features, batch)
        return await self._write(collection, mode, batch, returning)

    async def _merged(
        self, info: CollectionInfo, features: Sequence[Feature], batch: WriteBatch
    ) -> WriteBatch:
        """Return the batch with features based on an older state merged into HEAD."""
        ids = batch.prepared.ids
        chosen = [
            {**features[position], "id": id_}
            for position, id_ in zip(batch.prepared.positions, ids, strict=True)
        ]
        await self._before_merge(info.id, ids)
        locked = [f for f, lock in zip(chosen, batch.locks, strict=True) if lock is not None]
        merges = await merge_into_head(self._reader(), info.id, locked)
        merged = check_features(
            [merges[i].feature if i in merges else f for i, f in zip(ids, chosen, strict=True)]
        )
        check_points(merged, info)
        heads = {i: lock_of(merge.head.uuid, self._storage, info) for i, merge in merges.items()}
        return WriteBatch(
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
