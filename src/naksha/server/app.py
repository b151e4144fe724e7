"""ASGI application and its middleware stack, from the outermost layer to the routes.

Observing    stream id, access log, metrics, CORS
GZip         response compression
Gate         authentication, admission, timeout, body limits
Shortcuts    fast path around the framework for frequent requests
routes
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.runner import Running
from naksha.hub.jobs.service import running_jobs
from naksha.hub.leases import lease_times
from naksha.hub.subscriptions.service import delivering
from naksha.model import limits
from naksha.server import VERSION
from naksha.server.errors import add_error_handlers
from naksha.server.metrics import count_event
from naksha.server.middleware.access_log import Observing
from naksha.server.middleware.admission import TurnLimits, Turns
from naksha.server.middleware.auth import Doorkeeper
from naksha.server.middleware.gate import Gate
from naksha.server.openapi import version_schemas
from naksha.server.openapi.feature_schemas import complete_document
from naksha.server.process.open_hub import check_default_storage, open_hub
from naksha.server.process.settings import Settings
from naksha.server.requests.parameter_checks import ParameterChecks
from naksha.server.requests.state import ServerState
from naksha.server.routes.shortcuts import Shortcuts
from naksha.server.routes.table import ROUTES

_GZIP_LEVEL: Final = 4
"""Takes half the time of the default level for nearly the same size."""


def create_app(settings: Settings) -> FastAPI:
    """Create the application of one worker; `serving` opens its hub."""
    app = FastAPI(
        title="Naksha",
        version=VERSION,
        docs_url=None,  # the page would load scripts from a CDN
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.doorkeeper = Doorkeeper(settings)
    app.state.turns = Turns(
        TurnLimits(
            settings.parallel, settings.actor_parallel, settings.actor_queue, settings.queue_seconds
        )
    )
    add_error_handlers(app)
    # The last one added is the outermost.
    routers = [routes.router for routes in ROUTES]
    app.add_middleware(Shortcuts, routers=routers)
    app.add_middleware(ParameterChecks, routers=routers)
    app.add_middleware(
        Gate, settings=settings, doorkeeper=app.state.doorkeeper, turns=app.state.turns
    )
    app.add_middleware(
        GZipMiddleware,
        minimum_size=limits.GZIP_BYTES_MIN,
        compresslevel=_GZIP_LEVEL,
        exclude_content_types=("text/event-stream",),
    )
    app.add_middleware(Observing)
    for routes in ROUTES:
        app.include_router(routes.router)
    app.state.routes = [route for routes in ROUTES for route in routes.router.routes]
    complete_document(
        app, version_schemas.SCHEMAS, needs_token=not app.state.doorkeeper.lets_in_anonymous
    )
    return app


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[ServerState]:
    """Open the hub of an application for the block, with its jobs and subscriptions."""
    settings: Settings = app.state.settings
    hub = await open_hub(settings, observe=count_event)
    try:
        await check_default_storage(hub, settings)
        state = ServerState(hub, settings, app.state.doorkeeper, app.state.turns)
        app.state.server = state
        times = lease_times(settings.subscription_seconds)
        how = Running(
            kinds=JobKinds(),
            files=JobFiles(settings.job_directory),
            master=settings.job_master,
            settings=settings.job_settings,
        )
        jobs = running_jobs(hub, how, count_max=settings.job_parallel, times=times)
        async with delivering(hub, times), jobs as state.jobs:
            yield state
    finally:
        await hub.close()
