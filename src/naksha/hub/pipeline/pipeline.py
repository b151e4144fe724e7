"""Events and the pipelines that they run through.

A pipeline is an ordered list of handlers, made once for a configuration. An event starts at the
first handler; a handler answers it, or sends it on (`send_upstream`), with the request changed or
not, and may change the answer on its way back. Nobody answers behind the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from naksha.hub.config.objects import Connector, Space
from naksha.hub.pipeline.request_context import Context
from naksha.hub.pipeline.requests import Request, WriteFeatures
from naksha.hub.remote.client import Remotes
from naksha.model import limits
from naksha.model.errors import HandlerFailed, LimitExceeded, NakshaError, NotImplementedHere
from naksha.spi.storage import Storage

R = TypeVar("R")


Observe = Callable[[str, bool], None]
"""Told of every event that a handler is done with: the name of the handler in metrics, and whether
it has failed."""


def unobserved(handler: str, has_failed: bool) -> None:
    """Nobody wants to know."""


class Handler(Protocol):
    """Some code that events run through. One of it serves all events of a space at the same time,
    so what belongs to one event is kept in variables, not in the handler."""

    async def process(self, event: Event) -> Any:
        """The answer to the event's request: what `send_upstream` gave, or one of its own."""


def metric_name(handler: Handler) -> str:
    """The name of a handler in metrics: the `metric_name` of its class, or else its class name."""
    kind = type(handler)
    return str(vars(kind).get("metric_name", kind.__name__))


class Surroundings(Protocol):
    """What a handler may use of the hub."""

    @property
    def remotes(self) -> Remotes:
        """Handlers that run elsewhere."""

    @property
    def realm_id(self) -> str:
        """The realm that it serves."""

    @property
    def files(self) -> Path | None:
        """The hub's data directory, if it has one."""

    async def storage(self, id: str) -> Storage:
        """An open storage of the realm."""

    async def send(self, space_id: str, request: Request[R], context: Context) -> R:
        """Run a request through another space, with the rights of whoever asks."""


class Setup(NamedTuple):
    """What a handler is made from."""

    connector: Connector
    space: Space
    hub: Surroundings


class Stage(NamedTuple):
    """A handler at its place in a pipeline, with the name that errors have."""

    name: str
    handler: Handler


class Pipeline:
    """The handlers of a space."""

    def __init__(
        self,
        space: Space,
        stages: Sequence[Stage],
        hub: Surroundings,
        observe: Observe = unobserved,
    ) -> None:
        self.space = space
        self.stages: Final = tuple(stages)
        self.hub = hub
        self.observe = observe

    async def run(self, request: Request[R], context: Context) -> R:
        """The answer to a request.

        Raises:
            NakshaError: With `handler`, the one that it comes from.
        """
        if context.depth > limits.EVENT_DEPTH_MAX:
            raise LimitExceeded(
                f"Spaces send to each other more than {limits.EVENT_DEPTH_MAX} deep; does a view "
                f"contain itself? The last one is {self.space.id!r}",
                field="space",
            )
        sent: Request[Any] = request
        if isinstance(request, WriteFeatures):
            sent = request.with_settled_locks(self.space.uuid_lock)
        answer: R = await Event(self, sent, context, 0).process()
        return answer


class Event:
    """A request on its way through a pipeline."""

    __slots__ = ("_index", "_pipeline", "context", "request")

    def __init__(
        self, pipeline: Pipeline, request: Request[Any], context: Context, index: int
    ) -> None:
        self.request = request
        self.context = context
        self._pipeline = pipeline
        self._index = index

    @property
    def space(self) -> Space:
        """The space that was asked."""
        return self._pipeline.space

    @property
    def is_last(self) -> bool:
        """Whether nobody is behind the handler that has the event now."""
        return self._index + 1 == len(self._pipeline.stages)

    async def send_upstream(
        self, request: Request[R] | None = None, *, context: Context | None = None
    ) -> Any:
        """The answer of the handlers behind this one, to the same request or to another one."""
        sent = self.request if request is None else request
        context = self.context if context is None else context
        return await Event(self._pipeline, sent, context, self._index + 1).process()

    async def pass_on(self) -> None:
        """What has been dealt with here goes to those behind, too, if there are any."""
        if not self.is_last:
            await self.send_upstream()

    async def send_upstream_authorized(self, request: Request[R]) -> Any:
        """The same for a request that somebody else made up: whoever asks must have the rights to
        it that he would need if he had sent it himself."""
        if self._index == 0:
            return await self.send_upstream(request)
        authorization = self._pipeline.stages[0].handler
        return await authorization.process(
            Event(self._pipeline, request, self.context, self._index)
        )

    async def send_to(self, space_id: str, request: Request[R]) -> R:
        """The answer of another space."""
        return await self._pipeline.hub.send(space_id, request, self.context.deeper())

    async def process(self) -> Any:
        """Let the handler at this place answer."""
        if self._index == len(self._pipeline.stages):
            raise NotImplementedHere(
                f"No handler of the space {self.space.id!r} answers "
                f"{type(self.request).__name__}; it has "
                f"{', '.join(stage.name for stage in self._pipeline.stages) or 'none'}"
            )
        stage = self._pipeline.stages[self._index]
        has_failed = True
        try:
            answer = await stage.handler.process(self)
            has_failed = False
        except NakshaError as error:
            if error.handler is None:
                error.handler = stage.name
            raise
        except Exception as error:
            failed = HandlerFailed(
                f"The handler {stage.name!r} of the space {self.space.id!r} failed; "
                "the log has the reason"
            )
            failed.handler = stage.name
            raise failed from error
        finally:
            self._pipeline.observe(metric_name(stage.handler), has_failed)
        return answer
