"""The ASGI application: what requests run through, from the outside to the routes.

Observing    stream id, log, metrics
CORS         pages of any origin may ask
GZip         answers, when the client likes
Gate         who asks, his turn, his time, the size of what he sends
Shortcuts    past the framework, for what is asked often
routes
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

import naksha
from naksha.catalog.catalog import Tuning
from naksha.hub.hub import Hub
from naksha.hub.objects import StorageObject
from naksha.hub.setting_up import DEFAULT_REALM, DEFAULT_STORAGE
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.server.answers import FAILED
from naksha.server.auth import Doorkeeper
from naksha.server.documents import complete_document
from naksha.server.errors import add_error_handlers
from naksha.server.gate import Gate
from naksha.server.metrics import count_event
from naksha.server.observing import Observing
from naksha.server.routes import (
    branches,
    changesets,
    features,
    health,
    iterate,
    operation,
    rewriting,
    search,
    spaces,
    spatial,
    spatial_batch,
    statistics,
    tags,
    tiles,
)
from naksha.server.settings import Settings
from naksha.server.shortcuts import Shortcuts
from naksha.server.state import ServerState
from naksha.server.turns import TurnLimits, Turns
from naksha.spi.locations import redacted

_log: Final = logging.getLogger(__name__)
ROUTES: Final = (
    health,
    operation,
    spaces,
    changesets,
    tags,
    branches,
    rewriting,
    features,
    search,
    iterate,
    spatial,
    spatial_batch,
    tiles,
    statistics,
)
_EXPOSED: Final = ["ETag", FAILED, "Retry-After", "Stream-Id"]
_GZIP_LEVEL: Final = 4
"""Half the time of the usual level for nearly the same size."""
_LOOPBACK: Final = "127.0.0.1"


def create_app(settings: Settings) -> FastAPI:
    """The application of one worker; `serving` gives it its hub."""
    app = FastAPI(
        title="Naksha",
        version=naksha.__version__,
        docs_url=None,  # its page would come from elsewhere
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
    app.add_middleware(Shortcuts, routers=[routes.router for routes in ROUTES])
    app.add_middleware(
        Gate, settings=settings, doorkeeper=app.state.doorkeeper, turns=app.state.turns
    )
    app.add_middleware(
        GZipMiddleware, minimum_size=limits.GZIP_BYTES_MIN, compresslevel=_GZIP_LEVEL
    )
    app.add_middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
    )
    app.add_middleware(Observing)
    for routes in ROUTES:
        app.include_router(routes.router)
    complete_document(app)
    return app


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[ServerState]:
    """Open the hub that an application answers from, for the block."""
    settings: Settings = app.state.settings
    hub = await open_hub(settings)
    try:
        await _check_default_storage(hub, settings)
        state = ServerState(hub, settings, app.state.doorkeeper, app.state.turns)
        app.state.server = state
        yield state
    finally:
        await hub.close()


async def open_hub(settings: Settings) -> Hub:
    """The hub of the settings."""
    peers = settings.peers or (_LOOPBACK if settings.workers > 1 else "")
    tuning = Tuning(pointer_seconds=settings.config_seconds, listen=peers)
    return await Hub.open(
        settings.catalog_location,
        settings.default_storage,
        tuning=tuning,
        observe=count_event,
        files=settings.data_directory,
    )


async def _check_default_storage(hub: Hub, settings: Settings) -> None:
    """Open the storage that most spaces are in, so that a mistake shows at once."""
    realm = await hub.realm(DEFAULT_REALM)
    thing = await realm.registry.find(StorageObject, DEFAULT_STORAGE)
    if thing is None or not thing.active:
        return
    told = settings.default_storage.for_realm(DEFAULT_REALM)
    if settings.storage and thing.properties != told.properties:
        _log.warning(
            "The realm %s keeps its features in %s since it was made; the storage that was given "
            "is for new realms",
            DEFAULT_REALM,
            redacted(str(thing.properties.get("location"))),
        )
    try:
        await realm.storage(DEFAULT_STORAGE)
    except NakshaError as error:
        error.message = f"The storage of the realm {DEFAULT_REALM} cannot be used: {error.message}"
        raise
