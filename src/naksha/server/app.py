"""ASGI application and its middleware stack, from the outermost layer to the routes.

Observing    stream id, access log, metrics, CORS
Compression  gzip
Gate         authentication, admission, timeout, body limits
Dispatcher   parameters, endpoint, response
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.runner import JobRunnerSettings
from naksha.hub.jobs.service import running_jobs
from naksha.hub.leases import lease_times
from naksha.hub.maintenance.service import maintaining
from naksha.hub.subscriptions.service import delivering
from naksha.server import VERSION
from naksha.server.errors import no_endpoint
from naksha.server.metrics import count_event, observe_round
from naksha.server.middleware.access_log import AccessLog
from naksha.server.middleware.admission import AdmissionController, AdmissionLimits
from naksha.server.middleware.auth import Authenticator
from naksha.server.middleware.compression import Compression
from naksha.server.middleware.gate import Gate
from naksha.server.openapi import version_schemas
from naksha.server.openapi.document import Document
from naksha.server.process.open_hub import check_default_storage, open_hub
from naksha.server.process.settings import ServerSettings
from naksha.server.requests.json_body import json_body
from naksha.server.requests.parameter_checks import ParameterChecks
from naksha.server.requests.state import ServerState
from naksha.server.routes.table import ROUTES
from naksha.server.routing.declarations import Router
from naksha.server.routing.dispatch import Dispatcher


class Application:
    """ASGI application of one worker: the endpoints behind the middleware."""

    def __init__(
        self,
        settings: ServerSettings,
        routers: Sequence[Router],
        authenticator: Authenticator | None = None,
    ) -> None:
        """Assemble the application; `serving` opens its hub."""
        self.state: Final = State()
        self.state.settings = settings
        authenticator = self.state.authenticator = authenticator or Authenticator(settings)
        admission = self.state.admission = AdmissionController(
            AdmissionLimits(
                settings.parallel,
                settings.actor_parallel,
                settings.actor_queue,
                settings.queue_seconds,
            )
        )
        self._dispatcher = dispatcher = Dispatcher(routers, json_body, no_endpoint)
        dispatcher.checks.append(ParameterChecks(dispatcher.endpoints))
        self._needs_token = not authenticator.lets_in_anonymous
        self._document: dict[str, Any] | None = None
        gate = Gate(dispatcher, settings=settings, authenticator=authenticator, admission=admission)
        self._app = AccessLog(Compression(gate))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self._app(scope, receive, send)

    def has(self, path: str) -> bool:
        """Return whether an endpoint has this path, with any method."""
        return self._dispatcher.has(path)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self._document is None:
            endpoints = [one for one in self._dispatcher.endpoints if one.declared.documented]
            self._document = Document.of(
                endpoints, version_schemas.SCHEMAS, needs_token=self._needs_token
            )
        return self._document

    def openapi_json(self) -> bytes:
        """Return the OpenAPI document as JSON."""
        return msgspec.json.encode(self.openapi())


def create_app(
    settings: ServerSettings,
    more: Sequence[Router] = (),
    *,
    authenticator: Authenticator | None = None,
) -> Application:
    """Create the application of one worker, with `more` endpoints besides its own."""
    routers = [*(routes.router for routes in ROUTES), *more]
    return Application(settings, routers, authenticator)


@asynccontextmanager
async def serving(app: Application) -> AsyncIterator[ServerState]:
    """Open the hub of an application for the block, with its background services."""
    settings: ServerSettings = app.state.settings
    hub = await open_hub(settings, observe=count_event)
    try:
        await check_default_storage(hub, settings)
        state = ServerState(hub, settings, app.state.authenticator, app.state.admission)
        app.state.server = state
        times = lease_times(settings.subscription_seconds)
        how = JobRunnerSettings(
            kinds=JobKinds(),
            files=JobFiles(settings.job_directory),
            master=settings.job_master,
            settings=settings.job_settings,
        )
        jobs = running_jobs(hub, how, count_max=settings.job_parallel, times=times)
        rounds = maintaining(
            hub,
            settings.maintenance_schedule,
            release=VERSION,
            times=times,
            observe=observe_round,
        )
        async with delivering(hub, times), jobs as state.jobs, rounds as state.maintenance:
            yield state
    finally:
        await hub.close()
