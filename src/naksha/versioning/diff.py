"""The difference between two versions, on one line or on two.

What changed is found by the transactions that changed it, so the cost follows the number of
changes, not the size of the collection. Where one version comes from the other, the states that
began since then and are valid now, and those that were valid then and have ended since, are all
there is to know. Between two lines, what began after the place where they part gives the ids, and
these are looked up in both versions.
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
from naksha.versioning.change_filters import ALL, split
from naksha.versioning.fork_points import Fork, fork_of
from naksha.versioning.lines import Place

CHUNK: Final = 10_000
"""Features looked up at once."""
KEPT_MAX: Final = 50_000
"""States kept in memory; of more only the ids."""
_NAMESPACE: Final = f'"{XYZ}"'.encode()


class Action(StrEnum):
    """What became of a feature between two versions."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class Change(msgspec.Struct, frozen=True, gc=False):
    """A feature that is not the same in two versions."""

    collection: str
    id: str
    old: State | None
    new: State | None

    @property
    def action(self) -> Action:
        if self.old is None:
            return Action.CREATED
        return Action.DELETED if self.new is None else Action.UPDATED

    def paths(self) -> list[str]:
        """The places that changed, as JSON pointers into the feature, tags and `crid` included."""
        return merge.changed_paths(self._content(self.old), self._content(self.new))

    def patch(self) -> list[dict[str, Any]]:
        """The RFC 6902 patch from the old feature to the new one."""
        return merge.json_patch(self._content(self.old), self._content(self.new))

    @staticmethod
    def _content(state: State | None) -> Any:
        return {} if state is None else visible(state)


def visible(state: State) -> dict[str, Any]:
    """A feature without what the storage says about it; of the namespace only what is the
    client's."""
    content = content_of(state.feature)
    content["properties"] = {**content["properties"], XYZ: content.pop(XYZ)}
    return content


async def diff(
    old: Place, new: Place, collection: str, query: Query | None = None
) -> AsyncIterator[Change]:
    """The features that differ between two versions, ordered by id.

    Those that are different but equal in content (changed and changed back) are left out. With a
    query only those that matched it in some state in between, or in one of the two versions; its
    authors, app ids, actions and times are those of the states in between (see `filters`). Its
    `limit` and `cursor` are about pages of states and refused here.
    """
    asked = query or Query()
    if asked.limit is not None or asked.cursor is not None or asked.states is not States.LIVE:
        raise InvalidArgument("A difference has no limit, cursor or kind of states", field="query")
    if asked.replaced_since is not None:
        raise InvalidArgument("A difference has its own two versions", field="query")
    for place in (old, new):
        await check_readable(place, collection)
    fork = fork_of(old, new)
    found = await _changed(fork, collection, asked.ids)
    ids = sorted(found.ids)
    if asked != Query(ids=asked.ids, space=asked.space):
        ids = await _matching(fork, collection, ids, asked)
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        before = await lookup(old, collection, part) if found.old is None else found.old
        after = await lookup(new, collection, part) if found.new is None else found.new
        for id_ in part:
            change = Change(collection, id_, before.get(id_), after.get(id_))
            if is_change(change):
                yield change


async def diff_all(
    old: Place, new: Place, query: Query | None = None, collections: Iterable[str] | None = None
) -> AsyncIterator[Change]:
    """The same over several collections, or all of the storage, in their order."""
    for name in await names_in(old, new, collections):
        async for change in diff(old, new, name, query):
            yield change


async def names_in(old: Place, new: Place, collections: Iterable[str] | None) -> list[str]:
    """The collections to look at: those given, or all that are there now."""
    if collections is not None:
        return sorted(collections)
    return sorted({info.id for place in (old, new) for info in await place.storage.collections()})


def is_change(change: Change) -> bool:
    """Whether there is a difference that somebody can see."""
    old, new = change.old, change.new
    if old is None or new is None:
        return old is not new
    one, other = old.heading(), new.heading()
    if one.uuid == other.uuid:
        return False
    # A state is followed by an equal one only when it was changed and changed back at once: then it
    # is written as it was, and one need not look inside of all the others.
    is_next = one.uuid == other.puuid or other.uuid == one.puuid
    if is_next and not _spelled_the_same(old, new):
        return True
    return not merge.same(content_of(old.feature), content_of(new.feature))


def _spelled_the_same(old: State, new: State) -> bool:
    """Whether two states have the same bytes around their namespaces, which may still be different
    in what is the client's. Where a brace stands in a text of the namespace, it may be so."""
    one, other = old.raw, new.raw
    begin, begin_other = one.find(_NAMESPACE), other.find(_NAMESPACE)
    if begin != begin_other or one[:begin] != other[:begin]:
        return False
    end, end_other = one.find(b"}", begin), other.find(b"}", begin)
    if one.count(b'"', begin, end) % 2 or other.count(b'"', begin, end_other) % 2:
        return True
    return one[end:] == other[end_other:]


