"""Per-request context that every layer of the server shares, from first byte to log line."""

from __future__ import annotations

import random
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.server.middleware.admission import AdmissionSlot

STREAM_ID: Final = "Stream-Id"
STREAM_INFO: Final = "Stream-Info"
_KEY: Final = "naksha.visit"
_STREAM_ID: Final = re.compile(rf"[A-Za-z0-9_.:/+=-]{{1,{limits.STREAM_ID_LENGTH_MAX}}}")


class RequestRecord:
    """Context of one request: actor, stream id, timing, byte counts and response status."""

    __slots__ = (
        "actor",
        "began",
        "bytes_in",
        "bytes_out",
        "fields",
        "prolong",
        "seconds_queued",
        "slot",
        "status",
        "stream_id",
    )

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self.fields = fields
        """Request headers by lower-case name."""
        self.stream_id = _stream_id(fields)
        self.began = time.perf_counter()
        self.actor: Actor | None = None
        """None until the request is authenticated."""
        self.seconds_queued = 0.0
        self.status = 0
        """0 until the response has begun."""
        self.prolong: Callable[[], None] = _nothing
        """Restarts the request timeout; called by work that makes progress."""
        self.slot: AdmissionSlot | None = None
        """The admission slot that the request holds."""
        self.bytes_in = 0
        self.bytes_out = 0

    @classmethod
    def begin(cls, scope: Scope) -> RequestRecord:
        """Create the context of a request; a valid stream id of the client is kept."""
        record = scope[_KEY] = cls(dict(scope["headers"]))
        return record

    def field(self, name: bytes) -> str | None:
        """Return a request header."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")


def _nothing() -> None:
    """Do nothing: the request timeout has not started."""


def record_of(where: Scope | HTTPConnection) -> RequestRecord:
    """Return the context of a request."""
    # Not isinstance: a connection is a Mapping, so that its class would be asked each time.
    scope = where if type(where) is dict else where.scope  # type: ignore[union-attr]
    record: RequestRecord = scope[_KEY]
    return record


def has_body(record: RequestRecord) -> bool:
    """Return whether the request has a body."""
    fields = record.fields
    return b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"


def _stream_id(fields: Mapping[bytes, bytes]) -> str:
    """Return the client's stream id if it is safe in headers and logs, else a new one."""
    sent = fields.get(b"stream-id", b"").decode("latin-1")
    if _STREAM_ID.fullmatch(sent) is not None:
        return sent
    return urlsafe_b64encode(random.randbytes(9)).decode()  # noqa: S311 - not a secret
