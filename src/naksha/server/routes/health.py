"""Health check of the hub, with `detailed` also of its catalog and storages."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.config.change_rights import is_visible
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import RealmHub
from naksha.hub.maintenance.health_warnings import (
    HealthWarning,
    catalog_warnings,
    storage_warnings,
)
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.model.errors import NakshaError, Unauthorized
from naksha.model.version import HEAD
from naksha.server import VERSION
from naksha.server.middleware.request_record import record_of
from naksha.server.openapi.feature_schemas import ErrorResponse, some_errors
from naksha.server.requests.state import ServerState, server_of
from naksha.server.responses.encoding import JSON
from naksha.server.routes.operation import is_operator
from naksha.server.routing.declarations import QueryParam, Responses, Router
from naksha.spi.locations import CATALOGS, FILE, path_of

router = Router(tags=["operation"])
SCHEMA_VERSION: Final = "1.0"
_NO: Final = frozenset({"false", "no", "0"})


class Health(BaseModel):
    """Health of the hub."""

    reporter: dict[str, str]
    status: dict[str, str]
    schemaVersion: str  # noqa: N815 - name in the API
    checks: dict[str, dict[str, str]] | None = None
    warnings: list[dict[str, str]] | None = Field(
        None,
        description="With `detailed`: what needs an operator, with `code`, `subject` and `message`."
        " Warnings do not change the status.",
    )


_ANSWERS: Final[Responses] = {
    200: {"model": Health, "description": "The hub is up."},
    **some_errors(401, 403, 404, 413, 504),
    503: {"model": Health | ErrorResponse, "description": "A catalog or storage is unavailable."},
}


@router.get("/hub/health-status", responses=_ANSWERS)
@router.get("/hub", responses=_ANSWERS)
async def health(
    request: Request,
    detailed: Annotated[
        str | None, QueryParam(description="Also check the catalog and the storages of the realm.")
    ] = None,
) -> Response:
    """Return the health of the hub."""
    body: dict[str, Any] = {
        "reporter": {"name": "naksha", "version": VERSION},
        "status": {"result": "OK"},
        "schemaVersion": SCHEMA_VERSION,
    }
    if detailed is None or detailed.lower() in _NO:
        return _response(body)
    actor = record_of(request).actor
    if actor is None:
        raise Unauthorized("Missing or invalid token: the detailed health check requires one")
    found, warnings = await _check_results(server_of(request), actor)
    body["warnings"] = [msgspec.structs.asdict(one) for one in warnings]
    if any(one["result"] != "OK" for one in found.values()):
        body["status"] = {"result": "UNAVAILABLE"}
        return _response({**body, "checks": found}, 503)
    return _response({**body, "checks": found})


def _response(health: dict[str, Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(health), status, media_type=JSON)


Results = dict[str, dict[str, str]]


async def _check_results(server: ServerState, actor: Actor) -> tuple[Results, list[HealthWarning]]:
    """Check the catalog and the storages visible to the actor; return results and warnings."""
    found = {"catalog": await _result(server.hub.catalog.realms.get(actor.realm))}
    if found["catalog"]["result"] != "OK":
        return found, []
    realm = await server.hub.realm(actor.realm)
    actor = await (await realm.configuration()).granted(actor)
    listed = await realm.registry.list(StorageObject)
    entities = [entity for entity in listed if entity.active and is_visible(entity, actor)]
    results = await asyncio.gather(
        *(_result(_check_storage(realm, entity.id)) for entity in entities)
    )
    found |= {f"storage/{entity.id}": one for entity, one in zip(entities, results, strict=True)}
    well = [entity for entity in entities if found[f"storage/{entity.id}"]["result"] == "OK"]
    return found, await _warnings(server, realm, actor, well)


async def _warnings(
    server: ServerState, realm: RealmHub, actor: Actor, entities: Sequence[StorageObject]
) -> list[HealthWarning]:
    """Return the warnings about storages that the actor manages and, for operators, the catalog."""
    schedule = server.maintenance.schedule
    entities = [one for one in entities if actor.rights.allows(one.manage_right, one.resource())]
    found: list[HealthWarning] = []
    # A warning that cannot be determined in time must not fail the check.
    if is_operator(actor):
        with suppress(NakshaError, TimeoutError):
            async with asyncio.timeout(limits.HEALTH_SECONDS_MAX):
                found += await catalog_warnings(server.hub, schedule, _directories(server))
    with suppress(NakshaError, TimeoutError):
        found += await storage_warnings(server.hub, realm, entities, schedule)
    return found


def _directories(server: ServerState) -> dict[str, Path]:
    """Return the directories of the catalog's file and of temporary files, by subject."""
    found = {"temporary files": Path(tempfile.gettempdir())}
    catalog = server.settings.catalog_location
    if CATALOGS.scheme_of(catalog) == FILE:
        found["catalog"] = path_of(catalog).parent
    return found


async def _check_storage(realm: RealmHub, storage_id: str) -> None:
    await (await realm.storage(storage_id)).resolve(HEAD)


async def _result(check: Awaitable[object]) -> dict[str, str]:
    try:
        async with asyncio.timeout(limits.HEALTH_SECONDS_MAX):
            await check
    except NakshaError as error:
        return {"result": "FAILED", "code": error.code, "message": error.message}
    except TimeoutError:
        return {"result": "FAILED", "code": "timed_out", "message": "Health check timed out"}
    return {"result": "OK"}
