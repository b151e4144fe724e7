"""State of a worker and dependencies of the endpoints: the hub, the context and the realm."""

from __future__ import annotations

from typing import Annotated

from starlette.requests import Request

from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs.service import JobService
from naksha.hub.pipeline.request_context import Context
from naksha.model import limits
from naksha.model.errors import Unauthorized
from naksha.server.middleware.admission import AdmissionController, AdmissionLimits
from naksha.server.middleware.auth import Authenticator
from naksha.server.middleware.long_poll import LongPolls
from naksha.server.middleware.request_record import record_of
from naksha.server.process.settings import ServerSettings
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
        self.long_polls = LongPolls()
        self.jobs: JobService


def server_of(request: Request) -> ServerState:
    """Return the state of the worker that serves a request."""
    state: ServerState = request.app.state.server
    return state


async def context_of(request: Request) -> Context:
    """Return the context of a request, with its authenticated actor and their roles."""
    record = record_of(request)
    if record.actor is None:
        raise Unauthorized("Missing or invalid token: this endpoint requires one")
    server = server_of(request)
    realm = await server.hub.realm(record.actor.realm)
    record.actor = await realm.with_roles(record.actor)
    return Context.within(record.actor, record.stream_id, server.settings.request_seconds)


Ctx = Annotated[Context, Depends(context_of)]


async def realm_of(request: Request, context: Ctx) -> RealmHub:
    """Return the realm of the actor."""
    return await server_of(request).hub.realm(context.actor.realm)


RealmDep = Annotated[RealmHub, Depends(realm_of)]


def prolonged(request: Request, context: Context) -> Context:
    """Restart the request timeout, because the work makes progress; return the new context."""
    record_of(request).prolong()
    return context.prolonged(server_of(request).settings.request_seconds)