async def check_readable(place: Place, collection: str) -> None:
    """What has expired leaves no trace, and must not pass for what never changed."""
    if place.version.seq_number > 0 and place.at != HEAD:
        with suppress(CollectionNotFound):
            await place.storage.resolve(place.at, collection)


async def states_of(place: Place, collection: str, query: Query) -> AsyncIterator[State]:
    """The states of a version; none where the collection is unknown."""
    try:
        async for state in place.storage.states(collection, query, place.at):
            yield state
    except CollectionNotFound:
        return


async def lookup(place: Place, collection: str, ids: Sequence[str]) -> dict[str, State]:
    """The live features of a version with these ids."""
    found: dict[str, State] = {}
    if place.version.seq_number == 0:
        return found
    for start in range(0, len(ids), CHUNK):
        query = Query(ids=tuple(ids[start : start + CHUNK]))
        async for state in states_of(place, collection, query):
            found[state.id] = state
    return found


class Found(msgspec.Struct, frozen=True):
    """The ids of all features that may have changed, and those that are live in either version;
    None where these are too many to keep."""

    ids: Collection[str]
    old: dict[str, State] | None = None
    new: dict[str, State] | None = None


async def _changed(fork: Fork, collection: str, among: tuple[str, ...] | None) -> Found:
    """What was written since the two versions parted."""
    if fork.in_order is None:
        written = Query(ids=among, states=States.ALL, txn_from=fork.txn + 1)
        sides = [await _ids(place, collection, written) for place in fork.sides]
        return Found(set().union(*sides))
    first, last = fork.in_order
    if last.at == HEAD:
        found = await _changed_at_head(last, collection, fork.txn, among)
    else:
        found = await _changed_at_version(last, collection, fork.txn, among)
    return found if first is fork.old else Found(found.ids, found.new, found.old)


async def _changed_at_version(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> Found:
    """What has ended and what has begun until a version, which nobody changes any more."""
    if place.line.session is not None:
        # A session asks one thing after the other.
        ended, old = await _ended(place, collection, since, among)
        begun, new = await _gather(place, collection, Query(ids=among, txn_from=since + 1))
        return Found(ended | begun, old, new)
    replaced = asyncio.ensure_future(_ended(place, collection, since, among))
    try:
        begun, new = await _gather(place, collection, Query(ids=among, txn_from=since + 1))
        ended, old = await replaced
    finally:
        replaced.cancel()
        await asyncio.gather(replaced, return_exceptions=True)
    return Found(ended | begun, old, new)


async def _changed_at_head(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> Found:
    """The same while others write: what is different is settled by one look at all that was
    written, tombstones too. What has ended by then is found afterwards."""
    written = Query(ids=among, states=States.ALL, txn_from=since + 1)
    ids, last = await _gather(place, collection, written)
    _, old = await _ended(place, collection, since, among)
    if last is not None:
        last = {id_: s for id_, s in last.items() if s.heading().action != "DELETE"}
    return Found(ids, old, last)


async def _ended(
    place: Place, collection: str, since: int, among: tuple[str, ...] | None
) -> tuple[set[str], dict[str, State] | None]:
    """The features of an earlier version that have changed."""
    if since == 0:
        return set(), {}
    return await _gather(place, collection, Query(ids=among, replaced_since=since))


async def _gather(
    place: Place, collection: str, query: Query
) -> tuple[set[str], dict[str, State] | None]:
    """The last one of the states of each feature; of too many only the ids."""
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


async def _matching(fork: Fork, collection: str, changed: list[str], query: Query) -> list[str]:
    """Those of the changed features that match in any state since, or in one of the versions, and
    of which a state since then was made by the authors and in the time that are asked for."""
    features, change = split(query)
    found = set(changed)
    if change != ALL:
        by = msgspec.structs.replace(change, ids=query.ids, part=query.part)
        found &= await _written(fork, collection, by)
    if features != Query(ids=query.ids, space=query.space):
        found &= await _matching_features(fork, collection, sorted(found), features)
    return [id_ for id_ in changed if id_ in found]


async def _written(fork: Fork, collection: str, query: Query) -> set[str]:
    """The features with a state since the fork that matches."""
    first = max(fork.txn + 1, query.txn_from or 0)
    since = msgspec.structs.replace(query, states=States.ALL, txn_from=first)
    found: set[str] = set()
    for place in fork.sides:
        found |= await _ids(place, collection, since)
    return found


async def _matching_features(
    fork: Fork, collection: str, changed: list[str], query: Query
) -> set[str]:
    """The features that match in any state since the fork, or in one of the versions."""
    found = await _written(fork, collection, query) & set(changed)
    for place in (fork.old, fork.new):
        left = [id_ for id_ in changed if id_ not in found]
        for start in range(0, len(left), CHUNK):
            part = msgspec.structs.replace(query, ids=tuple(left[start : start + CHUNK]))
            if place.version.seq_number > 0:
                found |= {state.id async for state in states_of(place, collection, part)}
    return found
