"""Rollback, revert, merge, rebase and conflict resolution of a stored space."""

from __future__ import annotations

from naksha.hub.handlers.version_author import signed_by
from naksha.hub.pipeline import version_requests, version_responses
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.targets import CollectionTarget, check_kept_by_owner
from naksha.hub.write.conflicted_branches import check_writable, is_for_solving, solving_branch
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotFound
from naksha.model.transaction import MAIN
from naksha.versioning import (
    Branch,
    Line,
    MergePolicy,
    WriteReport,
    conflict_of,
    conflicts,
    give_up_conflict,
    merge,
    merge_resolution,
    parse_ref,
    rebase,
    resolve_conflict,
    revert,
    rollback,
    undecided_of,
)
from naksha.versioning.lines import RefResolver
from naksha.versioning.version_refs import MAIN_BRANCH


async def roll_back(
    target: CollectionTarget, request: version_requests.RollBack, event: Event
) -> version_responses.Rewritten:
    """Restore the state of an earlier version."""
    refs = target.resolver()
    line = await _writable_line(refs, request.ref)
    to = await refs.place(request.to)
    check_kept_by_owner(target, to.version.seq_number)
    written = await rollback(
        line,
        to,
        signed_by(event, request.message),
        collections=(target.collection.id,),
        query=request.query,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def revert_version(
    target: CollectionTarget, request: version_requests.Revert, event: Event
) -> version_responses.Rewritten:
    """Revert the changes of one version."""
    refs = target.resolver()
    line = await _writable_line(refs, request.ref)
    version = await refs.place(request.version)
    written = await revert(
        line,
        version,
        signed_by(event, request.message),
        collections=(target.collection.id,),
        query=request.features,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


async def _writable_line(refs: RefResolver, ref: str) -> Line:
    line = await refs.line(parse_ref(ref).branch)
    check_writable(line.branch)
    return line


async def merge_branch(
    target: CollectionTarget, request: version_requests.Merge, event: Event
) -> version_responses.Rewritten:
    """Merge one branch into another."""
    if is_for_solving(request.source):
        return await _merge_resolution(target, request, event)
    _check_not_resolution_branch(request.target)
    if not request.dry_run:
        refs = target.resolver()
        for name, other in ((request.source, request.target), (request.target, request.source)):
            await _check_not_resolving(target, refs, name, other, request.policy)
    written = await merge(
        target.storage,
        request.source,
        request.target,
        signed_by(event, request.message),
        scope=target.scope,
        policy=request.policy,
        dry_run=request.dry_run,
        solving=True,
    )
    return await _rewritten(target, written)


async def _merge_resolution(
    target: CollectionTarget, request: version_requests.Merge, event: Event
) -> version_responses.Rewritten:
    """Merge a conflict that was resolved on its own branch."""
    written = await merge_resolution(
        target.storage,
        request.source,
        request.target,
        signed_by(event, request.message),
        scope=target.scope,
        policy=request.policy,
        dry_run=request.dry_run,
    )
    return await _rewritten(target, written)


def _check_not_resolution_branch(branch: str) -> None:
    if is_for_solving(branch):
        raise InvalidArgument(
            f"The branch {branch!r} resolves a conflict: write the resolution to it, then merge it",
            field="branch",
        )


async def _check_not_resolving(
    target: CollectionTarget,
    refs: RefResolver,
    name: str,
    other: str | None,
    policy: MergePolicy,
) -> None:
    """Raise if a conflict of the branch is being resolved.

    A branch in conflict can be merged with `other` again (None: rebased) only with a policy that
    decides that very conflict, or when no branch to resolve it on exists.
    """
    if name == MAIN_BRANCH:
        return
    branch = await refs.branch(name)
    if policy is not MergePolicy.FAIL and await _conflicts_only_with(target, refs, branch, other):
        return
    if await solving_branch(target, branch) is not None:
        check_writable(branch)


async def _conflicts_only_with(
    target: CollectionTarget, refs: RefResolver, branch: Branch, other: str | None
) -> bool:
    """Whether all conflicts of a branch come from merges with one other, or from rebases."""
    waiting = [each for each in await conflicts(target.storage) if each.id in branch.conflicts]
    if other is None:
        return all(each.kind == "rebase" for each in waiting)
    line = await refs.line(other)
    number = MAIN if line.branch is None else line.branch.number
    return all(each.kind == "merge" and number in (each.source, each.target) for each in waiting)


async def rebase_branch(
    target: CollectionTarget, request: version_requests.Rebase, event: Event
) -> version_responses.Rewritten:
    """Rebase a branch onto another version."""
    _check_not_resolution_branch(request.branch)
    if not request.dry_run:
        refs = target.resolver()
        await _check_not_resolving(target, refs, request.branch, None, request.policy)
    written = await rebase(
        target.storage,
        request.branch,
        signed_by(event, request.message),
        request.onto,
        scope=target.scope,
        policy=request.policy,
        dry_run=request.dry_run,
        solving=True,
    )
    return await _rewritten(target, written)


async def resolve_space_conflict(
    target: CollectionTarget, request: version_requests.ResolveConflict, event: Event
) -> version_responses.Rewritten:
    """Complete a merge with the decisions on its conflicts."""
    await _own_conflict(target, request.conflict)
    choices = {(target.collection.id, id): choice for id, choice in request.choices.items()}
    written = await resolve_conflict(
        target.storage,
        request.conflict,
        choices,
        signed_by(event, request.message),
        policy=request.policy,
    )
    return await _rewritten(target, written)


async def abandon_conflict(
    target: CollectionTarget, request: version_requests.GiveUpConflict, event: Event
) -> None:
    """Abandon a merge that is in conflict."""
    await _own_conflict(target, request.conflict)
    await give_up_conflict(target.storage, request.conflict, signed_by(event))


async def read_conflicts(
    target: CollectionTarget, request: version_requests.ReadConflicts, event: Event
) -> version_responses.Conflicts:
    """Return the unresolved conflicts of a branch."""
    branch = await target.resolver().branch(request.branch)
    waiting = [each for each in await conflicts(target.storage) if each.id in branch.conflicts]
    return version_responses.Conflicts(
        [(each, [one async for one in undecided_of(target.storage, each.id)]) for each in waiting]
    )


async def _own_conflict(target: CollectionTarget, id: str) -> None:
    """Raise NotFound for conflicts of other spaces."""
    found = await conflict_of(target.storage, id)
    if found.scope.space != target.scope.space:
        raise NotFound(f"The conflict {id!r} does not exist", field="conflict")


async def _rewritten(target: CollectionTarget, written: WriteReport) -> version_responses.Rewritten:
    version = None
    if written.txn is not None:
        version = await target.storage.wait_published(written.txn, limits.PUBLISH_WAIT_SECONDS)
    name = target.collection.id
    return version_responses.Rewritten(
        version=None if version is None else version.seq_number,
        inserted=written.created.get(name, []),
        updated=written.updated.get(name, []),
        deleted=written.deleted.get(name, []),
        conflicts=written.conflicts,
    )
