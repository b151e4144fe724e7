"""Fast path around FastAPI for frequent GET requests.

For every request FastAPI searches the route and resolves the parameters of its function, which
takes longer than finding a feature. This middleware resolves them once, at start-up. It covers
routes with plain parameters only: names of the path, at most one model of query parameters, and
dependencies with the same restrictions; and the function must return a Response. All other routes,
and all invalid requests, go to FastAPI, which also reports what is invalid.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.convertors import PathConvertor, StringConvertor
from starlette.types import ASGIApp, Receive, Scope, Send

Found = dict[Callable[..., Any], Any]
"""Results of the dependencies of a request, each called once."""
Call = Callable[[Request, Found], Awaitable[Any]]
_METHOD: Final = "GET"
_TEXTS: Final = (StringConvertor, PathConvertor)
_WORD: Final = 4
"""`/hub/spaces/{space_id}/word`"""
_ANY: Final = ""


class NotPlainError(Exception):
    """A parameter is of a kind that only FastAPI can resolve."""


class WrongParametersError(Exception):
    """The query parameters are invalid; FastAPI reports why."""


class Shortcut(NamedTuple):
    """A route, and how to call its function; None if only FastAPI can call it."""

    route: APIRoute
    call: Call | None


class Shortcuts:
    """Middleware, the innermost one: answers a request before the application routes it."""

    def __init__(self, app: ASGIApp, routers: Sequence[APIRouter]) -> None:
        """Prepare the routes; `routers` are all of the application, in its order."""
        self._app = app
        found = [
            Shortcut(route, _call_of_route(route))
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and _METHOD in (route.methods or ())
        ]
        self.paths: Final = {each.route.path for each in found if each.call is not None}
        words = {_word(each.route.path) for each in found}
        self._by_word = {
            word: [each for each in found if _word(each.route.path) in (word, _ANY)]
            for word in words | {_ANY}
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = None
        if scope["type"] == "http" and scope["method"] == _METHOD:
            response = await self._answer(scope, receive)
        await (self._app if response is None else response)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response, or None if FastAPI has to serve the request."""
        path = scope["path"]
        for route, call in self._by_word.get(_word(path), self._by_word[_ANY]):
            match = route.path_regex.match(path)
            if match is None:
                continue
            if call is None:
                return None
            names = match.groupdict()
            scope["path_params"], scope["route"] = names, route
            try:
                response: Response = await call(Request(scope, receive), {})
            except WrongParametersError:
                del scope["path_params"], scope["route"]
                return None
            return response
        return None


def _word(path: str) -> str:
    """Return the path segment after the space id, the key by which routes are indexed.

    Routes without a fixed segment there match any.
    """
    parts = path.split("/", _WORD + 1)
    if len(parts) <= _WORD or "{" in parts[_WORD]:
        return _ANY
    return parts[_WORD]


def _call_of_route(route: APIRoute) -> Call | None:
    gives = get_type_hints(route.endpoint).get("return")
    if not (inspect.isclass(gives) and issubclass(gives, Response)):
        return None
    if not all(isinstance(each, _TEXTS) for each in route.param_convertors.values()):
        return None
    try:
        return _call_of(route.dependant)
    except NotPlainError:
        return None


def _call_of(dependant: Dependant) -> Call:
    """Build a function that resolves the parameters of `dependant` and calls it."""
    function = _function_of(dependant)
    _check_plain(dependant, function)
    names = [(field.name, field.alias) for field in dependant.path_params]
    request_name = dependant.request_param_name
    models = [
        (field.name, _model_of(field.field_info.annotation)) for field in dependant.query_params
    ]
    others = [
        (str(other.name), _function_of(other), _call_of(other)) for other in dependant.dependencies
    ]

    async def call(request: Request, found: Found) -> Any:
        given: dict[str, Any] = {}
        if names:
            path = request.scope["path_params"]
            for name, alias in names:
                given[name] = path[alias]
        for name, model in models:
            given[name] = model(request.scope["query_string"])
        if request_name is not None:
            given[request_name] = request
        for name, key, other in others:
            if key not in found:
                found[key] = await other(request, found)
            given[name] = found[key]
        return await function(**given)

    return call


def _function_of(dependant: Dependant) -> Callable[..., Any]:
    assert dependant.call is not None
    return dependant.call


def _check_plain(dependant: Dependant, function: Callable[..., Any]) -> None:
    """Raise NotPlainError for parameters that the fast path does not support."""
    is_plain = inspect.iscoroutinefunction(function) and not any(
        (
            dependant.header_params,
            dependant.cookie_params,
            dependant.body_params,
            dependant.websocket_param_name,
            dependant.http_connection_param_name,
            dependant.response_param_name,
            dependant.background_tasks_param_name,
            dependant.security_scopes_param_name,
            len(dependant.query_params) > 1,
            any(field.field_info.annotation is not str for field in dependant.path_params),
            any(field.field_info.metadata for field in dependant.path_params),
        )
    )
    if not is_plain:
        raise NotPlainError


def _model_of(model: Any) -> Callable[[bytes], BaseModel]:
    """Return a function that builds a parameter model from a query string."""
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise NotPlainError
    lists = {
        field.alias or name
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is list
    }
    try:
        nothing = model.model_validate({})
    except ValidationError:
        nothing = None

    def made(query: bytes) -> BaseModel:
        if not query and nothing is not None:
            return nothing
        try:
            return model.model_validate(_values(query, lists))
        except ValidationError:
            raise WrongParametersError from None

    return made


def _values(query: bytes, lists: set[str]) -> Mapping[str, Any]:
    """Parse a query string; the last value of a repeated parameter counts, except for lists."""
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return values
