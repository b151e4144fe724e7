"""What clients send, read as JSON whatever they call it."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request

from naksha.model.errors import InvalidArgument


async def json_body(request: Request) -> Any:
    """The body; clients send spaces as `application/geo+json` and features as `text/plain`.

    Raises:
        InvalidArgument: It is no JSON.
    """
    try:
        return msgspec.json.decode(await request.body())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"The body is no JSON: {error}", field="body") from None


async def json_object(request: Request) -> dict[str, Any]:
    """The body, which must be an object."""
    body = await json_body(request)
    if not isinstance(body, dict):
        raise InvalidArgument("The body must be a JSON object", field="body")
    return body
