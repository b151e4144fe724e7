"""One request as every layer of the server sees it, from its first byte to its line in the log."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.server.middleware.admission import Turn

STREAM_ID: Final = "Stream-Id"
STREAM_INFO: Final = "Stream-Info"
_KEY: Final = "naksha.visit"
_STREAM_ID: Final = re.compile(rf"[A-Za-z0-9_.:/+=-]{{1,{limits.STREAM_ID_LENGTH_MAX}}}")


class Visit:
    """What is known of a request besides what it asks for."""

    __slots__ = (
        "actor",
        "began",
        "bytes_in",
        "bytes_out",
        "fields",
        "prolong",
        "seconds_queued",
        "status",
        "stream_id",
        "turn",
    )

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self.fields = fields
        """Header fields of the request, by their names in small letters."""
        self.stream_id = _stream_id(fields)
        self.began = time.perf_counter()
        self.actor: Actor | None = None
        """None as long as nobody has asked who it is."""
        self.seconds_queued = 0.0
        self.status = 0
        """0 until an answer has begun."""
        self.prolong: Callable[[], None] = _nothing
        """Gives the request its time anew; for who can show that it gets on."""
        self.turn: Turn | None = None
        """The place that it takes among those that are served."""
        self.bytes_in = 0
        self.bytes_out = 0

    @classmethod
    def begin(cls, scope: Scope) -> Visit:
        """The visit that begins with a request; it keeps the stream id that it came with."""
        visit = scope[_KEY] = cls(dict(scope["headers"]))
        return visit

    def field(self, name: bytes) -> str | None:
        """A header field of the request."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")


def _nothing() -> None:
    """A request whose time has not begun."""


def visit_of(where: Scope | HTTPConnection) -> Visit:
    """The visit that a request belongs to."""
    scope = where.scope if isinstance(where, HTTPConnection) else where
    visit: Visit = scope[_KEY]
    return visit


def has_body(visit: Visit) -> bool:
    """Whether something comes after the head of a request."""
    fields = visit.fields
    return b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"


def _stream_id(fields: Mapping[bytes, bytes]) -> str:
    """The client's, if it is fit to be repeated in headers and logs, else a new one."""
    given = fields.get(b"stream-id", b"").decode("latin-1")
    return given if _STREAM_ID.fullmatch(given) is not None else secrets.token_urlsafe(9)
