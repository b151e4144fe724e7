"""Query parameters that must not be ignored: those that narrow, guard or simulate a request.

Unknown parameters are ignored, since every client adds some of its own, and so are parameters about
the presentation (`clip`, `skipCache`, `selection`). But a filter, a lock or a dry run that is
ignored returns, overwrites or deletes more than the client meant. An endpoint that does not declare
such a parameter refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from naksha.hub.language.query_string import decoded, raw_pairs
from naksha.model.errors import InvalidArgument

GUARDS: Final = frozenset(
    [
        *("tags", "author", "id", "startTime", "endTime", "startVersion", "endVersion"),
        *("west", "south", "east", "north", "lat", "lon", "radius", "h3Index"),
        *("refSpaceId", "refFeatureId", "tag", "owner", "region"),
        *("conflictDetection", "versionRef", "prefixId", "addTags", "removeTags"),
        *("dryRun", "eraseContent"),
    ]
)
"""The table: parameters of some endpoint that no other endpoint ignores."""
PROPERTIES: Final = "propertyQuery"
"""Declared by endpoints with conditions on properties, whose names are in the hands of users."""
_PREFIXES: Final = ("p.", "f.", "properties.")
_OFF: Final = frozenset({"", "false", "0", "no", "off"})
"""Values with which a switch changes nothing, wherever it is sent."""
_SWITCHES: Final = frozenset({"conflictDetection", "dryRun", "eraseContent"})


class _Endpoint(NamedTuple):
    route: APIRoute
    supported: frozenset[str]


class ParameterChecks:
    """Middleware: refuses a request before its endpoint runs."""

    def __init__(self, app: ASGIApp, routers: Sequence[APIRouter]) -> None:
        """The `routers` are all those of the application, in its order."""
        self._app = app
        self._endpoints = [
            _Endpoint(route, frozenset(_declared(route)))
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute)
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _guards_in(scope["query_string"]) if scope["type"] == "http" else []
        if given:
            self._check(scope, given)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope, given: Sequence[str]) -> None:
        matching = (one for one in self._endpoints if one.route.matches(scope)[0] is Match.FULL)
        endpoint = next(matching, None)
        if endpoint is None:
            return  # the application says so
        for name in given:
            if (PROPERTIES if name.startswith(_PREFIXES) else name) not in endpoint.supported:
                raise InvalidArgument(
                    f"{scope['method']} {endpoint.route.path_format} does not support the "
                    f"parameter {name!r:.64}; ignoring it could return or change too much",
                    field=name,
                )


def _guards_in(raw: bytes) -> list[str]:
    """The parameters of a query string that must be supported."""
    if not raw:
        return []
    found = []
    for pair in raw_pairs(raw):
        text, _, value = pair.partition("=")
        name = decoded(text, "query")
        if name in _SWITCHES and value.lower() in _OFF:
            continue
        if name in GUARDS or name.startswith(_PREFIXES):
            found.append(name)
    return found


def _declared(route: APIRoute) -> Iterable[str]:
    """The query parameters that a route declares, also by a model."""
    yield from _declared_by(route.dependant)
    for parameter in (route.openapi_extra or {}).get("parameters", []):
        yield parameter["name"]


def _declared_by(dependant: Dependant) -> Iterable[str]:
    for field in dependant.query_params:
        kind: Any = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, member in kind.model_fields.items():
                yield member.alias or name
        else:
            yield field.alias
    for other in dependant.dependencies:
        yield from _declared_by(other)
