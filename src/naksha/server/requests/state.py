"""State of a worker and dependencies of the endpoints: the hub, the context and the realm."""

from __future__ import annotations

from typing import Annotated

from starlette.requests import Request

from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs.service import JobService
from naksha.hub.maintenance.service import MaintenanceService
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.tiles.disk_tiles import DiskTiles
from naksha.hub.tiles.memory_tiles import MemoryTiles
from naksha.hub.tiles.tile_service import TileService
from naksha.model import limits
from naksha.model.errors import Unauthorized
from naksha.server.metrics import count_tile
from naksha.server.middleware.admission import AdmissionController, AdmissionLimits
from naksha.server.middleware.auth import Authenticator
from naksha.server.middleware.long_poll import LongPolls
from naksha.server.middleware.request_record import record_of
from naksha.server.process.settings import ServerSettings
from naksha.server.requests.tile_plans import TilePlans
from naksha.server.routing.declarations import Depends


class ServerState:
    """Shared state of one worker process."""

    def __init__(
        self,
        hub: Hub,
        settings: ServerSettings,
        authenticator: Authenticator,
        admission: AdmissionController,
    ) -> None:
        self.hub = hub
        self.settings = settings
        self.authenticator = authenticator
        self.admission = admission
        # A copy reads while it writes and is not limited in time, so copies have their own limit.
        most = limits.COPIES_PARALLEL_MAX
        self.copies = AdmissionController(
            AdmissionLimits(most, most, settings.actor_queue, settings.queue_seconds)
        )
        self.tiles = _tile_service(settings)
        self.tile_plans = TilePlans()
        self.long_polls = LongPolls()
        self.jobs: JobService
        self.maintenance: MaintenanceService


def _tile_service(settings: ServerSettings) -> TileService:
    """Return the cached tiles of this process, with those that its files have."""
    disk = None
    if settings.tile_disk_bytes:
        directory, size = settings.tile_directory, settings.tile_disk_bytes
        disk = DiskTiles(directory, size, processes=settings.workers)
    return TileService(MemoryTiles(settings.tile_memory_bytes), disk, count_tile)


def server_of(request: Request) -> ServerState:
    """Return the state of the worker that serves a request."""
    state: ServerState = request.app.state.server
    return state


async def realm_of(request: Request) -> RealmHub:
    """Return the realm of the authenticated actor."""
    actor = record_of(request).actor
    if actor is None:
        raise Unauthorized("Missing or invalid token: this endpoint requires one")
    return await server_of(request).hub.realm(actor.realm)


RealmDep = Annotated[RealmHub, Depends(realm_of)]


async def context_of(request: Request, realm: RealmDep) -> RequestContext:
    """Resolve a request: its actor with their roles, its configuration and its deadline."""
    record = record_of(request)
    assert record.actor is not None, "checked with the realm"
    seconds = server_of(request).settings.request_seconds
    context = RequestContext.within(record.actor, record.stream_id, seconds, is_json=True)
    return await realm.resolved(context)


Ctx = Annotated[RequestContext, Depends(context_of)]


async def renewed(request: Request, realm: RealmHub) -> RequestContext:
    """Restart the request timeout, because the work makes progress, and resolve the request again.

    So work in many parts sees changes of the configuration and of the actor's roles.
    """
    record_of(request).prolong()
    return await context_of(request, realm)
