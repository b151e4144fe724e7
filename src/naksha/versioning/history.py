"""The history of features: each of their states with author, time and changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from naksha.model import merge
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.version import AtTxn
from naksha.versioning.diff import CHUNK, check_readable, diff, lookup, states_of, visible
from naksha.versioning.divergence import divergence_of
from naksha.versioning.lines import Place, at, line_of_branch, place_before
from naksha.versioning.records import BranchEpoch


class HistoryStep(msgspec.Struct, frozen=True):
    """A state of a feature, with the state before it, if any."""

    id: str
    state: State
    previous: State | None

    @property
    def actor(self) -> tuple[str | None, str]:
        """The author and the app id."""
        xyz = self.state.xyz
        return xyz["author"], xyz["appId"]

    @property
    def started_ms(self) -> int:
        """The start of the transaction in epoch milliseconds."""
        return int(self.state.xyz["updatedAt"])

    @property
    def action(self) -> str:
        """CREATE, UPDATE or DELETE."""
        return str(self.state.xyz["action"])

    def paths(self) -> list[str]:
        """Return the changed paths as JSON pointers; none for a deletion."""
        return merge.changed_paths(self._before(), visible(self.state))

    def patch(self) -> list[dict[str, Any]]:
        """Return the RFC 6902 patch from the previous state."""
        return merge.json_patch(self._before(), visible(self.state))

    def _before(self) -> dict[str, Any]:
        # A feature that is created again after a deletion has no predecessor. A CREATE over a live
        # state comes from a rebase, which creates again what existed before; it does have one.
        previous = self.previous
        if previous is None or (self.action == "CREATE" and previous.xyz["action"] == "DELETE"):
            return {}
        return visible(previous)


async def history(
    first: Place, last: Place, collection: str, query: Query | None = None
) -> AsyncIterator[HistoryStep]:
    """Iterate over the states that began after one version, up to and including a later one.

    The states are ordered by feature and time. With a query only states that match it.

    The first version must be in the past of the last one: on its line, or on one that it was made
    from. If the branch was rebased in between, each feature that differs on the new base has a step
    to its state there, regardless of who wrote it on the new base.
    """
    query_or_all = query or Query()
    if (
        query_or_all.limit is not None
        or query_or_all.cursor is not None
        or query_or_all.replaced_since is not None
    ):
        raise InvalidArgument(
            "A history does not support limit, cursor or replaced_since; remove them from the"
            " query",
            field="query",
        )
    parts: list[AsyncIterator[HistoryStep]] = []
    for begin, end in await _stretches(first, last):
        for place in (begin, end):
            await check_readable(place, collection)
        steps = _steps if _is_past(begin, end) else _moved
        parts.append(steps(begin, end, collection, query_or_all))
    async for step in _by_feature(parts):
        yield step


async def _stretches(first: Place, last: Place) -> list[tuple[Place, Place]]:
    """Split the way between two versions into pairs of versions.

    Each pair is a version and one of its ancestors, or the two sides of a rebase.
    """
    found: list[tuple[Place, Place]] = []
    begin, branch = first, last.line.branch
    for epoch in _rebases(first, last):
        assert branch is not None
        after = await at(line_of_branch(last.line.root, branch, epoch), AtTxn(epoch.since))
        before = await place_before(after)
        found += [(begin, before), (before, after)]
        begin = after
    found.append((begin, last))
    if not all(_is_past(*stretch) for stretch in found[::2]):
        raise InvalidArgument(
            f"Version {first.version.seq_number} of {first.line.name!r} is not in the past of"
            f" version {last.version.seq_number} of {last.line.name!r}; a history needs an earlier"
            " and a later version of one line, use a diff to compare any two versions",
            field="first",
        )
    return found


def _rebases(first: Place, last: Place) -> list[BranchEpoch]:
    """Return the epochs that rebases began between two versions of a branch."""
    branch = last.line.branch
    if branch is None:
        return []
    until = [epoch.overlay for epoch in branch.epochs].index(last.line.overlay)
    return [each for each in branch.epochs[1 : until + 1] if each.since > first.version.txn]


def _is_past(old: Place, new: Place) -> bool:
    """Return whether a version contains everything of an older one."""
    return divergence_of(old, new).txn == old.version.txn


async def _steps(
    first: Place, last: Place, collection: str, query_or_all: Query
) -> AsyncIterator[HistoryStep]:
    """Iterate over the states that began since a version, ordered by feature and time."""
    begin = first.version.txn + 1
    since = msgspec.structs.replace(
        query_or_all, states=States.ALL, txn_from=max(begin, query_or_all.txn_from or 0)
    )
    wanted = {s.heading().uuid: s.id async for s in states_of(last, collection, since)}
    ids = sorted(set(wanted.values()))
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        before = await lookup(first, collection, part)
        all_since = Query(states=States.ALL, ids=tuple(part), txn_from=begin)
        found = [state async for state in states_of(last, collection, all_since)]
        found.sort(key=lambda state: (state.id, state.txn))
        for state in found:
            if state.uuid in wanted:
                yield HistoryStep(state.id, state, before.get(state.id))
            before[state.id] = state


async def _moved(
    before: Place, after: Place, collection: str, query_or_all: Query
) -> AsyncIterator[HistoryStep]:
    """Iterate over the features that a rebase changed, ordered by id.

    These are the features that it wrote, and those that differ on the new base.
    """
    txn = after.version.txn
    written = Query(states=States.ALL, txn_from=txn, txn_to=txn + 1)
    changed = {state.id async for state in states_of(after, collection, written)}
    changed |= {change.id async for change in diff(before, after, collection)}
    ids = sorted(changed if query_or_all.ids is None else changed & set(query_or_all.ids))
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        old = await lookup(before, collection, part)
        found: list[State] = []
        for kind in (States.LIVE, States.DELETED):
            now = msgspec.structs.replace(query_or_all, ids=tuple(part), states=kind)
            found += [state async for state in states_of(after, collection, now)]
        for state in sorted(found, key=lambda state: state.id):
            yield HistoryStep(state.id, state, old.get(state.id))


async def _by_feature(parts: list[AsyncIterator[HistoryStep]]) -> AsyncIterator[HistoryStep]:
    """Merge several iterators by feature; steps of one feature keep the order of the parts."""
    heads = [await anext(part, None) for part in parts]
    while left := [head.id for head in heads if head is not None]:
        id_ = min(left)
        for number, part in enumerate(parts):
            while (head := heads[number]) is not None and head.id == id_:
                yield head
                heads[number] = await anext(part, None)
