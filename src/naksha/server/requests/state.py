"""What every request can reach: the hub, and who asks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs.service import JobService
from naksha.hub.pipeline.request_context import Context
from naksha.model import limits
from naksha.model.errors import Unauthorized
from naksha.server.middleware.admission import TurnLimits, Turns
from naksha.server.middleware.auth import Doorkeeper
from naksha.server.middleware.long_poll import Watchers
from naksha.server.middleware.request_context import visit_of
from naksha.server.process.settings import Settings


class ServerState:
    """Of one worker process."""

    def __init__(self, hub: Hub, settings: Settings, doorkeeper: Doorkeeper, turns: Turns) -> None:
        self.hub = hub
        self.settings = settings
        self.doorkeeper = doorkeeper
        self.turns = turns
        # A copy reads as long as it writes, and its time is not bounded.
        most = limits.COPIES_PARALLEL_MAX
        self.copies = Turns(TurnLimits(most, most, settings.actor_queue, settings.queue_seconds))
        self.watchers = Watchers()
        self.jobs: JobService


def server_of(request: Request) -> ServerState:
    """The state of the worker that serves a request."""
    state: ServerState = request.app.state.server
    return state


async def context_of(request: Request) -> Context:
    """Who asks; the same for the whole request."""
    visit = visit_of(request)
    if visit.actor is None:
        raise Unauthorized("A token is needed for this")
    server = server_of(request)
    realm = await server.hub.realm(visit.actor.realm)
    visit.actor = await realm.with_roles(visit.actor)
    return Context.within(visit.actor, visit.stream_id, server.settings.request_seconds)


Ctx = Annotated[Context, Depends(context_of)]


async def realm_of(request: Request, context: Ctx) -> RealmHub:
    """The realm of whoever asks."""
    return await server_of(request).hub.realm(context.actor.realm)


RealmDep = Annotated[RealmHub, Depends(realm_of)]


def prolonged(request: Request, context: Context) -> Context:
    """The context of a request that gets its time anew, because some of the work is done."""
    visit_of(request).prolong()
    return context.prolonged(server_of(request).settings.request_seconds)
