"""Spaces: listed, made, changed and removed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from naksha.hub.objects import Space, patched
from naksha.hub.registry import new_space_id
from naksha.model.errors import InvalidArgument
from naksha.server.bodies import json_object
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["spaces"])


@router.get("/hub/spaces")
async def list_spaces(realm: RealmDep, context: Ctx) -> list[dict[str, Any]]:
    """Spaces of the realm."""
    return [space.to_json() for space in await realm.registry.list(Space)]


@router.post("/hub/spaces")
async def create_space(request: Request, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """Make a space."""
    body = await json_object(request)
    space = Space.from_json({**body, "id": body.get("id") or new_space_id()})
    return (await realm.registry.create(space, context.actor)).to_json()


@router.get("/hub/spaces/{space_id}")
async def get_space(space_id: str, realm: RealmDep, context: Ctx) -> dict[str, Any]:
    """A space."""
    return (await realm.registry.get(Space, space_id)).to_json()


@router.patch("/hub/spaces/{space_id}")
async def patch_space(
    space_id: str, request: Request, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Change a space by a merge patch."""
    patch = await json_object(request)
    changed = await realm.registry.change(
        Space, space_id, lambda old: patched(Space, old, patch), context.actor
    )
    return changed.to_json()


@router.put("/hub/spaces/{space_id}")
async def replace_space(
    space_id: str, request: Request, realm: RealmDep, context: Ctx
) -> dict[str, Any]:
    """Replace a space."""
    body = await json_object(request)
    if body.get("id", space_id) != space_id:
        raise InvalidArgument("The id of a space cannot be changed", field="id")
    space = Space.from_json({**body, "id": space_id})
    changed = await realm.registry.change(Space, space_id, lambda _: space, context.actor)
    return changed.to_json()


@router.delete("/hub/spaces/{space_id}")
async def delete_space(space_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Remove a space."""
    removed = await realm.registry.remove(Space, space_id, context.actor)
    if "application/json" in request.headers.get("Accept", ""):
        return JSONResponse(removed.to_json())
    return Response(status_code=204)
