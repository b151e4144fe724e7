"""Links of OGC resources: absolute, since clients resolve them against other documents."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request

from naksha.server.responses.encoding import JSON

ROOT: Final = "/ogc"
RELATIONS: Final = "http://www.opengis.net/def/rel/ogc/1.0/"
CONFORMANCE: Final = "http://www.opengis.net/spec/"


def url_of(http: Request, *segments: str, query: str = "") -> str:
    """Return the absolute URL of a resource below the root; segments with braces are templates."""
    path = "".join(f"/{quote(one, safe='{}')}" for one in segments)
    return f"{str(http.base_url).rstrip('/')}{ROOT}{path}{'?' if query else ''}{query}"


def link(href: str, relation: str, type_: str = JSON, **more: Any) -> dict[str, Any]:
    """Return a link."""
    return {"href": href, "rel": relation, "type": type_, **more}
