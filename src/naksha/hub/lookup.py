"""Look-up of states and transactions by id across all storages of a realm.

An id contains the id or number of its storage, so each storage of the realm is checked for a match.
A result is visible to actors who may read it in a space that is stored in that collection, in the
form in which the space shows it; for all others it does not exist.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from naksha.hub.auth.rights import Right
from naksha.hub.auth.row_scope import pipeline_of, reads_all, scope_in
from naksha.hub.config.objects import Space, StorageObject
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.handlers.authorization import is_in_scope
from naksha.hub.handlers.stored.storage import plain_storage
from naksha.hub.pipeline.request_context import RequestContext
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
_FEATURES: Final = "MODIFY_FEATURES"
_COLLECTION: Final = "MODIFY_COLLECTION"


class FoundTransaction(NamedTuple):
    """A transaction with its storage, and the spaces of the collections that it changed."""

    storage_id: str
    number: int
    transaction: Transaction
    spaces: dict[str, list[str]]
    """By collection, the spaces that the actor may read."""


class _StorageMatch(NamedTuple, Generic[T]):
    """A result found by its id in one of the storages."""

    name: str
    """Configured id of the storage."""
    storage: Storage
    is_former: bool
    """Whether the id contains a former id or number of the storage."""
    found: T


async def find_state(
    realm: ConfiguredRealm, id: str, context: RequestContext, storage_id: str | None = None
) -> State:
    """Find the state with a GUID or UUID, in one storage or in any.

    Raises:
        NotFound: No state with this id exists, or the actor may not read it.
        Conflict: Several storages have a state with this id.
        Unavailable: It was not found, but not all storages responded.
    """
    ref = parse_state_id(id)
    search = _StorageSearch(realm)
    found: list[_StorageMatch[State]] = []
    async for thing, storage in search.storages(storage_id):
        if not storage.identity.knows(ref):
            continue
        try:
            state = await storage.state(id)
        except NotFound:
            continue
        collection = Guid.parse(state.uuid).collection_id
        for space in await _spaces_of(realm, thing.id, collection):
            shown = await _state_in_space(realm, space, storage, state, context)
            if shown is not None:
                found.append(_StorageMatch(thing.id, storage, not _is_present(ref, storage), shown))
                break
    if not found:
        raise search.not_found("state", id)
    return _only_one(found, "state", id)


async def find_transaction(
    realm: ConfiguredRealm, id: str, storage_id: str | None, context: RequestContext
) -> FoundTransaction:
    """Find the transaction with a number or UUID, in one storage or in any.

    Different storages use the same numbers: if the actor may read several matches, the caller must
    name the storage.

    Raises:
        NotFound: No such transaction exists, or the actor may not read it.
        InvalidArgument: Several storages have a transaction with this number.
        Conflict: Several storages have a transaction with this UUID.
        Unavailable: It was not found, but not all storages responded.
    """
    number = _transaction_number(id)
    search = _StorageSearch(realm)
    found: list[_StorageMatch[FoundTransaction]] = []
    async for thing, storage in search.storages(storage_id):
        try:
            transaction = await storage.transaction(id if isinstance(number, Uuid) else number)
        except NotFound:
            continue
        spaces = await _readable(realm, thing.id, transaction, context)
        if spaces:
            known = storage.identity.number_at(transaction.txn)
            made = FoundTransaction(thing.id, known, transaction, spaces)
            found.append(_StorageMatch(thing.id, storage, known != storage.number, made))
    if not found:
        raise search.not_found("transaction", id)
    if isinstance(number, Uuid):
        return _only_one(found, "transaction", id)
    if len(found) > 1:
        raise InvalidArgument(
            f"Several storages have a transaction {id}: "
            f'{", ".join(one.name for one in found)}; name one with the parameter "storage"',
            field="storage",
        )
    return found[0].found


def _uuid_of(txn: int, storage_number: int) -> str | None:
    """Return the UUID of a transaction, or None for years before 2000, which it cannot encode."""
    try:
        return str(Uuid.of_txn(txn, storage_number))
    except InvalidArgument:
        return None


def transaction_json(found: FoundTransaction) -> dict[str, Any]:
    """Return a transaction as JSON, without collections that the actor may not read."""
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


class _StorageSearch:
    """Iterates the storages of a realm and records those that are unavailable."""

    def __init__(self, realm: ConfiguredRealm) -> None:
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
        """Return NotFound, or Unavailable if an unavailable storage may contain the object."""
        if self._silent:
            return Unavailable(
                f"The {kind} {id!r:.80} was not found, but not all storages of the realm are "
                f"available; retry later"
            )
        return NotFound(
            f"The {kind} {id!r:.80} does not exist in any storage of the realm", field=kind
        )


def _is_present(ref: StateRef, storage: Storage) -> bool:
    """Return whether a state id contains the current id or number of a storage."""
    if isinstance(ref, Guid):
        return ref.storage_id == storage.id
    return ref.storage_number == storage.number


def _only_one(found: list[_StorageMatch[T]], kind: str, id: str) -> T:
    """Return the match if it is unique, else raise Conflict.

    A storage whose current id matches takes precedence over one whose former id does: a fork also
    contains the old states of the original.
    """
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
        raise InvalidArgument(
            f"The UUID {id} is not that of a transaction; use the UUID or the number of a "
            "transaction",
            field="transaction",
        )
    return found


# ---- Visibility ----------------------------------------------------------------------------------


async def _spaces_of(realm: ConfiguredRealm, storage_id: str, collection: str) -> list[Space]:
    """Return the spaces that are stored in a collection."""
    registry = realm.registry
    snapshot = await registry.snapshot()
    return await registry.references.spaces_stored_in(snapshot, storage_id, collection)


async def _state_in_space(
    realm: ConfiguredRealm, space: Space, storage: Storage, state: State, context: RequestContext
) -> State | None:
    """Return a state as a space shows it to the actor, or None.

    If the space has handlers that may hide or change features, the state is read through them.
    """
    pipeline = await pipeline_of(context.configured, space.id)
    if pipeline is None:
        return None
    readable = scope_in(pipeline, context.actor.rights, Right.READ_FEATURES)
    if readable.is_nothing or await _is_forgotten(space, storage, state):
        return None
    if plain_storage(pipeline) is not None:
        return state if is_in_scope(readable, state) else None
    query = Query(ids=(state.id,), states=States.ALL, txn_from=state.txn, txn_to=state.txn + 1)
    try:
        found = await (await pipeline.run(ReadFeatures(query=query), context)).all()
    except NakshaError:
        return None
    return next((shown for shown in found if _is_same(shown, state)), None)


async def _is_forgotten(space: Space, storage: Storage, state: State) -> bool:
    """Return whether a state ended before the oldest version that a space keeps."""
    end = int(state.xyz.get("txn_next") or 0)
    if not space.min_version or not end:
        return False
    return (await storage.resolve(AtTxn(end))).seq_number <= space.min_version


def _is_same(shown: State, state: State) -> bool:
    """Return whether a shown state is the requested one.

    A handler may have removed its `uuid`; then it is, as the query matches only that state.
    """
    namespace = shown.feature.get("properties", {}).get(XYZ, {})
    return shown.id == state.id and namespace.get("uuid", state.uuid) == state.uuid


async def _readable(
    realm: ConfiguredRealm, storage_id: str, transaction: Transaction, context: RequestContext
) -> dict[str, list[str]]:
    touched = {
        signal.id for signal in transaction.signals if signal.action in (_FEATURES, _COLLECTION)
    }
    found: dict[str, list[str]] = {}
    for id in touched:
        for space in await _spaces_of(realm, storage_id, id):
            # A transaction's counts and bbox cover all features, so the actor must read all.
            if await reads_all(context, space.id):
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
    members = {"id": signal.id, "text": signal.text, "json": signal.json, "binary": binary}
    return {name: value for name, value in members.items() if value is not None}
