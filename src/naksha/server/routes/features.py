"""Features of a space: read, written, deleted."""

from __future__ import annotations

from fastapi import APIRouter, Response

from naksha.hub.requests import ReadFeatures
from naksha.server.answers import feature_collection
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["features"])


@router.get("/hub/spaces/{space_id}/search")
async def search(space_id: str, realm: RealmDep, context: Ctx) -> Response:
    """Features by their properties and tags."""
    return feature_collection(await realm.send(space_id, ReadFeatures(), context))
