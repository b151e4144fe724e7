"""Pipelines and the events that run through them.

A pipeline is an ordered list of handlers, built once per configuration. An event starts at the
first handler. A handler returns a response, or forwards the event (`send_upstream`) with the same
or another request, and may change the response. A request that the last handler forwards fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from naksha.hub.config.objects import Connector, Space
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import Request, WriteFeatures
from naksha.hub.remote.client import RemoteClient
from naksha.model import limits
from naksha.model.errors import HandlerFailed, LimitExceeded, NakshaError, NotImplementedHere
from naksha.spi.storage import Storage

R = TypeVar("R")


Observe = Callable[[str, bool], None]
"""Called after each event that a handler has processed, with the handler's name in metrics and
whether it failed."""


def ignore_event(handler: str, has_failed: bool) -> None:
    """Observer that does nothing."""


class Handler(Protocol):
    """Event handler.

    One instance serves all events of a space concurrently, so state of an event belongs in local
    variables, not in the handler. A class may declare `keeps_json = True`: it puts only values into
    features that were parsed from JSON. Features of other handlers are checked for that.
    """

    async def process(self, event: Event) -> Any:
        """Return the response: the result of `send_upstream`, possibly changed, or its own."""


def metric_name(handler: Handler) -> str:
    """Return the name of a handler in metrics: `metric_name` of its class, or the class name."""
    kind = type(handler)
    return str(vars(kind).get("metric_name", kind.__name__))


class HubServices(Protocol):
    """Interface of the hub that is available to handlers."""

    @property
    def remotes(self) -> RemoteClient:
        """Client for remote handlers."""

    @property
    def realm_id(self) -> str:
        """Id of the realm."""

    @property
    def files(self) -> Path | None:
        """The hub's data directory, if it has one."""

    async def storage(self, id: str) -> Storage:
        """Return an open storage of the realm."""

    async def send(self, space_id: str, request: Request[R], context: RequestContext) -> R:
        """Send a request to another space, with the rights of the context's actor."""


class Setup(NamedTuple):
    """Arguments for constructing a handler."""

    connector: Connector
    space: Space
    hub: HubServices


class Stage(NamedTuple):
    """A handler in a pipeline, with its name for errors."""

    name: str
    handler: Handler


class Pipeline:
    """The handlers of a space."""

    def __init__(
        self,
        space: Space,
        stages: Sequence[Stage],
        hub: HubServices,
        observe: Observe = ignore_event,
        *,
        fingerprint: bytes = b"",
    ) -> None:
        self.space = space
        self.fingerprint: Final = fingerprint
        """Hash of the configuration that the pipeline was built from."""
        self.stages: Final = tuple(stages)
        self.hub = hub
        self.observe = observe
        self.metric_names: Final = [metric_name(stage.handler) for stage in self.stages]
        self._keeps_json = all(
            getattr(type(stage.handler), "keeps_json", False) for stage in self.stages
        )

    async def run(self, request: Request[R], context: RequestContext) -> R:
        """Run a request and return the response.

        Raises:
            NakshaError: Its `handler` names the handler that raised it.
        """
        if context.depth > limits.EVENT_DEPTH_MAX:
            raise LimitExceeded(
                f"The request was forwarded through more than {limits.EVENT_DEPTH_MAX} spaces; "
                f"check for a view that contains itself. The last space is {self.space.id!r}",
                field="space",
            )
        if context.is_json and not self._keeps_json:
            context = msgspec.structs.replace(context, is_json=False)
        sent: Request[Any] = request
        if isinstance(request, WriteFeatures):
            sent = request.with_settled_locks(self.space.uuid_lock)
        response: R = await Event(self, sent, context, 0).process()
        return response


class Event:
    """A request at one handler of a pipeline."""

    __slots__ = ("_index", "_pipeline", "context", "request")

    def __init__(
        self, pipeline: Pipeline, request: Request[Any], context: RequestContext, index: int
    ) -> None:
        self.request = request
        self.context = context
        self._pipeline = pipeline
        self._index = index

    @property
    def space(self) -> Space:
        """The requested space."""
        return self._pipeline.space

    @property
    def is_last(self) -> bool:
        """Whether the current handler is the last one of the pipeline."""
        return self._index + 1 == len(self._pipeline.stages)

    async def send_upstream(
        self, request: Request[R] | None = None, *, context: RequestContext | None = None
    ) -> Any:
        """Forward the same or another request to the next handler and return the response."""
        sent = self.request if request is None else request
        context = self.context if context is None else context
        return await Event(self._pipeline, sent, context, self._index + 1).process()

    async def pass_on(self) -> None:
        """Forward the request to the next handler, if there is one, and ignore the response."""
        if not self.is_last:
            await self.send_upstream()

    async def send_upstream_authorized(self, request: Request[R]) -> Any:
        """Forward a request of another origin, after authorizing it.

        The actor must have the rights that sending the request directly would need.
        """
        if self._index == 0:
            return await self.send_upstream(request)
        authorization = self._pipeline.stages[0].handler
        return await authorization.process(
            Event(self._pipeline, request, self.context, self._index)
        )

    async def send_to(self, space_id: str, request: Request[R]) -> R:
        """Send a request to another space and return the response."""
        return await self._pipeline.hub.send(space_id, request, self.context.deeper())

    async def process(self) -> Any:
        """Run the current handler and return its response."""
        if self._index == len(self._pipeline.stages):
            raise NotImplementedHere(
                f"No handler of the space {self.space.id!r} supports the request "
                f"{type(self.request).__name__}; its handlers are: "
                f"{', '.join(stage.name for stage in self._pipeline.stages) or 'none'}"
            )
        stage = self._pipeline.stages[self._index]
        has_failed = True
        try:
            response = await stage.handler.process(self)
            has_failed = False
        except NakshaError as error:
            if error.handler is None:
                error.handler = stage.name
            raise
        except Exception as error:
            failed = HandlerFailed(
                f"The handler {stage.name!r} of the space {self.space.id!r} failed; the operator "
                "of the hub finds the reason in its log"
            )
            failed.handler = stage.name
            raise failed from error
        finally:
            self._pipeline.observe(self._pipeline.metric_names[self._index], has_failed)
        return response
