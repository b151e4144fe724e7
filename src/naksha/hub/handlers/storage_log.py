"""What a stored space answers about its log, its differences and its history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

import msgspec

from naksha.hub import version_requests as asked
from naksha.hub import version_responses as told
from naksha.hub.pipeline import Event
from naksha.hub.responses import Features, begun
from naksha.hub.targets import Target, check_kept_by_owner
from naksha.model import limits
from naksha.model.errors import NotYetPublished
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import LogFilter
from naksha.model.version import HEAD, AtSeq
from naksha.versioning import (
    Changeset,
    Line,
    Place,
    changesets,
    diff,
    history,
    parse_ref,
    place_of,
    range_of,
)
from naksha.versioning.places import line_of_branch
from naksha.versioning.records import Branch, find
from naksha.versioning.refs import MAIN_BRANCH, Everything, Named, One, Range, Ref

CHANGESETS_AT_ONCE: Final = 100
"""Changesets of one answer at most, however few features they have."""


async def read_changesets(
    target: Target, request: asked.ReadChangesets, event: Event
) -> told.Changesets:
    """A part of the log of a branch."""
    # What the oldest version changed is kept with it.
    first, last = await _range(target, request.ref, target.min_version - 1)
    check_kept_by_owner(target, first.version.seq_number + 1)
    after = max(first.version.seq_number, request.after)
    where = LogFilter(
        collections=(target.collection.id,),
        authors=request.authors,
        from_ms=request.from_ms,
        to_ms=request.to_ms,
    )
    found, goes_on = await _next_changes(target, last, where, after)
    chosen = _within(target, found, request.limit)
    if chosen:
        # Said now that the features are gone, not in the middle of the answer.
        oldest = AtSeq(chosen[0].version.seq_number)
        await last.line.storage.resolve(oldest, target.collection.id)
    is_more = len(chosen) < len(found) or goes_on
    space = event.space.id
    return told.Changesets(
        start_version=after,
        end_version=last.version.seq_number,
        changesets=[
            _changed(target, last.line, each, space, request.operations) for each in chosen
        ],
        after=chosen[-1].version.seq_number if is_more and chosen else None,
    )


async def _next_changes(
    target: Target, last: Place, where: LogFilter, after: int
) -> tuple[list[Changeset], bool]:
    """The next changesets that changed features, and whether the log goes on behind them. Others
    made the collection, or set it up, which is nothing that features tell of."""
    while True:
        page = await changesets(
            last.line, where=where, after=after, limit=CHANGESETS_AT_ONCE, newest_first=False
        )
        inside = [each for each in page.changesets if each.version <= last.version]
        found = [each for each in inside if _features_changed(target, each) > 0]
        if page.after is None or len(inside) < len(page.changesets):
            return found, False
        if found:
            return found, True
        after = page.after


def _features_changed(target: Target, changeset: Changeset) -> int:
    return sum(
        touched.created + touched.updated + touched.deleted
        for touched in changeset.touched
        if touched.collection == target.collection.id
    )


def _within(target: Target, found: Sequence[Changeset], limit: int) -> list[Changeset]:
    """As many as have about so many features together, one at least."""
    chosen: list[Changeset] = []
    for each in found:
        if chosen and limit <= 0:
            break
        chosen.append(each)
        limit -= _features_changed(target, each)
    return chosen


def _changed(
    target: Target, line: Line, found: Changeset, space: str, operations: Collection[str]
) -> told.ChangedFeatures:
    if line.branch is not None:
        # Written on the base that the branch had then.
        line = line_of_branch(line.root, line.branch, line.branch.epoch_on(found.overlay))

    def features(operation: str, action: str) -> Features:
        if operations and operation not in operations:
            return Features.of(())
        return Features(lambda _: _states_of(target, line, found, action, space))

    return told.ChangedFeatures(
        found, features("I", "CREATE"), features("U", "UPDATE"), features("D", "DELETE")
    )


async def _states_of(
    target: Target, line: Line, found: Changeset, action: str, space: str
) -> AsyncIterator[Sequence[State]]:
    txn = found.version.txn
    query = Query(states=States.ALL, txn_from=txn, txn_to=txn + 1, actions=(action,), space=space)
    states: list[State] = []
    moment = AtSeq(found.version.seq_number)
    async for state in line.storage.states(target.collection.id, query, moment):
        states.append(state)
        if len(states) == limits.READ_CHUNK_FEATURES:
            yield states
            states = []
    if states:
        yield states


async def read_version_span(
    target: Target, request: asked.ReadVersionSpan, event: Event
) -> told.VersionSpan:
    """From the oldest version that was not given up to the newest."""
    line = (await place_of(target.storage, request.ref, target.scope)).line
    where = LogFilter(collections=(target.collection.id,))
    last = (await changesets(line, where=where, limit=1)).changesets
    oldest = (await changesets(line, where=where, limit=1, newest_first=False)).changesets
    first = oldest[0].version.seq_number if oldest else 0
    return told.VersionSpan(
        max(first, target.min_version), last[0].version.seq_number if last else 0
    )


async def forget_versions(target: Target, request: asked.ForgetVersions, event: Event) -> None:
    """Only what was published can be given up."""
    last = await target.storage.resolve(HEAD)
    if request.older_than > last.seq_number:
        raise NotYetPublished(
            f"The last version is {last.seq_number}, not {request.older_than}", field="version"
        )


async def read_diff(target: Target, request: asked.ReadDiff, event: Event) -> told.Differences:
    """The features that differ."""
    if request.other is None:
        old, new = await _range(target, request.ref, target.min_version)
    else:
        old = await place_of(target.storage, request.ref, target.scope)
        new = await place_of(target.storage, request.other, target.scope)
    check_kept_by_owner(target, old.version.seq_number)
    query = msgspec.structs.replace(request.query, space=event.space.id)
    changes = await begun(diff(old, new, target.collection.id, query))
    return told.Differences(old.version.seq_number, new.version.seq_number, changes)


async def read_history(
    target: Target, request: asked.ReadHistory, event: Event
) -> told.FeatureHistory:
    """Who did what."""
    first, last = await _range(target, request.ref, target.min_version)
    check_kept_by_owner(target, first.version.seq_number)
    query = msgspec.structs.replace(request.query, space=event.space.id)
    steps = history(first, last, target.collection.id, query)
    return told.FeatureHistory(await begun(steps))


async def _range(target: Target, ref: str, oldest: int) -> tuple[Place, Place]:
    """Everything of a branch since the oldest version, unless a version or a range is given."""
    parsed = parse_ref(ref or "*")
    branch = await _branch_alone(target, parsed)
    if branch is not None:
        parsed = Everything(branch)
    if isinstance(parsed, Everything) and target.min_version:
        parsed = Range(parsed.branch, AtSeq(oldest), HEAD)
    return await range_of(target.storage, parsed, target.scope)


async def _branch_alone(target: Target, parsed: Ref) -> str | None:
    """The branch, if nothing but one is said: by its name, or by its head."""
    if not isinstance(parsed, One):
        return None
    if isinstance(parsed.point, Named) and parsed.branch == MAIN_BRANCH:
        known = await find(target.storage, target.scope, parsed.point.name)
        is_branch = known is not None and isinstance(known.record, Branch)
        return parsed.point.name if is_branch else None
    return parsed.branch if parsed.point == HEAD else None
