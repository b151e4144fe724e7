"""Merge a line into another one: three-way, feature by feature and property by property.

The base is what both lines have in common: the version where they diverged, or the last merge
between them, which is recorded with the branch (`naksha.versioning.merges.bases`). The history is
therefore never scanned, and changes that were merged once are not merged again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from naksha.model.errors import InvalidArgument, LimitExceeded, Retryable
from naksha.model.merge import Side, merge3, same
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import Storage, StorageReader, WriteSession
from naksha.spi.support.write_merge import content_of
from naksha.versioning.ancestry import Ancestry
from naksha.versioning.branch_bases import pin_merge
from naksha.versioning.diff import FeatureDiff, lookup
from naksha.versioning.lines import Line, Place, at, line_of, line_of_branch
from naksha.versioning.merges.bases import ContestedDiff, MergeBase
from naksha.versioning.merges.conflicts import (
    conflict_id,
    forget_conflict,
    store_conflict,
    without_conflict,
)
from naksha.versioning.merges.resolution_branch import ResolutionPlan, resolution_plan
from naksha.versioning.merges.threeway import conflict_between, differ, merge_states
from naksha.versioning.records import (
    REF,
    STORAGE,
    Attribution,
    Branch,
    MergePoint,
    NameScope,
    UndecidedFeature,
    as_json_value,
    branch_of,
)
from naksha.versioning.state_writer import (
    WAIT_S,
    Plan,
    StateWrite,
    WriteReport,
    collections_of,
    feature_of,
    feature_of_state,
    write_plan,
    write_report,
)
from naksha.versioning.version_refs import MAIN_BRANCH
from naksha.versioning.write_retry import write_with_retries

CHUNK: Final = 10_000
"""Features looked up and decided at once."""


class MergePolicy(StrEnum):
    """The side that prevails where both changed the same place: none, the target, or the source."""

    FAIL = "fail"
    OURS = "ours"
    THEIRS = "theirs"


Choice: TypeAlias = MergePolicy | dict[str, Any]
"""A side, or the feature to write."""
Choices: TypeAlias = Mapping[tuple[str, str], Choice]
"""Choices by collection and feature id."""


@dataclass(frozen=True, slots=True)
class MergeSides:
    """Source and target of a merge, and their merge bases."""

    source: Place
    target: Place
    bases: dict[str, MergeBase]
    """Merge base of each collection that both lines have and that is in scope of both."""
    revisions: dict[str, int]
    """Revisions of the branch records when the merge was planned."""

    @property
    def places(self) -> tuple[Place, Place, Place]:
        """Source, target and the earliest of the bases."""
        bases = [place for base in self.bases.values() for place in base.places]
        base = min(bases, key=lambda place: place.version, default=self.target)
        return self.source, self.target, base


@dataclass(frozen=True, slots=True)
class PlannedMerge:
    """A planned merge: the writes to the target, and the features that need a decision first."""

    sides: MergeSides
    planned: Plan
    open: list[UndecidedFeature]

    def touched(self) -> set[str]:
        return collections_of(self.planned)

    def report(self) -> WriteReport:
        """Return the changes that would be written."""
        return msgspec.structs.replace(write_report(None, self.planned), conflicts=tuple(self.open))


class UndecidedMerge(Exception):
    """A merge cannot be completed without decisions."""

    def __init__(self, planned_merge: PlannedMerge) -> None:
        super().__init__()
        self.planned_merge = planned_merge


Planner: TypeAlias = Callable[[WriteSession | None], Awaitable[PlannedMerge]]


def require_decisions(plan: Planner) -> Planner:
    """Wrap a planner so that it raises UndecidedMerge while features are undecided.

    The wrapper raises Retryable instead if another merge was committed in between and may be the
    cause.
    """

    async def planned(session: WriteSession | None) -> PlannedMerge:
        planned_merge = await plan(session)
        if planned_merge.open:
            await _check_bases(planned_merge.sides)
            raise UndecidedMerge(planned_merge)
        return planned_merge

    return planned


async def _check_bases(sides: MergeSides) -> None:
    """Raise Retryable if a merge was committed after the bases were read.

    The target was read later and may contain what that merge brought, which then looks like a
    change of its own.
    """
    bases = await _bases_of(sides.source, sides.target, sides.bases)
    if not all(base.is_same(bases[name]) for name, base in sides.bases.items()):
        raise Retryable(
            f"Another merge of {sides.source.line.name!r} or {sides.target.line.name!r} was"
            " committed concurrently; retry"
        )


async def merge(
    storage: Storage,
    source: str,
    target: str,
    signed: Attribution,
    *,
    scope: NameScope = STORAGE,
    policy: MergePolicy = MergePolicy.FAIL,
    choices: Choices | None = None,
    dry_run: bool = False,
    solving: bool = False,
) -> WriteReport:
    """Merge the changes of one branch into another one, as one transaction there.

    Args:
        storage: The storage.
        source: The branch to take changes from.
        target: The branch to write to; either may be `main`.
        signed: App id and author, with the commit message.
        scope: The scope of the names; the branches determine which collections are merged.
        policy: The side that prevails in a conflict. FAIL raises MergeConflict, and the conflict is
            stored until a later merge ends it.
        choices: Choices for single features.
        dry_run: Only report what would be written, conflicts included.
        solving: Whether to create a branch to resolve conflicts on, if there are any.

    Raises:
        MergeConflict: Features need a decision; nothing was written.
    """
    decider = MergeDecider(policy, choices or {})

    async def open_target() -> Storage:
        return (await line_of(storage, target, scope)).storage

    async def plan(session: WriteSession | None) -> PlannedMerge:
        sides = await merge_sides(storage, source, target, scope, session)
        return PlannedMerge(sides, *await plan_merge(sides, decider))

    async def write(session: WriteSession, planned_merge: PlannedMerge) -> WriteReport:
        await _write(session, planned_merge, scope, signed)
        return write_report(session.txn, planned_merge.planned)

    if dry_run:
        return (await plan(None)).report()
    try:
        done = await write_with_retries(
            open_target, signed, require_decisions(plan), write, PlannedMerge.touched
        )
    except UndecidedMerge as error:
        planned_merge, resolution = await undecided_merge(
            error.planned_merge, decider, solving=solving
        )
        places, open_ = planned_merge.sides.places, planned_merge.open
        raise await store_conflict(storage, places, open_, signed, solving=resolution) from None
    if done.txn is not None:
        await storage.wait_published(done.txn, WAIT_S)
    return done


# ---- What is merged ------------------------------------------------------------------------------


async def undecided_merge(
    planned_merge: PlannedMerge, decider: MergeDecider, *, solving: bool
) -> tuple[PlannedMerge, ResolutionPlan | None]:
    """Return a merge that needs decisions, and the plan of a branch to resolve it on.

    Such a branch needs a version as its base, so the merge is planned again for published versions.
    """
    if not solving:
        return planned_merge, None
    sides = planned_merge.sides
    source, target = [
        await at(each.line.read_in(None), AtSeq(each.version.seq_number))
        for each in (sides.source, sides.target)
    ]
    bases = {name: base.read_in(None) for name, base in sides.bases.items()}
    fixed = replace(sides, source=source, target=target, bases=bases)
    planned, open_ = await plan_merge(fixed, decider)
    if not open_:
        # The conflicting changes are not published yet.
        return planned_merge, None
    try:
        resolution = resolution_plan(target, planned, open_)
    except LimitExceeded:
        resolution = None
    return PlannedMerge(fixed, planned, open_), resolution


async def merge_sides(
    storage: Storage, source: str, target: str, scope: NameScope, session: WriteSession | None
) -> MergeSides:
    """Return the two sides of a merge of one branch into another."""
    if source == target:
        raise InvalidArgument(
            f"Source and target of a merge must be different branches, but both are {source!r}",
            field="source",
        )
    revisions: dict[str, int] = {}
    reader = session or storage
    into, from_ = [
        (await _line(storage, reader, name, scope, revisions)).read_in(session)
        for name in (target, source)
    ]
    ours, last = await at(into, HEAD), await at(from_, HEAD)
    # Read the source at one version, so that the merge can record it.
    theirs = await at(last.line, AtSeq(last.version.seq_number))
    return await sides_of(theirs, ours, revisions, (from_, into))


async def _line(
    storage: Storage, reader: StorageReader, name: str, scope: NameScope, revisions: dict[str, int]
) -> Line:
    if name == MAIN_BRANCH:
        return await line_of(storage, name)
    branch, revisions[name] = await branch_of(reader, scope, name)
    return line_of_branch(storage, branch)


async def sides_of(
    source: Place, target: Place, revisions: dict[str, int], about: Sequence[Line]
) -> MergeSides:
    """Return two versions to merge, with the collections in scope of all lines of `about`."""
    seen = [{info.id for info in await each.storage.collections()} for each in (source, target)]
    scopes = [line.branch.scope for line in about if line.branch is not None]
    names = [n for n in sorted(seen[0] & seen[1]) if all(scope.covers(n) for scope in scopes)]
    return MergeSides(source, target, await _bases_of(source, target, names), revisions)


async def _bases_of(source: Place, target: Place, names: Iterable[str]) -> dict[str, MergeBase]:
    """Return the merge base of each collection.

    It differs between collections: a branch may be limited to some, or be older than a collection,
    so not every merge brought all of them.
    """
    session, root = source.line.session, source.line.root
    ancestry = await Ancestry.of(root, session or root)
    overlays = await ancestry.overlays_of(session or root, list(names))
    by_overlays: dict[frozenset[int], MergeBase] = {}
    for each in set(overlays.values()):
        known = ancestry.about(each)
        sides = known.contents(source), known.contents(target)
        by_overlays[each] = await MergeBase.of(known, *sides, session)
    return {name: by_overlays[overlays[name]] for name in names}


async def plan_merge(
    sides: MergeSides, decider: MergeDecider
) -> tuple[Plan, list[UndecidedFeature]]:
    """Return the writes to the target, and the features that need a decision."""
    planned: Plan = {}
    open_: list[UndecidedFeature] = []
    for name, base in sides.bases.items():
        async for changes in _chunks(base.changes(sides.source, name)):
            heads = await lookup(sides.target, name, [each.id for each in changes])
            for change in changes:
                write = decider.write(name, change, heads.get(change.id))
                if isinstance(write, UndecidedFeature):
                    open_.append(write)
                elif write is not None:
                    planned.setdefault(name, []).append(write)
    return planned, open_


async def _chunks(changes: AsyncIterator[FeatureDiff]) -> AsyncIterator[list[FeatureDiff]]:
    chunk: list[FeatureDiff] = []
    async for change in changes:
        chunk.append(change)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class MergeDecider:
    """Decides the result where both sides changed a feature."""

    def __init__(self, policy: MergePolicy, choices: Choices) -> None:
        self._policy = policy
        self._choices = choices

    def write(
        self, name: str, change: FeatureDiff, ours: State | None
    ) -> StateWrite | UndecidedFeature | None:
        """Return the write over `ours` for a change of the source, if any."""
        origin = None if change.new is None else change.new.uuid
        found = merge_states(name, change.old, ours, change.new)
        if isinstance(change, ContestedDiff) and differ(ours, change.new):
            found = conflict_between(name, change.id, (None, ours, change.new))
        if isinstance(found, UndecidedFeature):
            found = self._decide(found, change, ours)
            if isinstance(found, StateWrite) and _is_there(found):
                return None
        if isinstance(found, StateWrite):
            return msgspec.structs.replace(found, origin=origin)
        return found

    def _decide(
        self, report: UndecidedFeature, change: FeatureDiff, ours: State | None
    ) -> StateWrite | UndecidedFeature | None:
        choice = self._choices.get((report.collection, report.id), self._policy)
        if isinstance(choice, str):
            choice = MergePolicy(choice)
        if choice is MergePolicy.FAIL:
            return report
        if not isinstance(choice, MergePolicy):
            return StateWrite(report.id, ours, feature_of(_chosen(report, choice)))
        if ours is None or change.new is None:
            # One side deleted it, so there is nothing to combine.
            if choice is MergePolicy.OURS:
                return None
            theirs = change.new
            return StateWrite(report.id, ours, None if theirs is None else feature_of_state(theirs))
        base: Any = {} if change.old is None else content_of(change.old.feature)
        sides = content_of(ours.feature), content_of(change.new.feature)
        prefer: Side = "ours" if choice is MergePolicy.OURS else "theirs"
        return StateWrite(report.id, ours, feature_of(merge3(base, *sides, prefer=prefer).value))


def _is_there(write: StateWrite) -> bool:
    """Return whether the target already has the decided content, so that no write is needed."""
    if write.head is None or write.feature is None:
        return False
    return same(content_of(write.head.feature), content_of(write.feature))


def _chosen(report: UndecidedFeature, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a feature that a caller chose.

    It must be complete: members left out by mistake would be deleted. Tags and `crid` are kept if
    they are not given, as in any write.
    """
    if choice.get("id", report.id) != report.id:
        raise InvalidArgument(
            f"The feature chosen for {report.id!r} has the id {choice['id']!r:.80}; use the same"
            " id",
            field="id",
            feature_id=report.id,
            collection_id=report.collection,
        )
    for member in ("geometry", "properties"):
        if member not in choice:
            raise InvalidArgument(
                f"The feature chosen for {report.id!r} has no {member!r}; pass the complete"
                " feature, with null for empty members",
                field=member,
                feature_id=report.id,
                collection_id=report.collection,
            )
    side = report.ours or report.theirs
    assert side is not None
    return content_of({**choice, "id": report.id}, content_of(side)[XYZ])


