"""Meta features of a space: unversioned features that are kept with its collection."""

from __future__ import annotations

from typing import Annotated, Any, Final

from starlette.responses import Response

from naksha.hub.pipeline.meta_requests import GetMeta, ListMeta, PutMeta, RemoveMeta
from naksha.server.openapi import version_schemas as documents
from naksha.server.openapi.feature_schemas import FEATURE, FEATURES
from naksha.server.requests.state import Ctx, RealmDep
from naksha.server.routing.declarations import BodyParam, Router

router = Router(prefix="/hub/spaces/{space_id}/meta", tags=["features"])

_ONE: Final = documents.returns("The meta feature.", FEATURE)
_MANY: Final = documents.returns("The meta features.", FEATURES)
_CHANGED: Final = documents.changes("The meta feature.", FEATURE)


@router.get("", responses=_MANY)
async def list_meta(space_id: str, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """List all meta features."""
    found = await realm.send(space_id, ListMeta(), context)
    return {"type": "FeatureCollection", "features": found}


@router.get("/{meta_id:path}", responses=_ONE)
async def get_meta(space_id: str, meta_id: str, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Return one meta feature."""
    return await realm.send(space_id, GetMeta(id=meta_id), context)


@router.put("/{meta_id:path}", responses=_CHANGED)
async def put_meta(
    space_id: str,
    meta_id: str,
    feature: Annotated[dict[str, Any], BodyParam()],
    realm: RealmDep,
    context: Ctx,
) -> dict[str, Any]:
    """Create or replace a meta feature; ids that begin with `naksha:` are read-only."""
    request = PutMeta(feature={**feature, "id": meta_id})
    stored: dict[str, Any] = await realm.send(space_id, request, context)
    return stored


@router.delete(
    "/{meta_id:path}",
    status_code=204,
    responses=documents.removes("Removed."),
)
async def remove_meta(space_id: str, meta_id: str, realm: RealmDep, context: Ctx) -> Response:
    """Remove a meta feature."""
    await realm.send(space_id, RemoveMeta(id=meta_id), context)
    return Response(status_code=204)
