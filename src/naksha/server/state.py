"""What every request can reach: the hub, and who asks."""

from __future__ import annotations

import secrets
from typing import Annotated, Final

from fastapi import Depends, Request

from naksha.hub.context import Context, anonymous
from naksha.hub.hub import Hub, RealmHub
from naksha.server.settings import Settings

STREAM_ID: Final = "Stream-Id"


class ServerState:
    """Of one worker process."""

    def __init__(self, hub: Hub, settings: Settings) -> None:
        self.hub = hub
        self.settings = settings


def server_of(request: Request) -> ServerState:
    """The state of the worker that serves a request."""
    state: ServerState = request.app.state.server
    return state


def context_of(request: Request) -> Context:
    """Who asks; the same for the whole request."""
    stream_id = request.headers.get(STREAM_ID) or secrets.token_urlsafe(9)
    return Context(actor=anonymous(), stream_id=stream_id)


Ctx = Annotated[Context, Depends(context_of)]


async def realm_of(request: Request, context: Ctx) -> RealmHub:
    """The realm of whoever asks."""
    return await server_of(request).hub.realm(context.actor.realm)


RealmDep = Annotated[RealmHub, Depends(realm_of)]
