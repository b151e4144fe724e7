"""Binding of an endpoint's parameters: resolved once at start-up, applied to each request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from starlette.requests import Request

from naksha.server.routing.declarations import (
    BodyParam,
    Depends,
    HeaderParam,
    ParameterSource,
    QueryParam,
    Results,
)
from naksha.server.routing.parameter_errors import Problem, invalid_parameters

ReadJson = Callable[[Request], Awaitable[Any]]
"""Function that parses the body of a request."""
QUERY: Final = "query"
PATH: Final = "path"
HEADER: Final = "header"
BODY: Final = "body"


class ParameterGroup(NamedTuple):
    """Parameters of one source that are validated together."""

    source: str
    model: type[BaseModel]
    parameter: str
    """The function's parameter for the model; empty if each field is a parameter of its own."""
    lists: frozenset[str]
    """Names in the request that may be repeated."""
    nothing: BaseModel | None
    """The model of a request that has none of the parameters; None if one is required."""

    @property
    def aliases(self) -> Iterator[tuple[str, FieldInfo]]:
        """The names in the request, each with its declaration."""
        for name, field in self.model.model_fields.items():
            yield field.alias or name, field


class JsonBody(NamedTuple):
    """The body as a parameter."""

    name: str
    kind: Any
    adapter: TypeAdapter[Any]


class ParameterBinding:
    """Parameters of a function, and how a request fills them."""

    def __init__(self, function: Callable[..., Any], path: Sequence[str]) -> None:
        """Analyse the signature; `path` has the names of the path's segments."""
        self.function = function
        self.groups: list[ParameterGroup] = []
        self.body: JsonBody | None = None
        self.dependencies: list[tuple[str, ParameterBinding]] = []
        self.segments: list[str] = []
        """Segments of the path that are passed as they are."""
        self._request: str | None = None
        self._is_async = inspect.iscoroutinefunction(function)
        self._split(path)
        self._order = self._ordered()

    def _split(self, path: Sequence[str]) -> None:
        hints = get_type_hints(self.function, include_extras=True)
        hints.pop("return", None)
        singles: dict[str, dict[str, Any]] = {QUERY: {}, PATH: {}, HEADER: {}}
        for name, parameter in inspect.signature(self.function).parameters.items():
            hint = hints[name]
            kind, marks = _split_hint(hint)
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            source = next(
                (one for one in marks if isinstance(one, ParameterSource | Depends)), None
            )
            if kind is Request:
                self._request = name
            elif isinstance(source, Depends):
                self.dependencies.append((name, ParameterBinding(source.function, path)))
            elif isinstance(source, BodyParam) or (source is None and _is_body(kind)):
                self.body = JsonBody(name, hint, TypeAdapter(hint))
            elif isinstance(source, QueryParam) and _is_model(kind):
                self.groups.append(_group(QUERY, kind, name))
            elif source is None and kind is str and name in path:
                self.segments.append(name)
            elif source is None and name not in path:
                raise TypeError(f"{name} of {self.function.__qualname__} has no source")
            else:
                singles[_place_of(source)][name] = (_with_field(hint, source), default)
        for where, fields in singles.items():
            if fields:
                made: type[BaseModel] = create_model(self.function.__name__, **fields)
                self.groups.append(_group(where, made, ""))

    def everything(self) -> Iterator[ParameterBinding]:
        """Yield this binding and those of all dependencies."""
        yield self
        for _, other in self.dependencies:
            yield from other.everything()

    def _ordered(self) -> list[ParameterBinding]:
        """Return the bindings of all dependencies and this one, each after those it needs."""
        found: dict[Callable[..., Any], ParameterBinding] = {}
        for _, other in self.dependencies:
            for one in other._order:
                found.setdefault(one.function, one)
        return [*found.values(), self]

    async def call(self, request: Request, read_json: ReadJson, results: Results) -> Any:
        """Bind the parameters to a request and call the function, after its dependencies.

        Dependencies that are in `results` have been called.

        Raises:
            InvalidArgument: Parameters are missing or invalid.
        """
        made: Any = None
        for binding in self._order:
            if binding.function not in results:
                made = await binding._call(request, results, read_json)
                results[binding.function] = made
        return made

    async def _call(self, request: Request, results: Results, read_json: ReadJson) -> Any:
        """Call the function alone."""
        arguments = {name: results[other.function] for name, other in self.dependencies}
        segments = request.scope["path_params"]
        for name in self.segments:
            arguments[name] = segments[name]
        if self._request is not None:
            arguments[self._request] = request
        if self.groups or self.body is not None:
            await self._validate(request, arguments, read_json)
        made = self.function(**arguments)
        return await made if self._is_async else made

    async def _validate(
        self, request: Request, arguments: dict[str, Any], read_json: ReadJson
    ) -> None:
        problems: list[Problem] = []
        for group in self.groups:
            try:
                made = _validated(group, request)
            except ValidationError as error:
                problems += [(group.source, one) for one in error.errors()]
                continue
            if group.parameter:
                arguments[group.parameter] = made
            else:
                arguments.update({name: getattr(made, name) for name in type(made).model_fields})
        if self.body is not None:
            sent = await read_json(request)
            try:
                arguments[self.body.name] = self.body.adapter.validate_python(sent)
            except ValidationError as error:
                problems += [(BODY, one) for one in error.errors()]
        if problems:
            raise invalid_parameters(problems)


def _split_hint(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of a hint and its annotations."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return kind, tuple(marks)
    return hint, ()


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _place_of(source: Any) -> str:
    """Return the name of a source; a parameter without one is in the path."""
    if isinstance(source, QueryParam):
        return QUERY
    return HEADER if isinstance(source, HeaderParam) else PATH


def _is_body(kind: Any) -> bool:
    """Return whether a type is a model, or a choice of models."""
    choices = get_args(kind)
    return _is_model(kind) or (bool(choices) and all(map(_is_model, choices)))


def _with_field(hint: Any, source: Any) -> Any:
    """Return a hint with the constraints of its source in place of the source."""
    kind, marks = _split_hint(hint)
    plain = [one for one in marks if not isinstance(one, ParameterSource)]
    field = [source.field] if isinstance(source, ParameterSource) else []
    for mark in [*plain, *field]:
        kind = Annotated[kind, mark]
    return kind


def _group(source: str, model: type[BaseModel], parameter: str) -> ParameterGroup:
    fields = model.model_fields.items()
    lists = {field.alias or name for name, field in fields if _is_list(field.annotation)}
    try:
        nothing = model.model_validate({})
    except ValidationError:
        nothing = None
    return ParameterGroup(source, model, parameter, frozenset(lists), nothing)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(one) is list for one in get_args(kind))


def _validated(group: ParameterGroup, request: Request) -> BaseModel:
    values: dict[str, Any]
    match group.source:
        case "query":
            raw: bytes = request.scope["query_string"]
            if not raw and group.nothing is not None:
                return group.nothing
            values = _query_values(raw, group.lists)
        case "header":
            names = (name for name, _ in group.aliases)
            values = {name: request.headers[name] for name in names if name in request.headers}
        case _:
            values = request.scope["path_params"]
    return group.model.model_validate(values, by_alias=True, by_name=False)


def _query_values(query: bytes, lists: frozenset[str]) -> dict[str, Any]:
    """Parse a query string; the last value of a repeated parameter counts, except for lists."""
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return values
