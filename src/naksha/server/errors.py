"""Error responses: one envelope for all errors, whichever layer raised them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    Expired,
    Forbidden,
    MergeConflict,
    NakshaError,
)
from naksha.model.status_codes import status_codes_of
from naksha.server.middleware.request_record import record_of

_log: Final = logging.getLogger(__name__)
JSON: Final = "application/json"

_NAMES: Final = {
    400: "IllegalArgument",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "Forbidden",
    409: "Conflict",
    410: "NotFound",
    412: "Conflict",
    413: "PayloadTooLarge",
    501: "NotImplemented",
    502: "BadGateway",
    504: "Timeout",
}
"""Names of statuses in the envelope; XYZ clients know only these."""
_UNKNOWN_PATH: Final = "The requested resource does not exist."
"""Do not change this text, nor the type `error`: xyzspaces compares both literally."""
_WRONG_METHOD: Final = "Method {method} is not allowed for this resource; allowed: {allowed}."


def envelope(status: int, stream_id: str, message: str, code: str, **more: Any) -> dict[str, Any]:
    """Build the body of an error response; members that are None are left out."""
    body: dict[str, Any] = {
        "type": "ErrorResponse",
        "streamId": stream_id,
        "error": _NAMES.get(status, "IllegalArgument" if status < 500 else "Exception"),
        "errorMessage": message,
        "message": message,
        "code": code,
    }
    return body | {name: value for name, value in more.items() if value is not None}


def error_json(error: NakshaError, stream_id: str) -> tuple[int, dict[str, Any]]:
    """Return the status and body of a NakshaError."""
    status = status_codes_of(error).http_status
    return status, envelope(
        status,
        stream_id,
        error.message,
        error.code,
        field=error.field,
        featureId=error.feature_id,
        collectionId=error.collection_id,
        handler=error.handler,
        failed=error.failures or None,
        failedCount=len(error.failures) or None,
        **_particulars(error),
    )


def _particulars(error: NakshaError) -> dict[str, Any]:
    """Return the members that only this class of error has."""
    if isinstance(error, Forbidden):
        return {"right": error.right, "resource": error.resource}
    if isinstance(error, Expired):
        return {"oldest": error.oldest}
    if isinstance(error, MergeConflict):
        return {"conflictId": error.id, "conflicts": error.undecided}
    if isinstance(error, Conflict):
        return {"head": error.head}
    return {}


def error_response(error: NakshaError, stream_id: str) -> Response:
    """Build the response to a NakshaError; internal errors (500) are logged as well."""
    status, body = error_json(error, stream_id)
    if status == 500:
        log_failure(error, stream_id)
    return envelope_response(status, body)


def envelope_response(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    """Build a response from an envelope, with the headers that its status requires."""
    more = dict(headers or {})
    if status == 401:
        more["WWW-Authenticate"] = "Bearer"
    elif status == 503:
        more["Retry-After"] = str(limits.RETRY_AFTER_SECONDS)
    return Response(msgspec.json.encode(body), status, more, media_type=JSON)


def unexpected_response(stream_id: str) -> Response:
    """Build the response to an unexpected exception; its details are only in the log."""
    message = f"Internal server error; the server's log has the details under {stream_id}"
    return envelope_response(500, envelope(500, stream_id, message, NakshaError.code))


def unknown_path_response(stream_id: str) -> Response:
    """Build the 404 response for a path that no endpoint has."""
    body = envelope(404, stream_id, _UNKNOWN_PATH, "not_found")
    return envelope_response(404, body | {"type": "error"})


def log_failure(error: BaseException, stream_id: str) -> None:
    """Log the details of a failure that the response does not show."""
    _log.error("Request %s failed", stream_id, exc_info=error)


def no_endpoint(scope: Scope, allowed: set[str]) -> Response:
    """Build the response for a path that no endpoint has, or that has other methods."""
    stream_id = record_of(scope).stream_id
    if not allowed:
        return unknown_path_response(stream_id)
    listed = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))
    text = _WRONG_METHOD.format(method=scope["method"], allowed=listed)
    return envelope_response(
        405, envelope(405, stream_id, text, "not_supported"), {"Allow": listed}
    )