# ---- What is written and remembered --------------------------------------------------------------


async def _write(
    session: WriteSession, planned_merge: PlannedMerge, scope: NameScope, signed: Attribution
) -> None:
    sides = planned_merge.sides
    source, target = sides.source, sides.target
    owner = source.line.branch or target.line.branch
    assert owner is not None
    if planned_merge.planned:
        message = signed.message or f"Merge of {source.line.name!r}"
        await write_plan(session, planned_merge.planned, message)
    merged = with_merge_point(owner, sides, await merged_at(session, sides))
    for branch in (source.line.branch, target.line.branch):
        if branch is not None:
            # The record of the other branch stays the same, but rewriting it detects concurrent
            # changes.
            record = merged if branch.name == owner.name else branch
            expected = sides.revisions[branch.name]
            await session.store_object(
                REF, scope.key(branch.name), as_json_value(record), expected=expected
            )
    await pin_merge(session, owner, source.version, sides.bases)
    await forget_conflict(session, conflict_id("merge", source.line, target.line))


async def merged_at(session: WriteSession, sides: MergeSides) -> int:
    """Return the transaction after which the target contains all of the source.

    It is the one that brought the changes, or the last one if the target already had them all,
    published or not.
    """
    return session.txn or await last_txn(session, sides.target, sides.bases)


async def last_txn(session: WriteSession, source: Place, names: Iterable[str]) -> int:
    """Return the last transaction on a branch, published or not, that changed these collections."""
    source = source.read_in(session)
    last = source.version.txn
    since = Query(states=States.ALL, txn_from=last + 1)
    for name in names:
        async for state in source.storage.states(name, since):
            last = max(last, state.txn)
    return last


def with_merge_point(branch: Branch, sides: MergeSides, txn: int) -> Branch:
    """Return the branch with the new merge point, and without the conflict about it."""
    epoch, source, target = branch.now, sides.source, sides.target
    if source.line.name == branch.name:
        other = target.line.overlay
        point = MergePoint(source.version.txn, txn).after(epoch.merged_into.get(other))
        epoch = msgspec.structs.replace(epoch, merged_into=epoch.merged_into | {other: point})
    else:
        other = source.line.overlay
        point = MergePoint(txn, source.version.txn).after(epoch.merged_from.get(other))
        epoch = msgspec.structs.replace(epoch, merged_from=epoch.merged_from | {other: point})
    merged = msgspec.structs.replace(branch, epochs=(*branch.epochs[:-1], epoch))
    return without_conflict(merged, conflict_id("merge", source.line, target.line))
