"""Maintenance of the storages of a realm and, for operators, of the catalog."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.maintenance.requests import (
    MaintenanceView,
    catalog_view,
    managed_storage,
    managed_storages,
    storages_view,
)
from naksha.model import limits
from naksha.server.openapi.config_schemas import ID_PATTERN, returns
from naksha.server.openapi.maintenance_schemas import (
    MaintenanceDocument,
    StorageMaintenanceDocument,
)
from naksha.server.requests.state import server_of
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.routes.config._crud import ConfigRequestDep
from naksha.server.routes.operation import is_operator
from naksha.server.routing.declarations import PathParam, QueryParam, Responses, Router

router = Router(tags=["operation"])
ALL: Final = "/hub/maintenance"
ONE: Final = "/hub/maintenance/{storage_id}"
Id = Annotated[str, PathParam(pattern=ID_PATTERN)]
DryRun = Annotated[
    bool,
    QueryParam(alias="dryRun", description="Only report what a round would remove."),
]
_STATE: Final = "The state of maintenance after the round."
_SHOWS_ALL: Final = returns(MaintenanceDocument, "The state of maintenance.")
_SHOWS_ONE: Final = returns(StorageMaintenanceDocument, "The state of the storage's maintenance.")


def _runs(document: type[MaintenanceDocument | StorageMaintenanceDocument]) -> Responses:
    found = returns(document, _STATE)
    del found[304]
    later = {"model": document, "description": "The round has not ended; GET shows its progress."}
    return {**found, 202: later}


@router.get(ALL, responses=_SHOWS_ALL)
async def get_maintenance(request: ConfigRequestDep) -> Response:
    """Return the last and next maintenance rounds of all storages that the actor manages."""
    views = await _views(request)
    return json_response(request.http, await _all_json(request.http, views))


@router.post(ALL, responses=_runs(MaintenanceDocument))
async def post_maintenance(request: ConfigRequestDep, dry_run: DryRun = False) -> Response:
    """Run a maintenance round of all storages that the actor manages.

    For operators, also one of the catalog. The response waits for the end of the rounds for up to
    20 seconds.
    """
    views = await _views(request)
    is_over = await _run(request.http, views, is_dry=dry_run)
    return _state(await _all_json(request.http, views), is_over=is_over)


@router.get(ONE, responses=_SHOWS_ONE)
async def get_storage_maintenance(storage_id: Id, request: ConfigRequestDep) -> Response:
    """Return the last and next maintenance rounds of a storage."""
    view = await _view(request, storage_id)
    return json_response(request.http, (await _json(view))[0])


@router.post(ONE, responses=_runs(StorageMaintenanceDocument))
async def post_storage_maintenance(
    storage_id: Id, request: ConfigRequestDep, dry_run: DryRun = False
) -> Response:
    """Run a maintenance round of a storage; the response waits for its end for up to 20 seconds."""
    view = await _view(request, storage_id)
    is_over = await _run(request.http, [view], is_dry=dry_run)
    return _state((await _json(view))[0], is_over=is_over)


async def _view(request: ConfigRequestDep, storage_id: str) -> MaintenanceView:
    id = await managed_storage(request.realm, storage_id, request.actor)
    return storages_view(request.realm, [id])


async def _views(request: ConfigRequestDep) -> list[MaintenanceView]:
    """Return the views of the storages and, for operators, of the catalog."""
    ids = await managed_storages(request.realm, request.actor)
    storages = storages_view(request.realm, ids)
    if not is_operator(request.actor):
        return [storages]
    return [storages, catalog_view(server_of(request.http).hub)]


async def _run(http: Request, views: list[MaintenanceView], *, is_dry: bool) -> bool:
    for view in views:
        await view.request(is_dry=is_dry)
    server_of(http).maintenance.wake()
    found = await asyncio.gather(*(view.wait(limits.MAINTENANCE_WAIT_SECONDS) for view in views))
    return all(found)


async def _json(view: MaintenanceView) -> list[dict[str, Any]]:
    return [state.to_json(view.now_ms) for state in await view.states()]


async def _all_json(http: Request, views: list[MaintenanceView]) -> dict[str, Any]:
    enabled = server_of(http).maintenance.schedule.is_on
    found: dict[str, Any] = {"enabled": enabled, "storages": await _json(views[0])}
    if len(views) > 1:
        found["catalog"] = (await _json(views[1]))[0]
    return found


def _state(body: dict[str, Any], *, is_over: bool) -> Response:
    return Response(msgspec.json.encode(body), 200 if is_over else 202, media_type=JSON)
