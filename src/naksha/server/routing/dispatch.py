"""Dispatch of requests: find the endpoint, bind its parameters, call it, send its response."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from naksha.server.routing.binding import ParameterBinding, ReadJson
from naksha.server.routing.declarations import DeclaredEndpoint, Results, Router

JSON: Final = "application/json"
_KIND: Final = 2
"""Position of `spaces` in `/hub/spaces/{space_id}/word`."""
_WORD: Final = 4
"""Position of `word` there."""
_ANY: Final = "{}"
Check = Callable[["Endpoint", Scope], None]
"""Function that raises an error for a request that an endpoint must not serve."""
NoEndpoint = Callable[[Scope, set[str]], Response]
"""Function that builds the response for a path that no endpoint has, or only with other methods."""


class Endpoint(NamedTuple):
    """An endpoint, ready to serve requests."""

    declared: DeclaredEndpoint
    pattern: re.Pattern[str]
    path: str
    """The path template without convertors, such as `/hub/spaces/{space_id}`."""
    binding: ParameterBinding

    @classmethod
    def of(cls, declared: DeclaredEndpoint) -> Endpoint:
        """Prepare a declared endpoint."""
        pattern, path, convertors = compile_path(declared.path)
        return cls(declared, pattern, path, ParameterBinding(declared.function, tuple(convertors)))

    async def response(self, request: Request, read_json: ReadJson, results: Results) -> Response:
        """Serve a request.

        Raises:
            InvalidArgument: Parameters are missing or invalid.
        """
        made = await self.binding.call(request, read_json, results)
        if isinstance(made, Response):
            return made
        return Response(msgspec.json.encode(made), self.declared.status_code, media_type=JSON)


class Dispatcher:
    """ASGI application that serves endpoints.

    The first endpoint that was declared for a path and a method serves it.
    """

    def __init__(
        self, routers: Sequence[Router], read_json: ReadJson, no_endpoint: NoEndpoint
    ) -> None:
        """Prepare the endpoints; `no_endpoint` builds the response if none matches."""
        self.endpoints: Final = [Endpoint.of(one) for each in routers for one in each.endpoints]
        self.checks: Final[list[Check]] = []
        """Checks of a request before its parameters are bound."""
        self._read_json = read_json
        self._no_endpoint = no_endpoint
        declared = [(one, *_declared_segments(one.declared.path)) for one in self.endpoints]
        self._kinds = {kind for _, kind, _ in declared}
        self._words = {word for _, _, word in declared}
        self._by_segments: dict[tuple[str, str], list[Endpoint]] = {
            (kind, word): [
                one
                for one, its_kind, its_word in declared
                if its_kind in (kind, _ANY) and its_word in (word, _ANY)
            ]
            for kind in self._kinds | {_ANY}
            for word in self._words | {_ANY}
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        for endpoint in self._candidates(path):
            if endpoint.declared.method != method:
                continue
            match = endpoint.pattern.match(path)
            if match is not None:
                scope["endpoint"], scope["path_params"] = endpoint, match.groupdict()
                response = await self._response(endpoint, Request(scope, receive))
                break
        else:
            allowed = {endpoint.declared.method for endpoint in self._matching(path)}
            response = self._no_endpoint(scope, allowed)
        await response(scope, receive, send)

    async def _response(self, endpoint: Endpoint, request: Request) -> Response:
        results: Results = {}
        if endpoint.declared.known is not None:
            response = await endpoint.declared.known(request, results)
            if response is not None:
                return response
        for check in self.checks:
            check(endpoint, request.scope)
        return await endpoint.response(request, self._read_json, results)

    def has(self, path: str) -> bool:
        """Return whether an endpoint has this path, with any method."""
        return next(self._matching(path), None) is not None

    def _matching(self, path: str) -> Iterator[Endpoint]:
        return (one for one in self._candidates(path) if one.pattern.match(path) is not None)

    def _candidates(self, path: str) -> Sequence[Endpoint]:
        """Return the endpoints that may have the path."""
        kind, word = _segments(path)
        known = kind if kind in self._kinds else _ANY, word if word in self._words else _ANY
        return self._by_segments[known]


def _segments(path: str) -> tuple[str, str]:
    """Return the segments by which endpoints are indexed, empty if the path is shorter."""
    parts = path.split("/", _WORD + 1)
    count = len(parts)
    return parts[_KIND] if count > _KIND else "", parts[_WORD] if count > _WORD else ""


def _declared_segments(path: str) -> tuple[str, str]:
    """Return the segments of a declared path, `_ANY` for those that are not fixed."""
    kind, word = _segments(path)
    is_open = ":path}" in path
    return (
        _ANY if "{" in kind or (is_open and not kind) else kind,
        _ANY if "{" in word or (is_open and not word) else word,
    )


def operation_name(endpoint: Endpoint) -> str:
    """Return the unique name of an operation, from its function, path and method."""
    name = re.sub(r"\W", "_", endpoint.declared.function.__name__ + endpoint.path)
    return f"{name}_{endpoint.declared.method.lower()}"
