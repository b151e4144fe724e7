"""The oracle: a model of a versioned store that keeps every version as a whole copy.

It is evidently correct rather than fast: reading at a version looks into the copy made when that
version was committed. It supports one session at a time; storages are compared with it transaction
by transaction. Errors are those of `naksha.model.errors`.

Where the storage contract leaves a choice, the oracle fixes it:

- Every write creates a state with its own id, also within a transaction; of the states that one
  transaction created of a feature, only the last one is ever visible. An update over a state of the
  same transaction replaces it: `action`, `version` and `puuid` stay. Delete, create and restore
  count on from the state they replace, even if no other session ever saw it.
- `tags` and `crid` that an update omits stay as they are. An empty list clears the tags, null keeps
  them; null clears the `crid`. A new feature starts without them.
- A purged feature that is created again starts at version 1: no state is left to count on from.
- Each write with history off makes all earlier versions of its collection expire; a transaction
  that writes and then switches history off counts as one that wrote with it off.
- States that were kept before history was switched off stay in "all states".
- A transaction that changed nothing does not count: it takes no number in the log.
- At a version before its creation a collection is empty, not missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from naksha.model.errors import (
    CollectionExists,
    CollectionNotFound,
    Conflict,
    Expired,
    FeatureExists,
    FeatureNotFound,
    InvalidArgument,
)
from naksha.model.query import States
from naksha.testing.models.json_values import ABSENT, merge
from naksha.testing.models.oracle_state import (
    EMPTY,
    Feature,
    OracleCollection,
    OracleContent,
    OracleCounts,
    OracleMessage,
    OracleState,
    OracleTransaction,
    Snapshot,
    copy_snapshot,
)

OracleOutcome = tuple[str, str, OracleState | None]
"""The feature's id, the action of the outcome, and its resulting state."""

Locks = Sequence[int | None]
"""Identities that must be HEAD's, one per feature, or None."""


class Oracle:
    """All versions of a store: `versions[n]` is the snapshot after the n-th transaction."""

    def __init__(self) -> None:
        self.versions: list[Snapshot] = [EMPTY]
        self.log: list[OracleTransaction] = []
        self.by_identity: dict[int, OracleState] = {}
        self.identities = count(1)

    @property
    def head(self) -> Snapshot:
        return self.versions[-1]

    @property
    def last(self) -> int:
        """The number of the last transaction; 0 before the first one."""
        return len(self.versions) - 1

    def begin(self, app_id: str, author: str | None = None) -> OracleSession:
        return OracleSession(self, app_id, author)

    def collections(self, *, dropped: bool = False) -> list[str]:
        """Return the names of the collections at HEAD."""
        return sorted(name for name, c in self.head.items() if dropped or not c.dropped)

    def read(
        self, collection: str, states: States = States.LIVE, at: int | None = None
    ) -> list[OracleState]:
        """Return the states of a collection at HEAD or after the n-th transaction."""
        now = find(self.head, collection)
        if at is None:
            return listing(now, states)
        if at < now.oldest:
            raise Expired(
                "The version was overwritten while history was off",
                oldest=now.oldest,
                collection_id=collection,
            )
        then = self.versions[at].get(collection)
        return [] if then is None else listing(then, states)


