"""What a stored space answers about its versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from naksha.hub import version_requests as asked
from naksha.hub import version_responses as told
from naksha.hub.context import Actor
from naksha.hub.pipeline import Event
from naksha.hub.requests import Request
from naksha.hub.responses import Features, begun
from naksha.hub.targets import Target, check_kept_by_owner
from naksha.model import limits
from naksha.model.errors import CollectionNotFound, InvalidArgument, NotFound, NotYetPublished
from naksha.model.query import Query, States
from naksha.model.state import State
from naksha.model.transaction import MAIN, LogFilter
from naksha.model.version import HEAD, AtSeq, AtTxn
from naksha.versioning import (
    Branch,
    Changeset,
    Line,
    Place,
    Signed,
    Tag,
    Written,
    branches,
    changesets,
    conflict_of,
    conflicts,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    diff,
    give_up_conflict,
    history,
    line_of,
    merge,
    parse_ref,
    place_of,
    range_of,
    rebase,
    rename_branch,
    resolve_conflict,
    revert,
    rollback,
    tag_of,
    tags,
    undecided_of,
)
from naksha.versioning.places import line_of_branch
from naksha.versioning.rebase import parent_of
from naksha.versioning.records import branch_of, branch_with
from naksha.versioning.refs import MAIN_BRANCH, Everything, One, Range

CHANGESETS_AT_ONCE: Final = 100
"""Changesets of one answer at most, however few features they have."""


# ---- The log -------------------------------------------------------------------------------------


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
    page = await changesets(
        last.line, where=where, after=after, limit=CHANGESETS_AT_ONCE, newest_first=False
    )
    inside = [each for each in page.changesets if each.version <= last.version]
    chosen = _within(target, inside, request.limit)
    if chosen:
        # Said now that the features are gone, not in the middle of the answer.
        oldest = AtSeq(chosen[0].version.seq_number)
        await last.line.storage.resolve(oldest, target.collection.id)
    is_more = len(chosen) < len(inside) or (page.after is not None and inside == page.changesets)
    space = event.space.id
    return told.Changesets(
        start_version=after,
        end_version=last.version.seq_number,
        changesets=[
            _changed(target, last.line, each, space, request.operations) for each in chosen
        ],
        after=chosen[-1].version.seq_number if is_more and chosen else None,
    )


def _within(target: Target, found: Sequence[Changeset], limit: int) -> list[Changeset]:
    """As many as have about so many features together, one at least."""
    chosen: list[Changeset] = []
    for each in found:
        if chosen and limit <= 0:
            break
        chosen.append(each)
        limit -= sum(
            touched.created + touched.updated + touched.deleted
            for touched in each.touched
            if touched.collection == target.collection.id
        )
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
    line = await line_of(target.storage, parse_ref(request.ref).branch, target.scope)
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
    if isinstance(parsed, One) and parsed.point == HEAD:
        parsed = Everything(parsed.branch)
    if isinstance(parsed, Everything) and target.min_version:
        parsed = Range(parsed.branch, AtSeq(oldest), HEAD)
    return await range_of(target.storage, parsed, target.scope)


# ---- Going back, and merging ---------------------------------------------------------------------


async def roll_back(target: Target, request: asked.RollBack, event: Event) -> told.Rewritten:
    """Be as before."""
    line = await line_of(target.storage, parse_ref(request.ref).branch, target.scope)
    to = await place_of(target.storage, request.to, target.scope)
    check_kept_by_owner(target, to.version.seq_number)
    written = await rollback(
        line,
        to,
        _signed(event, request.message),
        collections=(target.collection.id,),
        query=request.query,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def take_back(target: Target, request: asked.Revert, event: Event) -> told.Rewritten:
    """Without one version."""
    line = await line_of(target.storage, parse_ref(request.ref).branch, target.scope)
    version = await place_of(target.storage, request.version, target.scope)
    written = await revert(
        line,
        version,
        _signed(event, request.message),
        collections=(target.collection.id,),
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def merge_branch(target: Target, request: asked.Merge, event: Event) -> told.Rewritten:
    """One branch into another one."""
    written = await merge(
        target.storage,
        request.source,
        request.target,
        _signed(event, request.message),
        scope=target.scope,
        policy=request.policy,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def rebase_branch(target: Target, request: asked.Rebase, event: Event) -> told.Rewritten:
    """A branch on another base."""
    written = await rebase(
        target.storage,
        request.branch,
        _signed(event, request.message),
        request.onto,
        scope=target.scope,
        policy=request.policy,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def resolve(target: Target, request: asked.ResolveConflict, event: Event) -> told.Rewritten:
    """A merge with its decisions."""
    await _own_conflict(target, request.conflict)
    choices = {(target.collection.id, id): choice for id, choice in request.choices.items()}
    written = await resolve_conflict(
        target.storage,
        request.conflict,
        choices,
        _signed(event, request.message),
        policy=request.policy,
    )
    return await _rewritten(target, written)


async def give_up(target: Target, request: asked.GiveUpConflict, event: Event) -> None:
    """No merge."""
    await _own_conflict(target, request.conflict)
    await give_up_conflict(target.storage, request.conflict, _signed(event))


async def read_conflicts(
    target: Target, request: asked.ReadConflicts, event: Event
) -> told.Conflicts:
    """What waits for a decision."""
    branch, _ = await branch_of(target.storage, target.scope, request.branch)
    waiting = [each for each in await conflicts(target.storage) if each.id in branch.conflicts]
    return told.Conflicts(
        [(each, [one async for one in undecided_of(target.storage, each.id)]) for each in waiting]
    )


async def _own_conflict(target: Target, id: str) -> None:
    """A space knows its own conflicts only."""
    found = await conflict_of(target.storage, id)
    if found.scope.space != target.scope.space:
        raise NotFound(f"There is no conflict {id!r}", field="conflict")


async def _rewritten(target: Target, written: Written) -> told.Rewritten:
    version = None
    if written.txn is not None:
        version = await target.storage.wait_published(written.txn, limits.PUBLISH_WAIT_SECONDS)
    name = target.collection.id
    return told.Rewritten(
        version=None if version is None else version.seq_number,
        inserted=written.created.get(name, []),
        updated=written.updated.get(name, []),
        deleted=written.deleted.get(name, []),
        conflicts=written.conflicts,
    )


# ---- Names for versions --------------------------------------------------------------------------


async def list_tags(target: Target, request: asked.ListTags, event: Event) -> list[Tag]:
    """All of the space."""
    return await tags(target.storage, space=target.scope.space)


async def get_tag(target: Target, request: asked.GetTag, event: Event) -> Tag:
    """One of them."""
    return await tag_of(target.storage, request.name, scope=target.scope)


async def put_tag(target: Target, request: asked.PutTag, event: Event) -> Tag:
    """A new one, or one that moves."""
    await _ensure_collection(target, event.context.actor)
    return await create_tag(
        target.storage,
        request.name,
        _signed(event, request.description),
        request.ref or "HEAD",
        scope=target.scope,
        force=request.moves,
    )


async def drop_tag(target: Target, request: asked.DropTag, event: Event) -> None:
    """One less."""
    await delete_tag(target.storage, request.name, _signed(event), scope=target.scope)


async def list_branches(
    target: Target, request: asked.ListBranches, event: Event
) -> list[told.BranchState]:
    """All of the space."""
    known = await branches(target.storage, space=target.scope.space)
    return [await _branch_state(target, branch) for branch in known]


async def get_branch(target: Target, request: asked.GetBranch, event: Event) -> told.BranchState:
    """One of them."""
    branch, _ = await branch_of(target.storage, target.scope, request.name)
    return await _branch_state(target, branch)


async def make_branch(target: Target, request: asked.MakeBranch, event: Event) -> told.BranchState:
    """A new one."""
    await _ensure_collection(target, event.context.actor)
    branch = await create_branch(
        target.storage,
        request.name,
        _signed(event, request.description),
        request.ref or "HEAD",
        scope=target.scope,
    )
    return await _branch_state(target, branch)


async def name_branch(
    target: Target, request: asked.RenameBranch, event: Event
) -> told.BranchState:
    """Another name."""
    branch = await rename_branch(
        target.storage, request.name, request.new_name, _signed(event), scope=target.scope
    )
    return await _branch_state(target, branch)


async def _branch_state(target: Target, branch: Branch) -> told.BranchState:
    merges = {}
    for overlay, point in branch.now.merged_into.items():
        ours = await _seq_number(target, point.ours)
        other = await branch_with(target.storage, overlay) if overlay != MAIN else None
        name = MAIN_BRANCH if other is None else other[0].name
        merges[str(ours)] = f"{name}:{await _seq_number(target, point.theirs)}"
    base = await _seq_number(target, branch.now.below[0].txn or 0)
    parent = await parent_of(target.storage, branch)
    return told.BranchState(branch, f"{parent}:{base}", merges)


async def _seq_number(target: Target, txn: int) -> int:
    """The version that a transaction made; 0 before all of them."""
    return (await target.storage.resolve(AtTxn(txn))).seq_number if txn else 0


async def drop_branch(target: Target, request: asked.DropBranch, event: Event) -> None:
    """One less."""
    await delete_branch(target.storage, request.name, _signed(event), scope=target.scope)


async def _ensure_collection(target: Target, actor: Actor) -> None:
    """What nobody wrote to yet can have tags and branches, too."""
    try:
        await target.storage.collection(target.collection.id)
    except CollectionNotFound:
        async with target.storage.write(actor.app_id, actor.author) as session:
            await session.create_collection(target.collection)


def _signed(event: Event, message: str | None = None) -> Signed:
    actor = event.context.actor
    if message is not None and len(message) > limits.DESCRIPTION_LENGTH_MAX:
        raise InvalidArgument(
            f"It has more than {limits.DESCRIPTION_LENGTH_MAX} characters", field="description"
        )
    return Signed(actor.app_id, actor.author, message)


VERSION_ANSWERS: Final[dict[type[Request[Any]], Callable[[Target, Any, Event], Awaitable[Any]]]] = {
    asked.ReadChangesets: read_changesets,
    asked.ReadDiff: read_diff,
    asked.ReadHistory: read_history,
    asked.ReadVersionSpan: read_version_span,
    asked.ForgetVersions: forget_versions,
    asked.RollBack: roll_back,
    asked.Revert: take_back,
    asked.Merge: merge_branch,
    asked.Rebase: rebase_branch,
    asked.ResolveConflict: resolve,
    asked.GiveUpConflict: give_up,
    asked.ReadConflicts: read_conflicts,
    asked.ListTags: list_tags,
    asked.GetTag: get_tag,
    asked.PutTag: put_tag,
    asked.DropTag: drop_tag,
    asked.ListBranches: list_branches,
    asked.GetBranch: get_branch,
    asked.MakeBranch: make_branch,
    asked.RenameBranch: name_branch,
    asked.DropBranch: drop_branch,
}
