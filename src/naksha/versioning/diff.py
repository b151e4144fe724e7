"""Differences between two versions, on one line or on two.

Changes are found by the transactions that made them, so the cost depends on the number of changes,
not on the size of the collection. If one version is an ancestor of the other, the states that began
since then and are still valid, and those that were valid then and have ended since, describe the
whole difference. Between two lines, the states that began after the divergence provide the ids,
which are then looked up in both versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import msgspec

from naksha.model import merge
from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD
from naksha.spi.support.write_merge import content_of
from naksha.versioning.change_filters import ALL, split_query
from naksha.versioning.divergence import Divergence, divergence_of
from naksha.versioning.lines import Place

CHUNK: Final = 10_000
"""Features looked up at once."""
KEPT_MAX: Final = 50_000
"""States held in memory at once; beyond that only their ids are held."""
_NAMESPACE: Final = f'"{XYZ}"'.encode()


class DiffAction(StrEnum):
    """Kind of difference of a feature between two versions."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class FeatureDiff(msgspec.Struct, frozen=True, gc=False):
    """A feature that differs between two versions."""

    collection: str
    id: str
    old: State | None
    new: State | None

    @property
    def action(self) -> DiffAction:
        if self.old is None:
            return DiffAction.CREATED
        return DiffAction.DELETED if self.new is None else DiffAction.UPDATED

    def paths(self) -> list[str]:
        """Return the changed paths as JSON pointers into the feature, including tags and `crid`."""
        return merge.changed_paths(self._content(self.old), self._content(self.new))

    def patch(self) -> list[dict[str, Any]]:
        """Return the RFC 6902 patch from the old feature to the new one."""
        return merge.json_patch(self._content(self.old), self._content(self.new))

    def to_json(self) -> bytes:
        """Encode the difference, with both sides as they are stored."""
        about = {"id": self.id, "action": self.action.value, "paths": self.paths()}
        sides = {"old": self.old, "new": self.new}
        raw = {name: msgspec.Raw(side.raw) for name, side in sides.items() if side is not None}
        return msgspec.json.encode({**about, **raw})

    @staticmethod
    def _content(state: State | None) -> Any:
        return {} if state is None else visible(state)


def visible(state: State) -> dict[str, Any]:
    """Return a feature without storage metadata, keeping the client's members of the namespace."""
    content = content_of(state.feature)
    content["properties"] = {**content["properties"], XYZ: content.pop(XYZ)}
    return content


async def diff(
    old: Place, new: Place, collection: str, query: Query | None = None
) -> AsyncIterator[FeatureDiff]:
    """Iterate over the features that differ between two versions, ordered by id.

    Features that were changed and changed back are left out. A query keeps only features that
    matched it in some state in between, or in one of the two versions; its authors, app ids,
    actions and times apply to the states in between (see `naksha.versioning.change_filters`).
    `limit`, `cursor` and `states` of the query refer to pages of states and are rejected.
    """
    query_or_all = query or Query()
    if (
        query_or_all.limit is not None
        or query_or_all.cursor is not None
        or query_or_all.states is not States.LIVE
    ):
        raise InvalidArgument(
            "A diff does not support limit, cursor or states; remove them from the query",
            field="query",
        )
    if query_or_all.replaced_since is not None:
        raise InvalidArgument(
            "A diff compares the two given versions and does not support replaced_since; remove "
            "it from the query",
            field="query",
        )
    for place in (old, new):
        await check_readable(place, collection)
    divergence = divergence_of(old, new)
    found = await _changed(divergence, collection, query_or_all.ids)
    ids = sorted(found.ids)
    if query_or_all != Query(ids=query_or_all.ids, space=query_or_all.space):
        ids = await _matching(divergence, collection, ids, query_or_all)
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        before = await lookup(old, collection, part) if found.old is None else found.old
        after = await lookup(new, collection, part) if found.new is None else found.new
        for id_ in part:
            change = FeatureDiff(collection, id_, before.get(id_), after.get(id_))
            if is_change(change):
                yield change


