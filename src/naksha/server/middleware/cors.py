"""CORS headers and preflight responses.

Every origin is allowed, because access depends on the token alone; cookies are never used.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from naksha.server.middleware.request_record import STREAM_ID, STREAM_INFO, RequestRecord
from naksha.server.responses.encoding import FAILED

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_SECONDS: Final = 86_400
ALLOWED: Final = [
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        f"ETag, {FAILED}, Retry-After, {STREAM_ID}, {STREAM_INFO}".encode(),
    ),
]
"""Headers of every response."""


def preflight(scope: Scope, record: RequestRecord) -> Response | None:
    """Return the response to a CORS preflight request; None for other requests."""
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in record.fields:
        return None
    headers = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Max-Age": str(_SECONDS),
        "Vary": "Access-Control-Request-Headers",
    }
    requested = record.field(b"access-control-request-headers")
    if requested is not None:
        headers["Access-Control-Allow-Headers"] = requested
    return Response(status_code=204, headers=headers)
