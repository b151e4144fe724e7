"""Snapshots of a whole storage: named versions that cover all its collections."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from naksha.hub.auth.rights import Right
from naksha.hub.storages.access import signature_of, storage_for
from naksha.model import limits
from naksha.server.openapi.config_schemas import SnapshotDocument, changes, returns
from naksha.server.responses.encoding import json_response
from naksha.server.routes.config._crud import ConfigRequestDep
from naksha.server.routing.declarations import Router
from naksha.versioning import Tag, create_tag, delete_tag, tag_of, tags

router = Router(tags=["storages"])
_SNAPSHOTS: Final = "/hub/storages/{storage_id}/snapshots"
_SNAPSHOT: Final = "/hub/storages/{storage_id}/snapshots/{snapshot_id:path}"


class NewSnapshot(BaseModel):
    """A new snapshot; by default of the last published version."""

    model_config = ConfigDict(extra="forbid")

    id: str
    version: int | None = Field(None, ge=0)
    description: str | None = Field(None, max_length=limits.DESCRIPTION_LENGTH_MAX)


@router.get(
    _SNAPSHOTS,
    responses=returns(list[SnapshotDocument], "The snapshots."),
)
async def list_snapshots(storage_id: str, request: ConfigRequestDep) -> Response:
    """List the snapshots of a storage."""
    storage = await storage_for(request.realm, storage_id, request.actor, Right.USE_STORAGES)
    return json_response(request.http, [_json(tag) for tag in await tags(storage)])


@router.post(_SNAPSHOTS, responses=changes(SnapshotDocument, "The snapshot."))
async def create_snapshot(
    storage_id: str, snapshot: NewSnapshot, request: ConfigRequestDep
) -> dict[str, Any]:
    """Name a version of the storage.

    Until the snapshot is deleted, the version does not expire, and none of its collections can be
    dropped.
    """
    storage = await storage_for(request.realm, storage_id, request.actor, Right.MANAGE_STORAGES)
    ref = "HEAD" if snapshot.version is None else str(snapshot.version)
    signed = signature_of(request.actor, snapshot.description)
    return _json(await create_tag(storage, snapshot.id, signed, ref))


@router.get(_SNAPSHOT, responses=returns(SnapshotDocument, "The snapshot."))
async def get_snapshot(storage_id: str, snapshot_id: str, request: ConfigRequestDep) -> Response:
    """Return a snapshot; read a space at its `version`."""
    storage = await storage_for(request.realm, storage_id, request.actor, Right.USE_STORAGES)
    return json_response(request.http, _json(await tag_of(storage, snapshot_id)))


@router.delete(_SNAPSHOT, responses=changes(SnapshotDocument, "The snapshot."))
async def delete_snapshot(
    storage_id: str, snapshot_id: str, request: ConfigRequestDep
) -> dict[str, Any]:
    """Delete a snapshot; history that only it pinned can expire."""
    storage = await storage_for(request.realm, storage_id, request.actor, Right.MANAGE_STORAGES)
    tag = await tag_of(storage, snapshot_id)
    await delete_tag(storage, snapshot_id, signature_of(request.actor))
    return _json(tag)


def _json(tag: Tag) -> dict[str, Any]:
    return {
        "id": tag.name,
        "version": tag.version.seq_number,
        "time": tag.version.published_ms,
        "description": tag.description or "",
        "author": tag.author or tag.app_id,
        "createdAt": tag.created_ms,
    }