async def diff_all(
    old: Place, new: Place, query: Query | None = None, collections: Iterable[str] | None = None
) -> AsyncIterator[FeatureDiff]:
    """Iterate over the differences of several collections, or all, ordered by collection and id."""
    for name in await names_in(old, new, collections):
        async for change in diff(old, new, name, query):
            yield change


async def names_in(old: Place, new: Place, collections: Iterable[str] | None) -> list[str]:
    """Return the given collections, or all that exist now, in order."""
    if collections is not None:
        return sorted(collections)
    return sorted({info.id for place in (old, new) for info in await place.storage.collections()})


def is_change(change: FeatureDiff) -> bool:
    """Return whether two states differ in what a client can see."""
    old, new = change.old, change.new
    if old is None or new is None:
        return old is not new
    one, other = old.heading(), new.heading()
    if one.uuid == other.uuid:
        return False
    # Fast path: a successor equals its predecessor in content only if a feature was changed and
    # changed back within one transaction. The storage then writes it byte for byte as before, so
    # different bytes between direct neighbours mean different content and parsing is unnecessary.
    is_next = one.uuid == other.puuid or other.uuid == one.puuid
    if is_next and not _may_be_equal(old, new):
        return True
    return not merge.same(content_of(old.feature), content_of(new.feature))


def _may_be_equal(old: State, new: State) -> bool:
    """Return whether two states may be equal, judged by the bytes around their namespaces.

    The namespaces themselves may still differ in the client's members. A namespace with a brace
    inside a string cannot be delimited this way, so the answer is True, and the caller compares the
    content.
    """
    one, other = old.raw, new.raw
    begin, begin_other = one.find(_NAMESPACE), other.find(_NAMESPACE)
    if begin != begin_other or one[:begin] != other[:begin]:
        return False
    end, end_other = one.find(b"}", begin), other.find(b"}", begin)
    if one.count(b'"', begin, end) % 2 or other.count(b'"', begin, end_other) % 2:
        return True
    return one[end:] == other[end_other:]


async def check_readable(place: Place, collection: str) -> None:
    """Raise Expired when a version is no longer kept.

    Expired states leave no trace, so the diff would silently miss them.
    """
    if place.version.seq_number > 0 and place.at != HEAD:
        with suppress(CollectionNotFound):
            await place.storage.resolve(place.at, collection)


async def states_of(place: Place, collection: str, query: Query) -> AsyncIterator[State]:
    """Iterate over the states of a version; none where the collection is unknown."""
    try:
        async for state in place.storage.states(collection, query, place.at):
            yield state
    except CollectionNotFound:
        return


async def lookup(place: Place, collection: str, ids: Sequence[str]) -> dict[str, State]:
    """Return the live features of a version with these ids."""
    found: dict[str, State] = {}
    if place.version.seq_number == 0:
        return found
    for start in range(0, len(ids), CHUNK):
        query = Query(ids=tuple(ids[start : start + CHUNK]))
        async for state in states_of(place, collection, query):
            found[state.id] = state
    return found


class DiffCandidates(msgspec.Struct, frozen=True):
    """Ids of features that may have changed, and their states in the old and the new version.

    `old` and `new` are None when there are too many states to hold in memory.
    """

    ids: Collection[str]
    old: dict[str, State] | None = None
    new: dict[str, State] | None = None


async def _changed(
    divergence: Divergence, collection: str, among: tuple[str, ...] | None
) -> DiffCandidates:
    """Return the changes since the two versions diverged."""
    if divergence.in_order is None:
        written = Query(ids=among, states=States.ALL, txn_from=divergence.txn + 1)
        sides = [await _ids(place, collection, written) for place in divergence.sides]
        return DiffCandidates(set().union(*sides))
    first, last = divergence.in_order
    if last.at == HEAD:
        found = await _changed_at_head(last, collection, divergence.txn, among)
    else:
        found = await _changed_at_version(last, collection, divergence.txn, among)
    return found if first is divergence.old else DiffCandidates(found.ids, found.new, found.old)


