"""States and transactions by their ids, in whatever storage of a realm they are.

An id says which storage it is of, by a name or a number that only the storage knows, so the
storages of the realm are asked who they are. What is found is shown to who may read the features of
a space that is stored in that collection; for all others it is not there.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, Protocol

from naksha.hub.context import Context
from naksha.hub.handlers.authorization import Authorization
from naksha.hub.handlers.read_only import ReadOnlyHandler
from naksha.hub.handlers.storage import StorageHandler
from naksha.hub.objects import Space, StorageObject
from naksha.hub.pipelines import Pipelines
from naksha.hub.references import spaces_with_storage
from naksha.hub.registry import Realm
from naksha.hub.requests import ReadFeatures
from naksha.hub.resources import features
from naksha.hub.rights import Right
from naksha.model.errors import InvalidArgument, NakshaError, NotFound, Unavailable
from naksha.model.guid import Guid
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import MAIN, Signal, Transaction
from naksha.model.txn import parse_txn
from naksha.model.uuids import TYPE_TRANSACTION, StateRef, Uuid, is_uuid, parse_state_id
from naksha.spi.storage import Storage

_SHOWING_ALL: Final = (Authorization, ReadOnlyHandler, StorageHandler)
"""Handlers behind which a space shows all that is in its collection."""
_FEATURES: Final = "MODIFY_FEATURES"
_COLLECTION: Final = "MODIFY_COLLECTION"


class LookupRealm(Realm, Protocol):
    """A realm with its pipelines."""

    async def pipelines(self) -> Pipelines: ...


class Found(NamedTuple):
    """A transaction, where it is, and who is stored in the collections that it is about."""

    storage_id: str
    number: int
    transaction: Transaction
    spaces: dict[str, list[str]]
    """By collection, those that the actor may read."""


async def find_state(realm: LookupRealm, id: str, context: Context) -> State:
    """The state with a GUID or UUID, else NotFound."""
    ref = parse_state_id(id)
    search = _Search(realm)
    async for thing, storage in search.storages():
        if not _is_of(ref, storage):
            continue
        try:
            state = await storage.state(id)
        except NotFound:
            continue
        collection = Guid.parse(state.uuid).collection_id
        async for space in _spaces_of(realm, thing.id, collection):
            if await _shows(realm, space, state, context):
                return state
    raise search.not_found("state", id)


async def find_transaction(
    realm: LookupRealm, id: str, storage_id: str | None, context: Context
) -> Found:
    """The transaction with a number or UUID, else NotFound. A number may be used by several
    storages: of several that the actor may read, one is to be said."""
    number = _transaction_number(id)
    search = _Search(realm)
    found: list[Found] = []
    async for thing, storage in search.storages(storage_id):
        if isinstance(number, Uuid) and number.storage_number != storage.number:
            continue
        try:
            transaction = await storage.transaction(
                number.txn if isinstance(number, Uuid) else number
            )
        except NotFound:
            continue
        spaces = await _readable(realm, thing.id, transaction, context)
        if spaces:
            found.append(Found(thing.id, storage.number, transaction, spaces))
    if len(found) > 1:
        raise InvalidArgument(
            f"Several storages have a transaction {id}: "
            f"{', '.join(one.storage_id for one in found)}; say which one",
            field="storage",
        )
    if not found:
        raise search.not_found("transaction", id)
    return found[0]


def transaction_json(found: Found) -> dict[str, Any]:
    """A transaction, as far as it may be shown: collections of others are left out."""
    transaction = found.transaction
    return {
        "type": "Transaction",
        "uuid": str(Uuid.of_txn(transaction.txn, found.number)),
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

    def __init__(self, realm: LookupRealm) -> None:
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


def _is_of(ref: StateRef, storage: Storage) -> bool:
    if isinstance(ref, Guid):
        return ref.storage_id == storage.id
    return ref.storage_number == storage.number


def _transaction_number(id: str) -> int | Uuid:
    if not is_uuid(id):
        return parse_txn(id)
    found = Uuid.parse(id)
    if found.type != TYPE_TRANSACTION:
        raise InvalidArgument(f"{id} names no transaction", field="transaction")
    return found


# ---- Who may see it ------------------------------------------------------------------------------


async def _spaces_of(realm: LookupRealm, storage_id: str, collection: str) -> AsyncIterator[Space]:
    """The spaces that are stored in a collection."""
    async for space, places in spaces_with_storage(await realm.registry.snapshot()):
        if any(each.place == (storage_id, collection) for each in places):
            yield space


def _may_read(space: Space, context: Context) -> bool:
    """As the space itself would decide about all of its features."""
    rights, resource = context.actor.rights, space.resource()
    may_use = rights.allows(Right.USE_SPACES, resource)
    may_read = rights.allows(Right.READ_FEATURES, features(resource))
    return space.active and (space.shared or (may_use and may_read))


async def _shows(realm: LookupRealm, space: Space, state: State, context: Context) -> bool:
    """Whether a space shows a state to who asks. One with handlers that may hide something is asked
    for it."""
    if not _may_read(space, context):
        return False
    try:
        pipeline = await (await realm.pipelines()).get(space.id)
        if all(isinstance(stage.handler, _SHOWING_ALL) for stage in pipeline.stages):
            return True
        query = Query(ids=(state.id,), states=States.ALL, txn_from=state.txn, txn_to=state.txn + 1)
        answer = await pipeline.run(ReadFeatures(query=query), context)
        return any(shown.uuid == state.uuid for shown in await answer.all())
    except NakshaError:
        return False


async def _readable(
    realm: LookupRealm, storage_id: str, transaction: Transaction, context: Context
) -> dict[str, list[str]]:
    touched = {
        signal.id for signal in transaction.signals if signal.action in (_FEATURES, _COLLECTION)
    }
    found: dict[str, list[str]] = {}
    async for space, places in spaces_with_storage(await realm.registry.snapshot()):
        for each in places:
            id = each.collection.id
            if each.storage_id == storage_id and id in touched and _may_read(space, context):
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
