"""Connectors, which others call event handlers: the same objects under both names."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from naksha.hub.objects import Connector, patched, replaced
from naksha.hub.permissions import check_seen, is_seen
from naksha.hub.space_changes import change_connector
from naksha.server.answers import json_answer
from naksha.server.bodies import json_object
from naksha.server.config_documents import ConnectorDocument, answers, body_of, changes, patch_of
from naksha.server.configured import IfMatch, etags, shown, wants_json
from naksha.server.state import Ctx, RealmDep

router = APIRouter(tags=["connectors"])
CONNECTORS: Final = "/hub/connectors"
HANDLERS: Final = "/hub/handlers"
_LISTED: Final = answers(list[ConnectorDocument], "Those that the actor may see, ordered by id.")
_SHOWN: Final = answers(ConnectorDocument, "The connector.")
_CHANGED: Final = changes(ConnectorDocument, "The connector as it is now.")
_REMOVED: Final = {
    204: {"description": "Done; the answer to who does not accept JSON."},
    **changes(ConnectorDocument, "The connector as it was."),
}
_BODY: Final = body_of(ConnectorDocument, "The connector, with its id.")


@router.get(CONNECTORS, response_class=Response, responses=_LISTED)
@router.get(HANDLERS, response_class=Response, responses=_LISTED)
async def list_connectors(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """The connectors of the realm."""
    found = await realm.registry.list(Connector)
    return json_answer(request, [one.to_json() for one in found if is_seen(one, context.actor)])


async def _made(request: Request, realm: RealmDep, context: Ctx, status: int) -> Response:
    connector = Connector.from_json(await json_object(request))
    made = await realm.registry.create(connector, context.actor)
    return shown(request, made, status)


@router.post(
    CONNECTORS,
    response_class=Response,
    status_code=201,
    responses=changes(ConnectorDocument, "The connector as it was made.", 201),
    openapi_extra=_BODY,
)
async def post_connector(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Make a connector; it is tried out first."""
    return await _made(request, realm, context, 201)


@router.post(
    HANDLERS,
    response_class=Response,
    responses=changes(ConnectorDocument, "The connector as it was made."),
    openapi_extra=_BODY,
)
async def post_handler(request: Request, realm: RealmDep, context: Ctx) -> Response:
    """Make a connector; it is tried out first."""
    return await _made(request, realm, context, 200)


@router.get(f"{CONNECTORS}/{{connector_id}}", response_class=Response, responses=_SHOWN)
@router.get(f"{HANDLERS}/{{connector_id}}", response_class=Response, responses=_SHOWN)
async def get_connector(
    connector_id: str, request: Request, realm: RealmDep, context: Ctx
) -> Response:
    """A connector."""
    connector = await realm.registry.get(Connector, connector_id)
    check_seen(connector, context.actor)
    return shown(request, connector)


@router.patch(
    f"{CONNECTORS}/{{connector_id}}",
    response_class=Response,
    responses=_CHANGED,
    openapi_extra=patch_of(ConnectorDocument),
)
async def patch_connector(
    connector_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Change a connector by a merge patch; it is tried out first, with every space that has it."""
    patch = await json_object(request)
    changed = await change_connector(
        realm,
        connector_id,
        lambda old: patched(Connector, old, patch),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.put(
    f"{HANDLERS}/{{connector_id}}",
    response_class=Response,
    responses=_CHANGED,
    openapi_extra=_BODY,
)
async def put_handler(
    connector_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Replace a connector that is there; the new one is tried out first."""
    body = await json_object(request)
    changed = await change_connector(
        realm,
        connector_id,
        lambda old: replaced(Connector, old, body),
        context.actor,
        if_match=etags(if_match),
    )
    return shown(request, changed)


@router.delete(f"{CONNECTORS}/{{connector_id}}", response_class=Response, responses=_REMOVED)
@router.delete(f"{HANDLERS}/{{connector_id}}", response_class=Response, responses=_REMOVED)
async def delete_connector(
    connector_id: str, request: Request, realm: RealmDep, context: Ctx, if_match: IfMatch = None
) -> Response:
    """Remove a connector that no space has."""
    removed = await realm.registry.remove(
        Connector, connector_id, context.actor, if_match=etags(if_match)
    )
    return shown(request, removed) if wants_json(request) else Response(status_code=204)
