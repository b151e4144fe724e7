"""Parse request bodies as JSON, whatever their declared content type."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel
from starlette.requests import Request

from naksha.model.errors import InvalidArgument
from naksha.model.value_text import value_text


async def json_body(request: Request) -> Any:
    """Parse the body; clients send spaces as `application/geo+json`, features as `text/plain`.

    Raises:
        InvalidArgument: The body is not valid JSON; the message has line and column.
    """
    body = await request.body()
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(body, error) from None


async def json_object(request: Request) -> dict[str, Any]:
    """Parse the body, which must be a JSON object."""
    body = await json_body(request)
    if not isinstance(body, dict):
        raise InvalidArgument(
            f"The body must be a JSON object, not {value_text(body)}", field="body"
        )
    return body


async def exact_object(request: Request, model: type[BaseModel]) -> dict[str, Any]:
    """Parse the body, which must be an object with only the members of `model`.

    This rejects misspelt members.
    """
    body = await json_object(request)
    known = {field.alias or name for name, field in model.model_fields.items()}
    for name in body.keys() - known:
        raise InvalidArgument(
            f"{name!r:.64} is not a member of the body; accepted: {', '.join(sorted(known))}",
            field=name[:64],
        )
    return body


def _not_json(body: bytes, error: Exception) -> InvalidArgument:
    """Build the error for an invalid body, with line and column."""
    if not body.strip():
        return InvalidArgument("The body is empty; send JSON", field="body")
    problem, _, place = str(error).partition(" (byte ")
    number = place.rstrip(")")
    if not number.isdecimal():
        return InvalidArgument(f"The body is not valid JSON: {problem}", field="body")
    before = body[: int(number)]
    line, column = before.count(b"\n") + 1, int(number) - before.rfind(b"\n")
    return InvalidArgument(
        f"The body is not valid JSON: {problem}, at line {line}, column {column}", field="body"
    )