class OracleSession:
    """One transaction, on a copy that becomes the next version when it is committed."""

    def __init__(self, oracle: Oracle, app_id: str, author: str | None) -> None:
        self._oracle = oracle
        self._author = author
        self._app_id = app_id
        self.work = copy_snapshot(oracle.head)
        self.transaction = OracleTransaction(oracle.last + 1, app_id, author)

    @property
    def number(self) -> int:
        return self.transaction.number

    def commit(self) -> int | None:
        """Commit and return the number of the new version, or None if nothing was changed."""
        if self.transaction.empty:
            return None
        self._oracle.versions.append(self.work)
        self._oracle.log.append(self.transaction)
        return self.number

    def read(self, collection: str, states: States = States.LIVE) -> list[OracleState]:
        """Return the states that the session itself sees."""
        return listing(find(self.work, collection), states)

    def message(self, name: str, text: str | None, json: Any, binary: bytes | None) -> None:
        self.transaction.messages[name] = OracleMessage(text, json, binary)

    # ---- Collections -------------------------------------------------------------------------

    def create_collection(self, collection: OracleCollection) -> None:
        if collection.id in self.work:
            raise CollectionExists("The collection already exists", collection_id=collection.id)
        self.work[collection.id] = collection.copy()
        self.transaction.collections.add(collection.id)

    def change_collection(self, collection: str, **changes: Any) -> None:
        changed = replace(find(self.work, collection), **changes)
        if not changed.history and collection in self.transaction.features:
            changed.oldest = self.number
        self.work[collection] = changed
        self.transaction.collections.add(collection)

    def drop_collection(self, collection: str) -> None:
        self.change_collection(collection, dropped=True)

    def restore_collection(self, collection: str) -> None:
        if collection not in self.work:
            raise CollectionNotFound("The collection does not exist", collection_id=collection)
        self.work[collection] = replace(self.work[collection], dropped=False)
        self.transaction.collections.add(collection)

    # ---- Features ----------------------------------------------------------------------------

    def create(
        self, collection: str, features: Sequence[Feature], locks: Locks | None = None
    ) -> list[OracleOutcome]:
        c = find(self.work, collection)
        outcomes = []
        for content, lock in _contents(c, features, locks):
            head = c.live.get(content.id)
            if head is not None:
                raise FeatureExists("The feature already exists", feature_id=content.id)
            _check_lock(head, lock)
            outcomes.append(self._create(c, content))
        return outcomes

    def update(
        self,
        collection: str,
        features: Sequence[Feature],
        locks: Locks | None = None,
        *,
        merge: bool = False,
    ) -> list[OracleOutcome]:
        return self._put(collection, features, locks, merge, may_create=False)

    def upsert(
        self,
        collection: str,
        features: Sequence[Feature],
        locks: Locks | None = None,
        *,
        merge: bool = False,
    ) -> list[OracleOutcome]:
        return self._put(collection, features, locks, merge, may_create=True)

    def _put(
        self,
        collection: str,
        features: Sequence[Feature],
        locks: Locks | None,
        merge: bool,
        may_create: bool,
    ) -> list[OracleOutcome]:
        c = find(self.work, collection)
        outcomes = []
        for content, lock in _contents(c, features, locks):
            if content.id in c.live:
                outcomes.append(self._update(c, content, lock, merge))
            elif may_create:
                _check_lock(None, lock)
                outcomes.append(self._create(c, content))
            else:
                raise FeatureNotFound("The feature does not exist", feature_id=content.id)
        return outcomes

    def delete(
        self, collection: str, ids: Sequence[str], locks: Locks | None = None
    ) -> list[OracleOutcome]:
        c = find(self.work, collection)
        outcomes: list[OracleOutcome] = []
        pairs = zip(ids, locks or [None] * len(ids), strict=True)
        for short, lock in {short_id(c, given): lock for given, lock in pairs}.items():
            head = c.live.get(short)
            if head is None:
                outcomes.append((short, "RETAINED", c.deleted.get(short)))
                continue
            _check_lock(head, lock)
            outcomes.append(self._delete(c, head))
        return outcomes

    def restore(self, collection: str, ids: Sequence[str]) -> list[OracleOutcome]:
        c = find(self.work, collection)
        outcomes = []
        for feature_id in dict.fromkeys(short_id(c, given) for given in ids):
            tombstone = c.deleted.get(feature_id)
            if tombstone is None:
                raise FeatureNotFound("The feature has no tombstone", feature_id=feature_id)
            outcomes.append(self._restore(c, tombstone))
        return outcomes

    def purge(self, collection: str, ids: Sequence[str]) -> list[OracleOutcome]:
        c = find(self.work, collection)
        outcomes: list[OracleOutcome] = []
        for feature_id in dict.fromkeys(short_id(c, given) for given in ids):
            if feature_id in c.live:
                raise Conflict("The feature is live, not deleted", feature_id=feature_id)
            tombstone = c.deleted.get(feature_id)
            if tombstone is None:
                outcomes.append((feature_id, "RETAINED", None))
                continue
            del c.deleted[feature_id]
            self._retire(c, tombstone)
            self._count(c, "purged", tombstone)
            outcomes.append((feature_id, "PURGED", None))
        return outcomes

    # ---- One feature -------------------------------------------------------------------------

    def _create(self, c: OracleCollection, content: OracleContent) -> OracleOutcome:
        tombstone = c.deleted.pop(content.id, None)
        if tombstone is not None:
            self._retire(c, tombstone)
        state = self._new(
            id=content.id,
            rest=content.rest,
            geometry=content.geometry,
            tags=() if content.tags is ABSENT else content.tags,
            crid=None if content.crid is ABSENT else content.crid,
            action="CREATE",
            version=1 if tombstone is None else tombstone.version + 1,
            author=self._author or c.author or self._app_id,
            previous=None,
            merged=None,
            created_in=self.number,
        )
        c.live[state.id] = state
        self._count(c, "created", state)
        return (state.id, "CREATED", state)

    def _update(
        self, c: OracleCollection, content: OracleContent, lock: int | None, allow_merge: bool
    ) -> OracleOutcome:
        head = c.live[content.id]
        merged = None
        if allow_merge and lock is not None and lock != head.identity:
            content, merged = self._merge(head, content, lock), lock
        else:
            _check_lock(head, lock)
        if head.says(content):
            return (head.id, "RETAINED", head)
        taken = {}
        if head.txn == self.number:
            taken = {
                "action": head.action,
                "version": head.version,
                "previous": head.previous,
            }
        state = self._follow(
            head,
            rest=content.rest,
            geometry=content.geometry,
            tags=head.tags if content.tags is ABSENT else content.tags,
            crid=head.crid if content.crid is ABSENT else content.crid,
            merged=merged,
            **taken,
        )
        self._retire(c, head)
        c.live[state.id] = state
        self._count(c, "updated", head, state)
        return (state.id, "UPDATED", state)

    def _merge(self, head: OracleState, mine: OracleContent, base_identity: int) -> OracleContent:
        base = self._oracle.by_identity[base_identity]
        rest = merge(base.rest, head.rest, mine.rest)
        assert isinstance(rest, dict)
        # Wrapped in a list, the geometry is merged as one property, never member by member.
        wrapped = merge([base.geometry], [head.geometry], [mine.geometry])
        assert isinstance(wrapped, list)
        return replace(mine, rest=rest, geometry=wrapped[0])

    def _delete(self, c: OracleCollection, head: OracleState) -> OracleOutcome:
        tombstone = self._follow(head, action="DELETE")
        del c.live[head.id]
        self._retire(c, head)
        c.deleted[head.id] = tombstone
        self._count(c, "deleted", head)
        return (head.id, "DELETED", tombstone)

    def _restore(self, c: OracleCollection, tombstone: OracleState) -> OracleOutcome:
        state = self._follow(tombstone)
        del c.deleted[state.id]
        self._retire(c, tombstone)
        c.live[state.id] = state
        self._count(c, "updated", state)
        return (state.id, "RESTORED", state)

    def _follow(self, old: OracleState, **changes: Any) -> OracleState:
        """Return the successor of a state, with the same content unless changed."""
        return self._new(
            **{
                "id": old.id,
                "rest": old.rest,
                "geometry": old.geometry,
                "tags": old.tags,
                "crid": old.crid,
                "action": "UPDATE",
                "version": old.version + 1,
                "author": self._author or old.author,
                "previous": old.identity,
                "merged": None,
                "created_in": old.created_in,
            }
            | changes
        )

    def _new(self, **fields: Any) -> OracleState:
        state = OracleState(
            **fields, app_id=self._app_id, identity=next(self._oracle.identities), txn=self.number
        )
        self._oracle.by_identity[state.identity] = state
        return state

    def _retire(self, c: OracleCollection, old: OracleState) -> None:
        """Move a replaced state to the past, unless no other session can have seen it."""
        if c.history and old.txn < self.number:
            c.past.append(replace(old, txn_next=self.number))

    def _count(self, c: OracleCollection, what: str, *states: OracleState) -> None:
        changes = self.transaction.features.setdefault(c.id, OracleCounts())
        setattr(changes, what, getattr(changes, what) + 1)
        changes.touched.append(states[0].id)
        changes.boxes += [state.bounds for state in states]
        if not c.history:
            c.oldest = self.number


