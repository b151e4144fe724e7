"""Host of event handlers in a separate process.

Events arrive as JSON. When a handler forwards a request, the host returns the request to the hub
and suspends the handler until the hub posts the response. A handler is the same class that runs
inside a hub. It is constructed from the connector in the event, once per configuration. Of the hub,
only `send_upstream` and `send_to` are available to it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.auth.rights import NO_RIGHTS
from naksha.hub.config.objects import Connector, Space
from naksha.hub.pipeline.pipeline import Event, Handler, HubServices, Pipeline, Setup
from naksha.hub.pipeline.request_context import Actor, RequestContext
from naksha.hub.pipeline.requests import Request
from naksha.hub.remote.client import RemoteClient
from naksha.hub.remote.wire import (
    PROTOCOL,
    ForwardedRequest,
    HandlerReply,
    WireEvent,
    decode_error,
    decode_request,
    decode_response,
    encode_error,
    encode_request,
    encode_response,
    response_type,
)
from naksha.model import limits
from naksha.model.errors import (
    HandlerFailed,
    InvalidArgument,
    NakshaError,
    NotFound,
    NotSupported,
    Unavailable,
)
from naksha.spi.storage import Storage

_log: Final = logging.getLogger(__name__)
MakeHandler = Callable[[Setup], Handler]


class _RemoteSurroundings:
    """The hub's surroundings as a hosted handler sees them."""

    def __init__(self, realm_id: str) -> None:
        self.realm_id = realm_id
        self.remotes = RemoteClient()
        self.files: Path | None = None

    async def storage(self, id: str) -> Storage:
        raise NotSupported(
            "A remote handler cannot open storages; send requests upstream or to a space instead"
        )

    async def send(self, space_id: str, request: Request[Any], context: RequestContext) -> Any:
        raise NotSupported(
            "A remote handler cannot send requests through the hub object; use event.send_to"
        )


class _Exchange:
    """One event: the running handler and its exchange of messages with the hub."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self._lock = asyncio.Lock()
        self._replies: asyncio.Queue[HandlerReply] = asyncio.Queue()
        self._answer: asyncio.Future[WireEvent] | None = None
        self.task: asyncio.Task[None] | None = None
        self.continuation: str = secrets.token_urlsafe(24)

    def start(self, handler: Handler, event: Event) -> None:
        self.task = asyncio.create_task(self._run(handler, event))

    async def _run(self, handler: Handler, event: Event) -> None:
        try:
            response = await handler.process(event)
            reply = HandlerReply(response=await encode_response(response))
        except NakshaError as error:
            reply = HandlerReply(error=encode_error(error))
        except Exception:  # noqa: BLE001 - reported to the hub
            _log.exception("The remote handler raised an exception")
            failed = HandlerFailed(
                "The remote handler failed; its operator finds the reason in the log of its host"
            )
            reply = HandlerReply(error=encode_error(failed))
        self._replies.put_nowait(reply)

    async def sent(self, sent: ForwardedRequest) -> WireEvent:
        """Forward a request and return the hub's response. One at a time: the hub is waiting."""
        async with self._lock:
            self._answer = asyncio.get_running_loop().create_future()
            self._replies.put_nowait(HandlerReply(send=sent, continuation=self.continuation))
            return await self._answer

    def resume(self, event: WireEvent) -> None:
        """Pass the hub's response to the waiting handler."""
        if self._answer is None or self._answer.done():
            raise InvalidArgument(
                "The handler is not waiting for a response; the continuation is invalid",
                field="continuation",
            )
        # A continuation is valid for one response, so that a repeated one is not accepted twice.
        self.continuation = secrets.token_urlsafe(24)
        self._answer.set_result(event)

    async def reply(self) -> HandlerReply:
        """Wait for the next reply to the hub."""
        async with asyncio.timeout_at(
            asyncio.get_running_loop().time() + max(0.0, self.until - time.monotonic())
        ):
            return await self._replies.get()


class HostedEvent(Event):
    """An event at a host, with the same interface as inside a hub."""

    __slots__ = ("_exchange",)

    def __init__(
        self,
        pipeline: Pipeline,
        request: Request[Any],
        context: RequestContext,
        exchange: _Exchange,
    ) -> None:
        super().__init__(pipeline, request, context, 0)
        self._exchange = exchange

    async def send_upstream(
        self, request: Request[Any] | None = None, *, context: RequestContext | None = None
    ) -> Any:
        if context is not None:
            raise NotSupported("A remote handler cannot change the context of an event")
        if request is None or request is self.request:
            return await self._send(ForwardedRequest(), self.request)
        return await self._send(ForwardedRequest(encode_request(request)), request)

    async def send_to(self, space_id: str, request: Request[Any]) -> Any:
        return await self._send(ForwardedRequest(encode_request(request), space_id), request)

    async def _send(self, sent: ForwardedRequest, request: Request[Any]) -> Any:
        response = await self._exchange.sent(sent)
        if response.error is not None:
            raise decode_error(response.error)
        if not bytes(response.response):
            raise InvalidArgument(
                "The hub sent an event with neither a response nor an error; use the same "
                "release for hub and host",
                field="response",
            )
        return decode_response(response.response, response_type(type(request)))


