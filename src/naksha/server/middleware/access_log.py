"""Access-log middleware, the outermost layer: stream id, one log line per request, metrics, CORS.

Every response gets the headers `Stream-Id` and `Stream-Info` (elapsed time) and the CORS headers.
"""

from __future__ import annotations

import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naksha.server.metrics import count_request
from naksha.server.middleware.cors import ALLOWED, preflight
from naksha.server.middleware.request_record import STREAM_ID, STREAM_INFO, RequestRecord
from naksha.server.process.logs import RequestLine, log_request

_CLIENT_GONE: Final = 499
"""The status that is logged when the client disconnected before the response; never sent."""
_STREAM_ID: Final = STREAM_ID.lower().encode()
_STREAM_INFO: Final = STREAM_INFO.lower().encode()
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Other methods are counted as `OTHER`: a client can invent any number of them."""


class AccessLog:
    """Middleware that logs and counts each request and adds the common response headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord.begin(scope)
        is_head = scope["method"] == "HEAD"
        # HEAD runs as GET; the HTTP server omits the body.
        head_scope = {**scope, "method": "GET"} if is_head else scope
        fields = [*ALLOWED, (_STREAM_ID, record.stream_id.encode())]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                info = (_STREAM_INFO, _info(record))
                message["headers"] = [*message.get("headers", ()), *fields, info]
            elif not is_head:
                record.bytes_out += len(message.get("body", b""))
            await send(message)

        try:
            await (preflight(scope, record) or self._app)(head_scope, receive, sending)
        finally:
            line = _line(head_scope, scope["method"], record)
            log_request(line)
            count_request(line)


def _info(record: RequestRecord) -> bytes:
    """Return the value of the header `Stream-Info`, in milliseconds.

    `STime` is the time until the response began, `QTime` the part of it in the queue.
    """
    taken = (time.perf_counter() - record.began) * 1000
    return b"STime=%d;QTime=%d" % (taken, record.seconds_queued * 1000)


def _line(scope: Scope, method: str, record: RequestRecord) -> RequestLine:
    actor = record.actor
    return RequestLine(
        stream_id=record.stream_id,
        method=method if method in _METHODS else "OTHER",
        route=getattr(scope.get("endpoint"), "path", ""),
        status=record.status or _CLIENT_GONE,
        ms=round((time.perf_counter() - record.began) * 1000, 2),
        queued_ms=round(record.seconds_queued * 1000, 2),
        bytes_in=record.bytes_in,
        bytes_out=record.bytes_out,
        realm=None if actor is None else actor.realm,
        app=None if actor is None else actor.app_id,
        author=None if actor is None else actor.author,
    )
