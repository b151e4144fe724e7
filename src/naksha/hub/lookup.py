"""States and transactions by their ids, in whatever storage of a realm they are.

An id says which storage it is of, by a name or a number that only the storage knows, so the
storages of the realm are asked who they are. What is found is shown to who may read the features of
a space that is stored in that collection, as that space shows it; for all others it is not there.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_scope import ServingRealm, pipeline_of, reads_all, scope_in
from naksha.hub.config.objects import Space, StorageObject
from naksha.hub.handlers.authorization import Authorization, is_in
from naksha.hub.handlers.read_only import ReadOnlyHandler
from naksha.hub.handlers.stored.storage import StorageHandler
from naksha.hub.pipeline.request_context import Context
from naksha.hub.pipeline.requests import ReadFeatures
from naksha.model.errors import Conflict, InvalidArgument, NakshaError, NotFound, Unavailable
from naksha.model.identity.guid import Guid
from naksha.model.identity.txn import parse_txn
from naksha.model.identity.uuids import TYPE_TRANSACTION, StateRef, Uuid, is_uuid, parse_state_id
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.transaction import MAIN, Signal, Transaction
from naksha.model.version import AtTxn
from naksha.spi.storage import Storage

T = TypeVar("T")
_SHOWING_ALL: Final = (Authorization, ReadOnlyHandler, StorageHandler)
"""Handlers behind which a space shows all that is in its collection."""
_FEATURES: Final = "MODIFY_FEATURES"
_COLLECTION: Final = "MODIFY_COLLECTION"


class Found(NamedTuple):
    """A transaction, where it is, and who is stored in the collections that it is about."""

    storage_id: str
    number: int
    transaction: Transaction
    spaces: dict[str, list[str]]
    """By collection, those that the actor may read."""


class _Sighting(NamedTuple, Generic[T]):
    """Something that was found by its id in one of the storages."""

    name: str
    """Of the storage, in the configuration."""
    storage: Storage
    is_former: bool
    """Whether the id has a former id or number of the storage."""
    found: T


async def find_state(
    realm: ServingRealm, id: str, context: Context, storage_id: str | None = None
) -> State:
    """The state with a GUID or UUID, in one storage or in any.

    Raises:
        NotFound: There is none that the actor may read.
        Conflict: Several storages have one.
    """
    ref = parse_state_id(id)
    search = _Search(realm)
    found: list[_Sighting[State]] = []
    async for thing, storage in search.storages(storage_id):
        if not storage.identity.knows(ref):
            continue
        try:
            state = await storage.state(id)
        except NotFound:
            continue
        collection = Guid.parse(state.uuid).collection_id
        for space in await _spaces_of(realm, thing.id, collection):
            shown = await _shown(realm, space, storage, state, context)
            if shown is not None:
                found.append(_Sighting(thing.id, storage, not _is_present(ref, storage), shown))
                break
    if not found:
        raise search.not_found("state", id)
    return _only_one(found, "state", id)


async def find_transaction(
    realm: ServingRealm, id: str, storage_id: str | None, context: Context
) -> Found:
    """The transaction with a number or UUID, in one storage or in any. Storages use the same
    numbers: of several that the actor may read, the caller must name one.

    Raises:
        NotFound: There is none that the actor may read.
        Conflict: Several storages have one with this UUID.
    """
    number = _transaction_number(id)
    search = _Search(realm)
    found: list[_Sighting[Found]] = []
    async for thing, storage in search.storages(storage_id):
        try:
            transaction = await storage.transaction(id if isinstance(number, Uuid) else number)
        except NotFound:
            continue
        spaces = await _readable(realm, thing.id, transaction, context)
        if spaces:
            known = storage.identity.number_at(transaction.txn)
            made = Found(thing.id, known, transaction, spaces)
            found.append(_Sighting(thing.id, storage, known != storage.number, made))
    if not found:
        raise search.not_found("transaction", id)
    if isinstance(number, Uuid):
        return _only_one(found, "transaction", id)
    if len(found) > 1:
        raise InvalidArgument(
            f"Several storages have a transaction {id}: "
            f"{', '.join(one.name for one in found)}; say which one",
            field="storage",
        )
    return found[0].found


def _uuid_of(txn: int, storage_number: int) -> str | None:
    """The UUID of a transaction; None for a year that it has no room for, before 2000."""
    try:
        return str(Uuid.of_txn(txn, storage_number))
    except InvalidArgument:
        return None


def transaction_json(found: Found) -> dict[str, Any]:
    """A transaction, as far as it may be shown: collections of others are left out."""
    transaction = found.transaction
    return {
        "type": "Transaction",
        "uuid": _uuid_of(transaction.txn, found.number),
        "txn": str(transaction.txn),
        "storageId": found.storage_id,
        "version": transaction.seq_number,
        "startedAt": transaction.started_ms,
        "publishedAt": transaction.published_ms,
        "appId": transaction.app_id,
        "author": transaction.author,
        "isOnBranch": transaction.overlay != MAIN,
        "collections": [
            _collection_json(signal, found.spaces[signal.id])
            for signal in transaction.signals
            if signal.action in (_FEATURES, _COLLECTION) and signal.id in found.spaces
        ],
        "messages": [
            _message_json(signal)
            for signal in transaction.signals
            if signal.action not in (_FEATURES, _COLLECTION)
        ],
    }


class _Search:
    """Asks the storages of a realm, and remembers who did not answer."""

    def __init__(self, realm: ServingRealm) -> None:
        self._realm = realm
        self._silent: list[str] = []

    async def storages(
        self, only: str | None = None
    ) -> AsyncIterator[tuple[StorageObject, Storage]]:
        for thing in await self._realm.registry.list(StorageObject):
            if only in (None, thing.id) and thing.active:
                try:
                    storage = await self._realm.storage(thing.id)
                except NakshaError:
                    self._silent.append(thing.id)
                    continue
                yield thing, storage

    def not_found(self, kind: str, id: str) -> NakshaError:
        """What is said when nothing was found; who did not answer may have it."""
        if self._silent:
            return Unavailable(
                f"The {kind} {id!r:.80} was not found, but not all storages of the realm answer"
            )
        return NotFound(f"There is no {kind} {id!r:.80}", field=kind)


def _is_present(ref: StateRef, storage: Storage) -> bool:
    """Whether a state id has the present id or number of a storage."""
    if isinstance(ref, Guid):
        return ref.storage_id == storage.id
    return ref.storage_number == storage.number


def _only_one(found: list[_Sighting[T]], kind: str, id: str) -> T:
    """What was found, if it is in one storage only. A storage that has the id comes before one
    that had it: a fork has the old states of the original, too."""
    best = [one for one in found if not one.is_former] or found
    if any(one.storage is not best[0].storage for one in best):
        names = " and ".join(repr(one.name) for one in best)
        raise Conflict(
            f"The id {id!r:.80} is ambiguous: the storages {names} each have a {kind} of this id. "
            'Name one with the parameter "storage"; if one is a copy, run `naksha storage fork` '
            "on it",
            field="storage",
        )
    return best[0].found


def _transaction_number(id: str) -> int | Uuid:
    if not is_uuid(id):
        return parse_txn(id)
    found = Uuid.parse(id)
    if found.type != TYPE_TRANSACTION:
        raise InvalidArgument(f"{id} names no transaction", field="transaction")
    return found


# ---- Who may see it ------------------------------------------------------------------------------


async def _spaces_of(realm: ServingRealm, storage_id: str, collection: str) -> list[Space]:
    """The spaces that are stored in a collection."""
    registry = realm.registry
    snapshot = await registry.snapshot()
    return await registry.references.spaces_stored_in(snapshot, storage_id, collection)


async def _shown(
    realm: ServingRealm, space: Space, storage: Storage, state: State, context: Context
) -> State | None:
    """A state as a space shows it to who asks, if it does. One with handlers that may hide
    something, or show it otherwise, is asked for it."""
    pipeline = await pipeline_of(realm, space.id)
    if pipeline is None:
        return None
    readable = scope_in(pipeline, context.actor.rights, Right.READ_FEATURES)
    if readable.is_nothing or await _is_given_up(space, storage, state):
        return None
    if all(isinstance(stage.handler, _SHOWING_ALL) for stage in pipeline.stages):
        return state if is_in(readable, state) else None
    query = Query(ids=(state.id,), states=States.ALL, txn_from=state.txn, txn_to=state.txn + 1)
    try:
        found = await (await pipeline.run(ReadFeatures(query=query), context)).all()
    except NakshaError:
        return None
    return next((shown for shown in found if _is_same(shown, state)), None)


async def _is_given_up(space: Space, storage: Storage, state: State) -> bool:
    """Whether a state was over before the oldest version that a space keeps."""
    end = int(state.xyz.get("txn_next") or 0)
    if not space.min_version or not end:
        return False
    return (await storage.resolve(AtTxn(end))).seq_number <= space.min_version


def _is_same(shown: State, state: State) -> bool:
    """Whether a state is the one that was asked for; a handler may have taken its name away, and
    only that one was asked for."""
    namespace = shown.feature.get("properties", {}).get(XYZ, {})
    return shown.id == state.id and namespace.get("uuid", state.uuid) == state.uuid


async def _readable(
    realm: ServingRealm, storage_id: str, transaction: Transaction, context: Context
) -> dict[str, list[str]]:
    touched = {
        signal.id for signal in transaction.signals if signal.action in (_FEATURES, _COLLECTION)
    }
    found: dict[str, list[str]] = {}
    for id in touched:
        for space in await _spaces_of(realm, storage_id, id):
            # What a transaction did is about all features.
            if await reads_all(realm, space.id, context.actor.rights):
                found.setdefault(id, []).append(space.id)
    return found


def _collection_json(signal: Signal, spaces: list[str]) -> dict[str, Any]:
    if signal.action == _COLLECTION:
        return {"id": signal.id, "spaces": spaces, "action": signal.action}
    return {
        "id": signal.id,
        "spaces": spaces,
        "action": signal.action,
        "created": signal.created,
        "updated": signal.updated,
        "deleted": signal.deleted,
        "purged": signal.purged,
        "bbox": signal.bbox,
    }


def _message_json(signal: Signal) -> dict[str, Any]:
    binary = None if signal.binary is None else base64.b64encode(signal.binary).decode()
    told = {"id": signal.id, "text": signal.text, "json": signal.json, "binary": binary}
    return {name: value for name, value in told.items() if value is not None}
