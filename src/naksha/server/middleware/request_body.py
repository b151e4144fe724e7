"""Request bodies: decompress gzip, enforce the size limit, declare the content type as JSON."""

from __future__ import annotations

import zlib
from typing import Final

from starlette.types import Message, Receive, Scope

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.server.middleware.request_record import RequestRecord, has_body, record_of

_GZIP: Final = 16 + zlib.MAX_WBITS
_DROPPED: Final = frozenset({b"content-encoding", b"content-length"})
"""Headers that do not apply to the decompressed body."""


def bounded(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """Return a `receive` that yields the request body, decompressed and limited in size.

    Raises:
        LimitExceeded: `Content-Length` exceeds the limit.
        InvalidArgument: The content encoding is not supported.
    """
    record = record_of(scope)
    if not has_body(record):
        return receive
    length = record.fields.get(b"content-length", b"")
    if length.isdigit() and int(length) > bytes_max:
        raise _too_large(bytes_max)
    encoding = (record.field(b"content-encoding") or "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        scope["headers"] = [field for field in scope["headers"] if field[0] not in _DROPPED]
        return _GzipBody(record, receive, bytes_max).receive
    if encoding != "identity":
        raise InvalidArgument(
            f"Content-Encoding {encoding[:40]!r} is not supported; send the body uncompressed "
            "or with gzip",
            field="Content-Encoding",
        )
    return _PlainBody(record, receive, bytes_max).receive


class _PlainBody:
    """Receiver of an uncompressed body."""

    def __init__(self, record: RequestRecord, receive: Receive, bytes_max: int) -> None:
        self._record = record
        self._receive = receive
        self._bytes_max = bytes_max

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._record.bytes_in += len(message.get("body", b""))
            if self._record.bytes_in > self._bytes_max:
                raise _too_large(self._bytes_max)
        return message


class _GzipBody:
    """Receiver of a gzip body; never decompresses more than the limit."""

    def __init__(self, record: RequestRecord, receive: Receive, bytes_max: int) -> None:
        self._record = record
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
        self._record.bytes_in += len(packed)
        if self._record.bytes_in > self._bytes_max:
            raise _too_large(self._bytes_max)
        more_body = message.get("more_body", False)
        body = self._unpacked(packed)
        if not more_body and not self._unpacker.eof and self._record.bytes_in:
            raise InvalidArgument(
                "The request body is truncated: its gzip data ends too early", field="body"
            )
        return {**message, "body": body}

    def _unpacked(self, packed: bytes) -> bytes:
        """Decompress a chunk; gzip members that follow each other form one body."""
        pieces = []
        while packed:
            try:
                piece = self._unpacker.decompress(packed, self._left + 1)
            except zlib.error as error:
                raise InvalidArgument(
                    f"The request body is not valid gzip: {error}", field="body"
                ) from None
            self._left -= len(piece)
            if self._left < 0:
                raise _too_large(self._bytes_max)
            pieces.append(piece)
            packed = self._unpacker.unused_data
            if packed:
                self._begin_another()
        return b"".join(pieces)

    def _begin_another(self) -> None:
        """Start the next gzip member.

        Their number is limited, because an empty member is tiny but costs as much to start as any
        other.
        """
        self._packs_left -= 1
        if self._packs_left < 0:
            raise LimitExceeded(
                f"The request body has more than {limits.GZIP_PACKS_MAX:,} gzip members; send one",
                field="body",
            )
        self._unpacker = zlib.decompressobj(_GZIP)


def _too_large(bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"The request body exceeds {bytes_max:,} bytes; send less data per request",
        field="body",
    )
