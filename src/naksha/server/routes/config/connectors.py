"""Connectors, also known as event handlers: the same objects under both paths."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from naksha.hub.config.objects import Connector
from naksha.hub.config.space_changes import change_connector
from naksha.server.openapi.config_schemas import ConnectorDocument
from naksha.server.requests.parameters import list_of
from naksha.server.routes.config._crud import ConfigRequestDep, ConfigRoutes, Tags
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["connectors"])
_CONNECTORS: Final = "/hub/connectors"
CONNECTOR: Final = "/hub/connectors/{connector_id}"
_HANDLERS: Final = "/hub/handlers"
HANDLER: Final = "/hub/handlers/{connector_id}"
_connectors: Final = ConfigRoutes(Connector, ConnectorDocument, change_connector)


@router.get(_CONNECTORS, **_connectors.lists)
@router.get(_HANDLERS, **_connectors.lists)
async def list_connectors(
    request: ConfigRequestDep,
    id: Annotated[
        list[str] | None, QueryParam(description="Only these ids, separated by commas or repeated.")
    ] = None,
) -> Response:
    """List the connectors of the realm."""
    ids = None if id is None else list_of(request.http, "id")
    return await _connectors.listed(request, ids)


@router.post(_CONNECTORS, **_connectors.makes(status=201))
async def post_connector(request: ConfigRequestDep) -> Response:
    """Create a connector, after testing it."""
    return await _connectors.made(request, 201)


@router.post(_HANDLERS, **_connectors.makes())
async def post_handler(request: ConfigRequestDep) -> Response:
    """Create a connector, after testing it."""
    return await _connectors.made(request)


@router.get(CONNECTOR, **_connectors.shows)
@router.get(HANDLER, **_connectors.shows)
async def get_connector(connector_id: str, request: ConfigRequestDep) -> Response:
    """Return a connector."""
    return await _connectors.shown(connector_id, request)


@router.patch(CONNECTOR, **_connectors.patches)
async def patch_connector(connector_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Change a connector by a JSON Merge Patch, after testing it with every space that uses it."""
    return await _connectors.patched(connector_id, request, tags)


@router.put(HANDLER, **_connectors.replaces)
async def put_handler(connector_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Replace an existing connector, after testing the new one."""
    return await _connectors.replaced(connector_id, request, tags)


@router.delete(CONNECTOR, **_connectors.removes)
@router.delete(HANDLER, **_connectors.removes)
async def delete_connector(connector_id: str, request: ConfigRequestDep, tags: Tags) -> Response:
    """Remove a connector that no space uses."""
    return await _connectors.removed(connector_id, request, tags)