def find(snapshot: Snapshot, collection: str) -> OracleCollection:
    """Return the collection; raise CollectionNotFound if it is missing or dropped."""
    found = snapshot.get(collection)
    if found is None or found.dropped:
        raise CollectionNotFound("The collection does not exist", collection_id=collection)
    return found


def listing(collection: OracleCollection, states: States) -> list[OracleState]:
    """Return the requested states in their order."""
    match states:
        case States.LIVE:
            return [collection.live[key] for key in sorted(collection.live)]
        case States.DELETED:
            return [collection.deleted[key] for key in sorted(collection.deleted)]
        case States.ALL:
            return collection.all()


def short_id(collection: OracleCollection, given: str) -> str:
    """Return the id without the collection's prefix."""
    short = given.removeprefix(collection.id_prefix or "")
    if not short:
        raise InvalidArgument(
            "The id is empty without the collection's prefix", field="id", feature_id=given
        )
    return short


def _contents(
    collection: OracleCollection, features: Sequence[Feature], locks: Locks | None
) -> list[tuple[OracleContent, int | None]]:
    """Return the features to write, in input order; of several with one id the last one counts."""
    last: dict[str, tuple[OracleContent, int | None]] = {}
    for feature, lock in zip(features, locks or [None] * len(features), strict=True):
        feature_id = short_id(collection, feature["id"])
        last.pop(feature_id, None)
        last[feature_id] = (OracleContent.of(feature_id, feature), lock)
    return list(last.values())


def _check_lock(head: OracleState | None, lock: int | None) -> None:
    if lock is not None and (head is None or head.identity != lock):
        raise Conflict("The given state is not HEAD's", feature_id=head.id if head else None)