class _HostedHandler(NamedTuple):
    """A handler and the pipeline of its space, of which the host knows only the space."""

    handler: Handler
    pipeline: Pipeline


class HandlerHost:
    """Processes events for one handler class."""

    def __init__(self, make_handler: MakeHandler) -> None:
        self._make_handler = make_handler
        self._hosted: OrderedDict[bytes, _HostedHandler] = OrderedDict()
        self._waiting: dict[str, _Exchange] = {}
        self._count = 0

    async def handle(self, event: WireEvent) -> HandlerReply:
        """Process an event and return the reply to the hub."""
        try:
            exchange = self._exchange(event)
            return await self._next(exchange)
        except NakshaError as error:
            return HandlerReply(error=encode_error(error))

    def _exchange(self, event: WireEvent) -> _Exchange:
        if event.protocol != PROTOCOL:
            raise NotSupported(
                f"This host supports only version {PROTOCOL} of the protocol, not "
                f"{event.protocol}; use the same release for hub and host",
                field="protocol",
            )
        if event.continuation is None:
            return self._begun(event)
        exchange = self._waiting.pop(event.continuation, None)
        if exchange is None:
            raise NotFound(
                "Unknown continuation: the event timed out, or another host processes it",
                field="continuation",
            )
        exchange.resume(event)
        return exchange

    def _begun(self, event: WireEvent) -> _Exchange:
        self._give_up_old()
        if self._count >= limits.HOST_EVENTS_MAX:
            raise Unavailable(
                f"This host is busy with {limits.HOST_EVENTS_MAX} events, its maximum; retry later"
            )
        hosted = self._handler(event)
        request = decode_request(event.request)
        seconds = min(event.seconds_left, limits.REMOTE_SECONDS_MAX)
        actor = Actor(app_id=event.app_id, author=event.author, realm=event.realm, rights=NO_RIGHTS)
        context = RequestContext.within(actor, event.stream_id, seconds)
        exchange = _Exchange(seconds)
        exchange.start(hosted.handler, HostedEvent(hosted.pipeline, request, context, exchange))
        assert exchange.task is not None
        self._count += 1
        exchange.task.add_done_callback(self._ended)
        return exchange

    async def _next(self, exchange: _Exchange) -> HandlerReply:
        try:
            reply = await exchange.reply()
        except (TimeoutError, asyncio.CancelledError) as error:
            self._cancel(exchange)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise HandlerFailed(
                "The remote handler did not finish in time; its developer has to make it faster"
            ) from None
        if reply.send is not None:
            self._waiting[exchange.continuation] = exchange
        return reply

    def _handler(self, event: WireEvent) -> _HostedHandler:
        configured = [event.realm, event.connector, event.space]
        key = msgspec.json.encode(configured, order="sorted")
        known = self._hosted.get(key)
        if known is None:
            connector, space = Connector.from_json(event.connector), Space.from_json(event.space)
            hub: HubServices = _RemoteSurroundings(event.realm)
            try:
                handler = self._make_handler(Setup(connector, space, hub))
            except (TypeError, ValueError, LookupError) as error:
                raise InvalidArgument(
                    f"The connector {connector.id!r} has invalid properties: {error!r}",
                    field="properties",
                ) from error
            known = self._hosted[key] = _HostedHandler(handler, Pipeline(space, (), hub))
            if len(self._hosted) > limits.HOST_HANDLERS_MAX:
                self._hosted.popitem(last=False)
        self._hosted.move_to_end(key)
        return known

    def _give_up_old(self) -> None:
        """Cancel events whose deadline has passed: the hub no longer waits for them."""
        now = time.monotonic()
        for continuation in [key for key, each in self._waiting.items() if each.until < now]:
            self._cancel(self._waiting.pop(continuation))

    def _cancel(self, exchange: _Exchange) -> None:
        if exchange.task is not None:
            exchange.task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._count -= 1

    async def close(self) -> None:
        """Cancel all events in progress."""
        for exchange in self._waiting.values():
            self._cancel(exchange)
        self._waiting.clear()
