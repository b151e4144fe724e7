"""Compression of responses for clients that accept gzip."""

from __future__ import annotations

from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from naksha.model import limits
from naksha.server.middleware.request_record import record_of

EVENTS: Final = "text/event-stream"
_LEVEL: Final = 4
"""Takes half the time of the default level for nearly the same size."""
_BODILESS: Final = frozenset({204, 304})
_VARY: Final = (b"vary", b"Accept-Encoding")


class Compression:
    """Middleware that compresses responses; those to other clients only get the header `Vary`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._zipped = GZipMiddleware(
            app,
            minimum_size=limits.GZIP_BYTES_MIN,
            compresslevel=_LEVEL,
            exclude_content_types=(EVENTS,),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or b"gzip" in record_of(scope).fields.get(
            b"accept-encoding", b""
        ):
            await self._zipped(scope, receive, send)
            return

        head: list[Message] = []

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                if _is_compressible(message):
                    message["headers"] = [*message["headers"], _VARY]
                # Until the first chunk is read, an error can still change the status.
                head.append(message)
                return
            if head:
                await send(head.pop())
            await send(message)

        await self._app(scope, receive, sending)


def _is_compressible(start: Message) -> bool:
    """Return whether a client that accepts gzip gets this response compressed."""
    size = limits.GZIP_BYTES_MIN
    for name, value in start["headers"]:
        if name == b"content-length":
            size = int(value)
        elif name == b"content-type" and value.startswith(EVENTS.encode()):
            return False
    return size >= limits.GZIP_BYTES_MIN and start["status"] not in _BODILESS
