"""Roles: named rights matrices that tokens of the realm can refer to."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from naksha.hub.config.objects import Role
from naksha.server.openapi.config_schemas import RoleDocument
from naksha.server.routes.config._crud import ConfigRequestDep, ConfigRoutes, Tags
from naksha.server.routing.declarations import Router

router = Router(tags=["roles"])
ROLES: Final = "/hub/roles"
ROLE: Final = "/hub/roles/{role_id}"
_roles: Final = ConfigRoutes(Role, RoleDocument)


@router.get(ROLES, **_roles.lists)
async def list_roles(request: ConfigRequestDep) -> Response:
    """List the roles of the realm."""
    return await _roles.listed(request)


@router.post(ROLES, **_roles.makes())
async def post_role(request: ConfigRequestDep) -> Response:
    """Create a role."""
    return await _roles.made(request)


@router.get(ROLE, **_roles.shows)
async def get_role(role_id: str, request: ConfigRequestDep) -> Response:
    """Return a role."""
    return await _roles.shown(role_id, request)


@router.put(ROLE, **_roles.replaces)
async def put_role(role_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Replace an existing role; the new rights apply from the next request on."""
    return await _roles.replaced(role_id, request, tags)


@router.patch(ROLE, **_roles.patches)
async def patch_role(role_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Change a role by a JSON Merge Patch."""
    return await _roles.patched(role_id, request, tags)


@router.delete(ROLE, **_roles.removes)
async def delete_role(role_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Remove a role; tokens that refer to it no longer get any rights from it."""
    return await _roles.removed(role_id, request, tags)
