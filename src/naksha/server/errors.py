"""Error responses: one envelope for all errors, whichever layer raised them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    Expired,
    Forbidden,
    InvalidArgument,
    MergeConflict,
    NakshaError,
)
from naksha.model.status_codes import outward
from naksha.server.middleware.request_context import visit_of

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
UNKNOWN_PATH: Final = "The requested resource does not exist."
"""Do not change this text, nor the type `error`: xyzspaces compares both literally."""
_TEXTS: Final = {
    404: UNKNOWN_PATH,
    405: "Method {method} is not allowed for this resource; allowed: {allowed}.",
}
"""Messages for requests that match no route."""


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
    status = outward(error).http_status
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
    body = envelope(404, stream_id, UNKNOWN_PATH, _CODES[404])
    return envelope_response(404, body | {"type": "error"})


def is_known_path(scope: Scope) -> bool:
    """Return whether an endpoint has this path, with any method."""
    app = scope["app"]  # its own list has the routers, not their routes
    routes = [route for route in (*app.routes, *app.state.routes) if isinstance(route, Route)]
    return any(route.matches(scope)[0] is not Match.NONE for route in routes)


def log_failure(error: BaseException, stream_id: str) -> None:
    """Log the details of a failure that the response does not show."""
    _log.error("Request %s failed", stream_id, exc_info=error)


def add_error_handlers(app: FastAPI) -> None:
    """Register the handlers that turn every error of a route into an envelope."""
    app.add_exception_handler(NakshaError, _ours)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _of_the_framework)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, NakshaError)
    return error_response(error, visit_of(request).stream_id)


async def _not_valid(request: Request, error: Exception) -> Response:
    """Handle invalid parameters: `field` names the first one, the message all of them."""
    assert isinstance(error, RequestValidationError)
    problems = [_problem(found) for found in error.errors()]
    field, message = problems[0]
    others = "".join(f"; {name}: {text}" for name, text in problems[1:])
    return await _ours(request, InvalidArgument(f"{field}: {message}{others}", field=field))


def _problem(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return field and message."""
    kind, *path = [str(step) for step in found["loc"]]
    if found["type"] == "json_invalid":
        return (
            "body",
            f"not valid JSON: {found['ctx']['error']}, at character {path[0]}",
        )
    more = found.get("ctx", {})
    if "discriminator" in more:
        path.append(more["discriminator"].strip("'"))
    text = _SENTENCES.get(found["type"], "{msg}").format(msg=found["msg"], **more)
    return ".".join(path) or kind, text


async def _of_the_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, NakshaError):
        # Raised while FastAPI read the body, which it reports as an error of the body.
        return await _ours(request, error.__cause__)
    visit, status = visit_of(request), error.status_code
    allowed = _allowed(request) if status == 405 else ""
    text = str(error.detail)
    if text in ("Not Found", "Method Not Allowed") and status in _TEXTS:
        text = _TEXTS[status].format(method=request.method, allowed=allowed)
    body = envelope(status, visit.stream_id, text, _CODES.get(status, "invalid_argument"))
    if text == UNKNOWN_PATH:
        return unknown_path_response(visit.stream_id)
    headers = {"Allow": allowed} if status == 405 else error.headers
    return envelope_response(status, body, headers)


def _allowed(request: Request) -> str:
    """List the methods of a path; the framework reports those of one of its routes only."""
    app = request.app  # its own list has the routers, not their routes
    routes = [route for route in (*app.routes, *app.state.routes) if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in matching for method in route.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


_SENTENCES: Final = {
    "missing": "required but missing",
    "extra_forbidden": "unknown member",
    "model_attributes_type": "must be a JSON object",
    "union_tag_invalid": "{tag!r:.64} is not one of {expected_tags}",
    "union_tag_not_found": "required but missing",
    "value_error": "{error}",
}
"""Messages that replace those of pydantic, by pydantic's error types."""
_CODES: Final = {404: "not_found", 405: "not_supported"}
