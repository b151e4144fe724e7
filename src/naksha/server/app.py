"""The ASGI application: one hub in each worker process, opened when it starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import naksha
from naksha.hub.hub import Hub
from naksha.server.errors import add_error_handlers
from naksha.server.routes import (
    branches,
    changesets,
    features,
    health,
    rewriting,
    spaces,
    tags,
)
from naksha.server.settings import Settings
from naksha.server.state import ServerState


def create_app(settings: Settings) -> FastAPI:
    """The application of one worker."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        hub = await Hub.open(settings.catalog, settings.storage)
        app.state.server = ServerState(hub, settings)
        try:
            yield
        finally:
            await hub.close()

    app = FastAPI(title="Naksha", version=naksha.__version__, lifespan=lifespan)
    add_error_handlers(app)
    for routes in (health, spaces, changesets, tags, branches, rewriting, features):
        app.include_router(routes.router)
    return app
