"""What clients send, read as JSON whatever they call it."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from pydantic import BaseModel

from naksha.model.errors import InvalidArgument


async def json_body(request: Request) -> Any:
    """The body; clients send spaces as `application/geo+json` and features as `text/plain`.

    Raises:
        InvalidArgument: It is no JSON; the message has line and column.
    """
    body = await request.body()
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(body, error) from None


async def json_object(request: Request) -> dict[str, Any]:
    """The body, which must be an object."""
    body = await json_body(request)
    if not isinstance(body, dict):
        raise InvalidArgument("The body must be a JSON object", field="body")
    return body


async def exact_object(request: Request, model: type[BaseModel]) -> dict[str, Any]:
    """The body, which must be an object with the members of a model only: a misspelt member is not
    ignored."""
    body = await json_object(request)
    known = {field.alias or name for name, field in model.model_fields.items()}
    for name in body.keys() - known:
        raise InvalidArgument(
            f"{name!r:.64} is not a member of the body; its members are {', '.join(sorted(known))}",
            field=name[:64],
        )
    return body


def not_json(body: bytes, error: Exception) -> InvalidArgument:
    """What is wrong with a body, and where."""
    if not body.strip():
        return InvalidArgument("The body is empty; send JSON", field="body")
    said, _, place = str(error).partition(" (byte ")
    number = place.rstrip(")")
    if not number.isdecimal():
        return InvalidArgument(f"The body is no JSON: {said}", field="body")
    before = body[: int(number)]
    line, column = before.count(b"\n") + 1, int(number) - before.rfind(b"\n")
    return InvalidArgument(
        f"The body is no JSON: {said}, in line {line}, column {column}", field="body"
    )
