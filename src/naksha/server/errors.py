"""Errors as clients know them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response

from naksha.model.errors import NakshaError
from naksha.model.outcomes import outward

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
    503: "Exception",
    504: "Timeout",
}
"""What a status is called in the envelope."""


def error_json(error: NakshaError, stream_id: str) -> tuple[int, dict[str, Any]]:
    """Status and body."""
    status = outward(error).http_status
    body: dict[str, Any] = {
        "type": "ErrorResponse",
        "streamId": stream_id,
        "error": _NAMES.get(status, "Exception"),
        "errorMessage": error.message,
        "code": error.code,
    }
    named = {
        "field": error.field,
        "featureId": error.feature_id,
        "collectionId": error.collection_id,
        "handler": error.handler,
    }
    return status, body | {name: value for name, value in named.items() if value is not None}


def add_error_handlers(app: FastAPI) -> None:
    """Every error of ours gets the envelope."""

    @app.exception_handler(NakshaError)
    async def answer(request: Request, error: NakshaError) -> Response:
        status, body = error_json(error, request.headers.get("Stream-Id", ""))
        return Response(msgspec.json.encode(body), status, media_type="application/json")
