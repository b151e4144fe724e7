"""Tags of a space: names for versions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from naksha.hub.pipeline.version_requests import DropTag, GetTag, ListTags, PutTag
from naksha.model import limits
from naksha.server.openapi import version_schemas as documents
from naksha.server.openapi.feature_schemas import listed
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.responses.version_json import tag_json
from naksha.server.routing.declarations import QueryParam, Router

router = Router(prefix="/hub/spaces/{space_id}/tags", tags=["versions"])

Ignored = Annotated[Any, Field(description="Set by the hub; ignored.")]
Description = Annotated[str | None, Field(max_length=limits.DESCRIPTION_LENGTH_MAX)]


class TagBody(BaseModel):
    """A tag in a request.

    Members that the hub sets itself are accepted and ignored; any other unknown member, such as a
    misspelt `versionRef`, is rejected.
    """

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    space_id: Ignored = Field(None, alias="spaceId")
    branch_id: Ignored = Field(None, alias="branchId")
    author: Ignored = None
    created_at: Ignored = Field(None, alias="createdAt")


class NewTag(TagBody):
    """A new tag; by default of the last version."""

    id: str
    version: int | None = Field(None, ge=0)
    version_ref: str | None = Field(None, alias="versionRef")
    description: Description = None
    system: bool = Field(
        False, description="Created by a program for its own use; listed on request only."
    )

    @property
    def ref(self) -> str:
        return self.version_ref or ("" if self.version is None else str(self.version))


class TagUpdate(TagBody):
    """Changes to a tag."""

    id: Ignored = None
    system: Ignored = None
    version: int | None = Field(None, ge=0)
    version_ref: str | None = Field(None, alias="versionRef")
    description: Description = None


_ONE: Final = documents.returns("The tag.", documents.TAG)
_MANY: Final = documents.returns("The tags.", listed(documents.TAG))
_CHANGED: Final = documents.changes("The tag.", documents.TAG)


@router.get("", responses=_MANY)
async def list_tags(
    space_id: str,
    realm: RealmDep,
    context: Ctx,
    include_system_tags: Annotated[bool, QueryParam(alias="includeSystemTags")] = False,
) -> list[dict[str, Any]]:
    """List all tags, newest first; tags of programs (`system`) on request only."""
    found = await realm.send(space_id, ListTags(), context)
    shown = [tag for tag in found if include_system_tags or not tag.system]
    shown.sort(key=lambda tag: (-tag.created_ms, -tag.version.seq_number, tag.name))
    return [tag_json(tag, space_id) for tag in shown]


@router.post("", responses=_CHANGED)
async def create_tag(space_id: str, tag: NewTag, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Create a tag on a version, which then does not expire."""
    request = PutTag(ref=tag.ref, name=tag.id, description=tag.description, system=tag.system)
    return tag_json(await realm.send(space_id, request, context), space_id)


@router.get("/{tag_id:path}", responses=_ONE)
async def get_tag(space_id: str, tag_id: str, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Return a tag."""
    return tag_json(await realm.send(space_id, GetTag(name=tag_id), context), space_id)


@router.patch("/{tag_id:path}", responses=_CHANGED)
async def change_tag(
    space_id: str, tag_id: str, change: TagUpdate, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Move a tag to another version, or change its description."""
    old = await realm.send(space_id, GetTag(name=tag_id), context)
    ref = change.version_ref or str(
        old.version.seq_number if change.version is None else change.version
    )
    if change.version_ref is None and change.version is None and old.branch:
        ref = f"{old.branch}:{ref}"
    description = old.description if change.description is None else change.description
    request = PutTag(ref=ref, name=tag_id, description=description, system=old.system, moves=True)
    return tag_json(await realm.send(space_id, request, context), space_id)


@router.delete("/{tag_id:path}", responses=_CHANGED)
async def delete_tag(space_id: str, tag_id: str, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Remove a tag and return it."""
    tag = await realm.send(space_id, GetTag(name=tag_id), context)
    await realm.send(space_id, DropTag(name=tag_id), context)
    return tag_json(tag, space_id)
