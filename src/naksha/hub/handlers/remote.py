"""Remote handler: events are posted to a server, with the connector's configuration in them.

    {"url": "https://handlers.example.com/stamp",   the server must allow it
     "timeout": 30, "connectTimeout": 5,            seconds
     "secret": "…"}                                 signs the events; it is never shown

All other properties are for the remote handler itself. `naksha.hub.remote.wire` specifies the
protocol, and `naksha.hub.remote` hosts handlers in Python without knowledge of it. The client's
token is not forwarded.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.feed.delivery_requests import DeliverChanges
from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import Request
from naksha.hub.remote.call_options import RemoteCaller
from naksha.hub.remote.client import ConnectFailed, ConnectionBroken, ResponseTimeout
from naksha.hub.remote.wire import (
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
    LimitExceeded,
    NakshaError,
    OutcomeUnknown,
    RemoteFailed,
    TimedOut,
)

_log: Final = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(HandlerReply).decode


class RemoteHandler:
    """Handler that forwards events to a remote server."""

    metric_name: ClassVar[str] = "RemoteHandler"
    keeps_json: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        self._name = setup.connector.id
        self._caller = RemoteCaller(setup)
        self._connector = setup.connector.to_json()
        self._space = setup.space.to_json()

    async def process(self, event: Event) -> Any:
        posted = self._event(event, request=encode_request(event.request))
        has_sent = False
        for _ in range(limits.REMOTE_STEPS_MAX):
            reply = await self._call(event, posted, has_sent=has_sent)
            if reply.error is not None:
                raise self._error_of(reply)
            if reply.has_response:
                return self._response(reply.response, event.request)
            assert reply.send is not None, "a reply has one of three"
            sent = self._request(reply.send, event)
            if reply.continuation is None:
                return await _send(event, sent, reply.send)
            posted = await self._continuation(event, sent, reply)
            has_sent = has_sent or sent.changes
        raise LimitExceeded(
            f"The remote handler {self._name!r} sent more than {limits.REMOTE_STEPS_MAX} requests "
            "for one event; its developer has to send fewer"
        )

    # ---- Events to post --------------------------------------------------------------------------

    def _event(self, event: Event, **more: Any) -> WireEvent:
        actor, left = event.context.actor, event.context.seconds_left
        return WireEvent(
            stream_id=event.context.stream_id,
            realm=actor.realm,
            app_id=actor.app_id,
            author=actor.author,
            seconds_left=self._caller.seconds_max if left is None else left,
            space=self._space,
            connector=self._connector,
            **more,
        )

    async def _continuation(
        self, event: Event, sent: Request[Any], reply: HandlerReply
    ) -> WireEvent:
        """Return the event that carries the response of a request which the handler sent."""
        assert reply.send is not None
        try:
            answer = await _send(event, sent, reply.send)
            response = await encode_response(answer)
        except NakshaError as error:
            return self._event(event, continuation=reply.continuation, error=encode_error(error))
        return self._event(event, continuation=reply.continuation, response=response)

    # ---- The call ----------------------------------------------------------------------------

    async def _call(self, event: Event, posted: WireEvent, *, has_sent: bool) -> HandlerReply:
        """Post an event and return the reply.

        Retries only where nothing can happen twice: when the server was not reached, or when the
        event is the first one of a request that changes nothing.
        """
        body = msgspec.json.encode(posted)
        if len(body) > limits.REMOTE_BODY_BYTES_MAX:
            raise LimitExceeded(
                f"The event exceeds {limits.REMOTE_BODY_BYTES_MAX} bytes, the limit for remote "
                "handlers; send fewer features per request"
            )
        is_repeatable = posted.continuation is None and not event.request.changes
        is_delivery = isinstance(event.request, DeliverChanges)
        for attempt in range(limits.REMOTE_ATTEMPTS):
            try:
                return self._reply(
                    await self._caller.post(body, {}, event.context, is_delivery=is_delivery)
                )
            except (ConnectFailed, ConnectionBroken) as error:
                is_last = attempt == limits.REMOTE_ATTEMPTS - 1
                if is_last or not (isinstance(error, ConnectFailed) or is_repeatable):
                    raise self._failed(event, error, has_sent=has_sent) from error
            except (ResponseTimeout, RemoteFailed) as error:
                raise self._failed(event, error, has_sent=has_sent) from error
            await asyncio.sleep(limits.REMOTE_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _failed(self, event: Event, error: RemoteFailed, *, has_sent: bool) -> NakshaError:
        """Return the error for the client; the URL and the cause are only logged."""
        _log.warning(
            "Remote handler %s at %s failed: %s (%r)",
            self._name,
            self._caller.url,
            error.message,
            error.__cause__,
        )
        message = f"The remote handler {self._name!r} failed: {error.message}"
        if has_sent or (event.request.changes and not isinstance(error, ConnectFailed)):
            return OutcomeUnknown(
                f"{message}; the hub does not know whether features were changed, so read them "
                "before you retry"
            )
        return TimedOut(message) if isinstance(error, ResponseTimeout) else RemoteFailed(message)

    # ---- Replies ---------------------------------------------------------------------------------

    def _reply(self, body: bytes) -> HandlerReply:
        try:
            return _decode(body)
        except msgspec.DecodeError as error:
            raise RemoteFailed(
                "The response of its server is not a valid handler reply; its developer has to "
                "correct it"
            ) from error

    def _request(self, sent: ForwardedRequest, event: Event) -> Request[Any]:
        if sent.is_same:
            return event.request
        try:
            return decode_request(sent.request)
        except InvalidArgument as error:
            raise self._invalid_response("sent an invalid request", error) from error

    def _response(self, raw: msgspec.Raw, request: Request[Any]) -> Any:
        try:
            return decode_response(raw, response_type(type(request)))
        except InvalidArgument as error:
            raise self._invalid_response(
                "sent a response that does not match the request", error
            ) from error

    def _invalid_response(self, part: str, error: NakshaError) -> RemoteFailed:
        _log.warning("Remote handler %s %s: %s", self._name, part, error.message)
        return RemoteFailed(
            f"The remote handler {self._name!r} {part}; its developer has to correct it (see the "
            "log of the hub)"
        )

    def _error_of(self, reply: HandlerReply) -> NakshaError:
        assert reply.error is not None
        error = decode_error(reply.error)
        if isinstance(error, HandlerFailed | RemoteFailed):
            _log.warning("Remote handler %s returned an error: %s", self._name, error.message)
        return error


async def _send(event: Event, request: Request[Any], sent: ForwardedRequest) -> Any:
    if sent.is_same and sent.space is None:
        return await event.send_upstream(request)
    if sent.space is None:
        return await event.send_upstream_authorized(request)
    return await event.send_to(sent.space, request)