async def _changed_at_version(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> DiffCandidates:
    """Return the states that ended or began up to a fixed version, which no writer can change."""
    if place.line.session is not None:
        # A session runs one query at a time.
        ended, old = await _ended(place, collection, since, among)
        begun, new = await _gather(place, collection, Query(ids=among, txn_from=since + 1))
        return DiffCandidates(ended | begun, old, new)
    replaced = asyncio.ensure_future(_ended(place, collection, since, among))
    try:
        begun, new = await _gather(place, collection, Query(ids=among, txn_from=since + 1))
        ended, old = await replaced
    finally:
        replaced.cancel()
        await asyncio.gather(replaced, return_exceptions=True)
    return DiffCandidates(ended | begun, old, new)


async def _changed_at_head(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> DiffCandidates:
    """Return the changes up to HEAD while other clients write.

    One query over everything written since, tombstones included, determines the changed features.
    The old states are read afterwards, so they include that of every changed feature in this set.
    """
    written = Query(ids=among, states=States.ALL, txn_from=since + 1)
    ids, last = await _gather(place, collection, written)
    _, old = await _ended(place, collection, since, among)
    if last is not None:
        last = {id_: s for id_, s in last.items() if s.heading().action != "DELETE"}
    return DiffCandidates(ids, old, last)


async def _ended(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> tuple[set[str], dict[str, State] | None]:
    """Return the features of an earlier version that were changed or deleted since."""
    if since == 0:
        return set(), {}
    return await _gather(place, collection, Query(ids=among, replaced_since=since))


async def _gather(
    place: Place, collection: str, query: Query
) -> tuple[set[str], dict[str, State] | None]:
    """Return the latest state of each feature; None instead of states when there are too many."""
    found: dict[str, State] = {}
    more: set[str] = set()
    async for state in states_of(place, collection, query):
        known = found.get(state.id)
        if known is None and len(found) == KEPT_MAX:
            more.add(state.id)
        elif known is None or int(known.heading().txn) < int(state.heading().txn):
            found[state.id] = state
    return found.keys() | more, None if more else found


async def _ids(place: Place, collection: str, query: Query) -> set[str]:
    return {state.id async for state in states_of(place, collection, query)}


async def _matching(
    divergence: Divergence, collection: str, changed: list[str], query: Query
) -> list[str]:
    """Return the changed features that match a query, in the same order.

    A feature matches if any state since the divergence, or its state in one of the versions, passes
    the filter on features, and if a state since the divergence passes the filter on changes.
    """
    features, change = split_query(query)
    found = set(changed)
    if change != ALL:
        by = msgspec.structs.replace(change, ids=query.ids, part=query.part)
        found &= await _written(divergence, collection, by)
    if features != Query(ids=query.ids, space=query.space):
        found &= await _matching_features(divergence, collection, sorted(found), features)
    return [id_ for id_ in changed if id_ in found]


async def _written(divergence: Divergence, collection: str, query: Query) -> set[str]:
    """Return the features that have a matching state since the divergence."""
    first = max(divergence.txn + 1, query.txn_from or 0)
    since = msgspec.structs.replace(query, states=States.ALL, txn_from=first)
    found: set[str] = set()
    for place in divergence.sides:
        found |= await _ids(place, collection, since)
    return found


async def _matching_features(
    divergence: Divergence, collection: str, changed: list[str], query: Query
) -> set[str]:
    """Return the features that match in any state since the divergence, or in one version."""
    found = await _written(divergence, collection, query) & set(changed)
    for place in (divergence.old, divergence.new):
        left = [id_ for id_ in changed if id_ not in found]
        for start in range(0, len(left), CHUNK):
            part = msgspec.structs.replace(query, ids=tuple(left[start : start + CHUNK]))
            if place.version.seq_number > 0:
                found |= {state.id async for state in states_of(place, collection, part)}
    return found
