"""Tags and branches of a stored space."""

from __future__ import annotations

from naksha.hub.handlers.version_author import signed_by
from naksha.hub.pipeline import version_requests, version_responses
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.pipeline.targets import CollectionTarget
from naksha.hub.write.conflicted_branches import check_writable, solving_branch
from naksha.model.errors import CollectionNotFound
from naksha.model.transaction import MAIN
from naksha.model.version import AtTxn
from naksha.versioning import (
    Branch,
    Tag,
    branches,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    describe_branch,
    rename_branch,
    tag_of,
    tags,
)
from naksha.versioning.merges.rebase import parent_of
from naksha.versioning.records import branch_with
from naksha.versioning.version_refs import MAIN_BRANCH


async def list_tags(
    target: CollectionTarget, request: version_requests.ListTags, event: Event
) -> list[Tag]:
    """Return all tags of the space."""
    return await tags(target.storage, space=target.scope.space)


async def get_tag(target: CollectionTarget, request: version_requests.GetTag, event: Event) -> Tag:
    """Return one tag."""
    return await tag_of(target.storage, request.name, scope=target.scope)


async def put_tag(target: CollectionTarget, request: version_requests.PutTag, event: Event) -> Tag:
    """Create a tag, or move it."""
    await ensure_collection(target, event.context.actor)
    return await create_tag(
        target.storage,
        request.name,
        signed_by(event, request.description),
        request.ref or "HEAD",
        scope=target.scope,
        system=request.system,
        force=request.moves,
    )


async def drop_tag(
    target: CollectionTarget, request: version_requests.DropTag, event: Event
) -> None:
    """Delete a tag."""
    await delete_tag(target.storage, request.name, signed_by(event), scope=target.scope)


async def list_branches(
    target: CollectionTarget, request: version_requests.ListBranches, event: Event
) -> list[version_responses.BranchState]:
    """Return all branches of the space."""
    known = await branches(target.storage, space=target.scope.space)
    return [await _branch_state(target, branch) for branch in known]


async def get_branch(
    target: CollectionTarget, request: version_requests.GetBranch, event: Event
) -> version_responses.BranchState:
    """Return one branch."""
    return await _branch_state(target, await target.resolver().branch(request.name))


async def create_space_branch(
    target: CollectionTarget, request: version_requests.MakeBranch, event: Event
) -> version_responses.BranchState:
    """Create a branch."""
    await ensure_collection(target, event.context.actor)
    branch = await create_branch(
        target.storage,
        request.name,
        signed_by(event, request.description),
        request.ref or "HEAD",
        scope=target.scope,
    )
    return await _branch_state(target, branch)


async def rename_space_branch(
    target: CollectionTarget, request: version_requests.RenameBranch, event: Event
) -> version_responses.BranchState:
    """Rename a branch."""
    check_writable(await target.resolver().branch(request.name))
    branch = await rename_branch(
        target.storage, request.name, request.new_name, signed_by(event), scope=target.scope
    )
    return await _branch_state(target, branch)


async def describe_space_branch(
    target: CollectionTarget, request: version_requests.DescribeBranch, event: Event
) -> version_responses.BranchState:
    """Change the description of a branch."""
    signed = signed_by(event, request.description)
    branch = await describe_branch(target.storage, request.name, signed, scope=target.scope)
    return await _branch_state(target, branch)


async def _branch_state(target: CollectionTarget, branch: Branch) -> version_responses.BranchState:
    merges = {}
    for overlay, point in branch.now.merged_into.items():
        ours = await _seq_number(target, point.ours)
        other = await branch_with(target.storage, overlay) if overlay != MAIN else None
        into = MAIN_BRANCH if other is None else other[0].name
        merges[str(ours)] = f"{into}:{await _seq_number(target, point.theirs)}"
    base = await _seq_number(target, branch.now.below[0].txn or 0)
    parent = await parent_of(target.storage, branch)
    solving = await solving_branch(target, branch)
    name = None if solving is None else solving.name
    return version_responses.BranchState(branch, f"{parent}:{base}", merges, name)


async def _seq_number(target: CollectionTarget, txn: int) -> int:
    """Return the version of a transaction; 0 stands for the time before the first one."""
    return (await target.storage.resolve(AtTxn(txn))).seq_number if txn else 0


async def drop_branch(
    target: CollectionTarget, request: version_requests.DropBranch, event: Event
) -> None:
    """Delete a branch."""
    await delete_branch(target.storage, request.name, signed_by(event), scope=target.scope)


async def ensure_collection(target: CollectionTarget, actor: Actor) -> None:
    """Create the collection if it does not exist, so that it can have tags and branches."""
    try:
        await target.storage.collection(target.collection.id)
    except CollectionNotFound:
        async with target.storage.write(actor.app_id, actor.author) as session:
            await session.create_collection(target.collection)
