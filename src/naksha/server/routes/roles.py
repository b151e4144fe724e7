"""Roles: rights matrices with a name, which tokens of the realm may use instead of their own."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from naksha.hub.objects import Role, patched, replaced
from naksha.hub.permissions import check_seen, is_seen
from naksha.server.answers import json_answer
from naksha.server.bodies import json_object
from naksha.server.config_documents import RoleDocument, answers, body_of, changes, patch_of
from naksha.server.configured import IfMatch, etags, shown, wants_json
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["roles"])
ROLES: Final = "/hub/roles"
ROLE: Final = "/hub/roles/{role_id}"


@router.get(
    ROLES,
    response_class=Response,
    responses=answers(list[RoleDocument], "Those that the actor may see, ordered by id."),
)
async def list_roles(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """The roles of the realm."""
    found = await realm.registry.list(Role)
    return json_answer(request, [one.to_json() for one in found if is_seen(one, context.actor)])


@router.post(
    ROLES,
    response_class=Response,
    responses=changes(RoleDocument, "The role as it is kept."),
    openapi_extra=body_of(RoleDocument, "The role, with its id."),
)
async def post_role(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Make a role."""
    role = Role.from_json(await json_object(request))
    return shown(request, await realm.registry.create(role, context.actor))


@router.get(ROLE, response_class=Response, responses=answers(RoleDocument, "The role."))
async def get_role(role_id: str, request: Request, realm: RealmDep, context: Ctx) -> Response:
    """A role."""
    role = await realm.registry.get(Role, role_id)
    check_seen(role, context.actor)
    return shown(request, role)


@router.put(
    ROLE,
    response_class=Response,
    responses=changes(RoleDocument, "The role as it is now."),
    openapi_extra=body_of(RoleDocument, "The role."),
)
async def put_role(
    role_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Replace a role that is there; whoever has it has the new rights with his next request."""
    body = await json_object(request)
    changed = await realm.registry.change(
        Role,
        role_id,
        lambda old: replaced(Role, old, body),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.patch(
    ROLE,
    response_class=Response,
    responses=changes(RoleDocument, "The role as it is now."),
    openapi_extra=patch_of(RoleDocument),
)
async def patch_role(
    role_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Change a role by a merge patch."""
    patch = await json_object(request)
    changed = await realm.registry.change(
        Role,
        role_id,
        lambda old: patched(Role, old, patch),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.delete(
    ROLE,
    response_class=Response,
    responses={
        204: {"description": "Done; the answer to who does not accept JSON."},
        **changes(RoleDocument, "The role as it was."),
    },
)
async def delete_role(
    role_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Remove a role; tokens that name it have nothing from it any more."""
    removed = await realm.registry.remove(Role, role_id, context.actor, if_match=etags(if_match))
    return shown(request, removed) if wants_json(request) else Response(status_code=204)
