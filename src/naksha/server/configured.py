"""What all endpoints about the configuration have in common."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from fastapi import Header, Request, Response

from naksha.hub.objects import HubObject
from naksha.server.answers import JSON, is_known

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The `ETag` that was answered with what is to be changed: if it is another one "
        "by now, nothing is changed and 412 is answered.",
    ),
]


def shown(
    request: Request, thing: HubObject, status: int = 200, more: dict[str, Any] | None = None
) -> Response:
    """An object of the configuration, with what is told of it beside; 304 to who has it already."""
    beside = more or {}
    etag = f'"{thing.etag()}{_suffix(beside)}"'
    headers = {"ETag": etag}
    if request.method == "GET" and is_known(request, etag):
        return Response(status_code=304, headers=headers)
    content = msgspec.json.encode({**thing.to_json(), **beside})
    return Response(content, status, headers, media_type=JSON)


def _suffix(beside: dict[str, Any]) -> str:
    """What makes the tag of an answer another one though the object is the same."""
    return "".join(f".{value}" for value in beside.values())


def etags(if_match: str | None) -> Collection[str] | None:
    """The tags of objects in a header `If-Match`."""
    if if_match is None:
        return None
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")]
    return [tag.partition(".")[0] for tag in tags]


def wants_json(request: Request) -> bool:
    """Whether a client asks for an answer where there need not be one."""
    return JSON in request.headers.get("Accept", "")
