"""Bodies of requests: unpacked when they are packed, never larger than is allowed, always JSON."""

from __future__ import annotations

import zlib
from typing import Final

from starlette.types import Message, Receive, Scope

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.server.middleware.request_context import Visit, has_body, visit_of

_GZIP: Final = 16 + zlib.MAX_WBITS
_DROPPED: Final = frozenset({b"content-encoding", b"content-length"})
"""Fields that are not true of what was unpacked."""
_CONTENT_TYPE: Final = b"content-type"
_JSON: Final = (_CONTENT_TYPE, b"application/json")


def bounded(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """How the application gets the body of a request.

    Raises:
        LimitExceeded: It says itself that it is too large.
        InvalidArgument: It is packed as nobody here can unpack it.
    """
    visit = visit_of(scope)
    if not has_body(visit):
        return receive
    length = visit.fields.get(b"content-length", b"")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    _call_it_json(scope)
    encoding = (visit.field(b"content-encoding") or "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        scope["headers"] = [field for field in scope["headers"] if field[0] not in _DROPPED]
        return _Unpacking(visit, receive, bytes_max).receive
    if encoding != "identity":
        raise InvalidArgument(
            f"The body is packed as {encoding[:40]!r}; send it as it is, or with gzip",
            field="Content-Encoding",
        )
    return _Counting(visit, receive, bytes_max).receive


def _call_it_json(scope: Scope) -> None:
    """Nobody takes anything else, and clients call it all kinds of things: `curl -d` a form. The
    framework, which reads some bodies itself, goes by the name."""
    others = (field for field in scope["headers"] if field[0] != _CONTENT_TYPE)
    scope["headers"] = [*others, _JSON]


class _Counting:
    """A body that comes as it is."""

    def __init__(self, visit: Visit, receive: Receive, bytes_max: int) -> None:
        self._visit = visit
        self._receive = receive
        self._bytes_max = bytes_max

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._visit.bytes_in += len(message.get("body", b""))
            if self._visit.bytes_in > self._bytes_max:
                raise _too_large(self._bytes_max)
        return message


class _Unpacking:
    """A body that is packed with gzip; no more of it is unpacked than is allowed."""

    def __init__(self, visit: Visit, receive: Receive, bytes_max: int) -> None:
        self._visit = visit
        self._receive = receive
        self._bytes_max = bytes_max
        self._left = bytes_max
        self._packs_left = limits.GZIP_PACKS_MAX
        self._unpacker = zlib.decompressobj(_GZIP)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        packed = message.get("body", b"")
        self._visit.bytes_in += len(packed)
        if self._visit.bytes_in > self._bytes_max:
            raise _too_large(self._bytes_max)
        more_body = message.get("more_body", False)
        body = self._unpacked(packed)
        if not more_body and not self._unpacker.eof and self._visit.bytes_in:
            raise InvalidArgument("The body ends in the middle of its gzip", field="body")
        return {**message, "body": body}

    def _unpacked(self, packed: bytes) -> bytes:
        """Also of several packs one after the other, which is one body."""
        pieces = []
        while packed:
            try:
                piece = self._unpacker.decompress(packed, self._left + 1)
            except zlib.error as error:
                raise InvalidArgument(f"The body is no gzip: {error}", field="body") from None
            self._left -= len(piece)
            if self._left < 0:
                raise _too_large(self._bytes_max)
            pieces.append(piece)
            packed = self._unpacker.unused_data
            if packed:
                self._begin_another()
        return b"".join(pieces)

    def _begin_another(self) -> None:
        """Packs of nothing are small, and take as long to begin as others."""
        self._packs_left -= 1
        if self._packs_left < 0:
            raise LimitExceeded(
                f"The body has more than {limits.GZIP_PACKS_MAX:,} packs of gzip; pack it as one",
                field="body",
            )
        self._unpacker = zlib.decompressobj(_GZIP)


def _too_large(bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"The body of the request is larger than {bytes_max:,} bytes; send less at once",
        field="body",
    )
