"""Branches of a space: create, change, merge and remove them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from naksha.hub.pipeline.version_requests import (
    DescribeBranch,
    DropBranch,
    GetBranch,
    GiveUpConflict,
    ListBranches,
    MakeBranch,
    Merge,
    ReadConflicts,
    Rebase,
    RenameBranch,
    ResolveConflict,
)
from naksha.model import limits
from naksha.server.openapi import version_schemas as documents
from naksha.server.openapi.feature_schemas import listed
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.version_json import branch_json, rewritten_json, undecided_json
from naksha.server.routing.declarations import Router
from naksha.versioning import MergePolicy

router = Router(prefix="/hub/spaces/{space_id}/branches", tags=["versions"])

Ignored = Annotated[Any, Field(description="Set by the hub; ignored.")]
Message = Annotated[str | None, Field(max_length=limits.DESCRIPTION_LENGTH_MAX)]


class StrictBody(BaseModel):
    """Base of all bodies; unknown members are rejected."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")


class BranchBody(StrictBody):
    """A branch in a request.

    Members that the hub sets itself are accepted, so that a branch can be sent back as it was
    returned, and ignored.
    """

    space_id: Ignored = Field(None, alias="spaceId")
    state: Ignored = None
    merges: Ignored = None
    conflicts: Ignored = None
    conflict_solving_branch: Ignored = Field(None, alias="conflictSolvingBranch")
    author: Ignored = None
    created_at: Ignored = Field(None, alias="createdAt")


class NewBranch(BranchBody):
    """A new branch; by default it starts at the head of main."""

    id: str
    base_ref: str = Field("", alias="baseRef")
    description: Message = None


class BranchChange(BranchBody):
    """Changes to a branch: a new name, description or base.

    With a new base its changes are rebased onto that.
    """

    id: str | None = None
    base_ref: str | None = Field(None, alias="baseRef")
    description: Message = None
    policy: MergePolicy = MergePolicy.FAIL


def _choice(value: Any) -> Any:
    if value in ("ours", "theirs") or isinstance(value, dict):
        return value
    raise ValueError("must be ours, theirs, or the resolved feature")


Choice = Annotated[Literal["ours", "theirs"] | dict[str, Any], BeforeValidator(_choice)]


class MergeOperation(StrictBody):
    """Merge the changes of the branch into another one."""

    type: Literal["Merge"]
    target_branch_id: str = Field("main", alias="targetBranchId")
    policy: MergePolicy = MergePolicy.FAIL
    message: Message = None
    dry_run: bool = Field(False, alias="dryRun")


class ResolveOperation(StrictBody):
    """Resolve a pending merge with a choice per feature.

    A choice is `ours` (the state on the target branch), `theirs` (the state on the merged branch),
    or the resolved feature.
    """

    type: Literal["Resolve"]
    conflict_id: str = Field(alias="conflictId")
    choices: dict[str, Choice] = Field({}, description="Choices by feature id.")
    policy: MergePolicy = MergePolicy.FAIL
    message: Message = None


class GiveUpOperation(StrictBody):
    """Abandon a pending merge."""

    type: Literal["GiveUp"]
    conflict_id: str = Field(alias="conflictId")


Operation = Annotated[
    MergeOperation | ResolveOperation | GiveUpOperation, Field(discriminator="type")
]


_ONE: Final = documents.returns("The branch.", documents.BRANCH)
_MANY: Final = documents.returns("The branches.", listed(documents.BRANCH))
_WAITING: Final = documents.returns("The pending merges.", listed(documents.CONFLICT))
_CHANGED: Final = documents.changes("The branch.", documents.BRANCH)
_DONE: Final = documents.changes("The result.", documents.REWRITTEN)
_REMOVED: Final = documents.removes("Removed.")


@router.get("", responses=_MANY)
async def list_branches(space_id: str, realm: RealmDep, context: Ctx) -> list[dict[str, Any]]:
    """List all branches except main."""
    found = await realm.send(space_id, ListBranches(), context)
    return [branch_json(branch, space_id) for branch in found]


@router.post("", responses=_CHANGED)
async def create_branch(
    space_id: str, branch: NewBranch, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Create a branch from a version, without copying data."""
    request = MakeBranch(ref=branch.base_ref, name=branch.id, description=branch.description)
    return branch_json(await realm.send(space_id, request, context), space_id)


# A branch name can contain slashes, so routes with a suffix come before the one without.
@router.get("/{branch_id:path}/conflicts", responses=_WAITING)
async def list_conflicts(
    space_id: str, branch_id: str, realm: RealmDep, context: Ctx
) -> list[dict[str, Any]]:
    """List the pending merges of a branch, each with its conflicting features."""
    found = await realm.send(space_id, ReadConflicts(branch=branch_id), context)
    return [
        {
            "id": conflict.id,
            "kind": conflict.kind,
            "author": conflict.author or conflict.app_id,
            "createdAt": conflict.created_ms,
            "features": [undecided_json(one) for one in undecided],
        }
        for conflict, undecided in found.conflicts
    ]


@router.get("/{branch_id:path}", responses=_ONE)
async def get_branch(
    space_id: str, branch_id: str, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Return a branch."""
    return branch_json(await realm.send(space_id, GetBranch(name=branch_id), context), space_id)


@router.patch("/{branch_id:path}", responses=_CHANGED)
async def change_branch(
    space_id: str, branch_id: str, change: BranchChange, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Rebase a branch, or change its name or description."""
    if change.base_ref is not None:
        request = Rebase(branch=branch_id, onto=change.base_ref or None, policy=change.policy)
        await realm.send(space_id, request, context)
    if change.description is not None:
        described = DescribeBranch(name=branch_id, description=change.description)
        await realm.send(space_id, described, context)
    if change.id is not None and change.id != branch_id:
        await realm.send(space_id, RenameBranch(name=branch_id, new_name=change.id), context)
        branch_id = change.id
    return branch_json(await realm.send(space_id, GetBranch(name=branch_id), context), space_id)


@router.post("/{branch_id:path}", responses=_DONE)
async def operate(
    space_id: str, branch_id: str, operation: Operation, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Merge a branch, or resolve or abandon a pending merge."""
    if isinstance(operation, GiveUpOperation):
        await realm.send(space_id, GiveUpConflict(conflict=operation.conflict_id), context)
        return {"type": "VersionOperationResponse", "version": None}
    if isinstance(operation, ResolveOperation):
        request: Merge | ResolveConflict = ResolveConflict(
            conflict=operation.conflict_id,
            choices=operation.choices,
            policy=operation.policy,
            message=operation.message,
        )
    else:
        request = Merge(
            source=branch_id,
            target=operation.target_branch_id,
            policy=operation.policy,
            message=operation.message,
            dry_run=operation.dry_run,
        )
    return rewritten_json(await realm.send(space_id, request, context))


@router.delete("/{branch_id:path}", status_code=204, responses=_REMOVED)
async def delete_branch(space_id: str, branch_id: str, realm: RealmDep, context: Ctx) -> Response:
    """Remove a branch with all its changes."""
    await realm.send(space_id, DropBranch(name=branch_id), context)
    return Response(status_code=204)
