"""Declarations of endpoints: routers, and the sources of an endpoint's parameters.

    router = Router(prefix="/hub/spaces/{space_id}", tags=["features"])

    @router.get("/count")
    async def count(parameters: Annotated[CountParameters, QueryParam()]) -> Response: ...

A parameter that is named in the path comes from there; one whose type is a model is the body. All
others declare their source: `QueryParam`, `PathParam`, `HeaderParam`, `BodyParam` or `Depends`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import Field
from pydantic.fields import FieldInfo
from starlette.requests import Request
from starlette.responses import Response

F = TypeVar("F", bound=Callable[..., Any])
Results = dict[Callable[..., Any], Any]
"""Results of the dependencies of a request, each called once."""
KnownResponse = Callable[[Request, Results], Awaitable[Response | None]]
"""Function that returns the response to a request, or None if it has to be parsed. It adds the
dependencies that it has called to the results."""
Responses = dict[int | str, dict[str, Any]]
"""Declared responses by status: `description`, and `model` or `content`."""


class ParameterSource:
    """Source of a parameter, with the constraints that pydantic's `Field` knows."""

    def __init__(self, **constraints: Any) -> None:
        self.field: Final[FieldInfo] = Field(**constraints)


class QueryParam(ParameterSource):
    """The query string: one parameter, or a model of several."""


class PathParam(ParameterSource):
    """A segment of the path."""


class HeaderParam(ParameterSource):
    """A header; its name is the alias."""


class BodyParam(ParameterSource):
    """The JSON body."""


class Depends(NamedTuple):
    """The result of a function, whose parameters are bound in the same way.

    It is called once in a request.
    """

    function: Callable[..., Any]


class DeclaredEndpoint(NamedTuple):
    """An endpoint as it was declared."""

    method: str
    path: str
    function: Callable[..., Any]
    responses: Responses
    tags: tuple[str, ...]
    status_code: int
    openapi: dict[str, Any]
    """Members that are added to the operation in the OpenAPI document."""
    documented: bool
    """Whether the OpenAPI document has the endpoint."""
    known: KnownResponse | None = None
    """Function that serves a request like an earlier one, before its parameters are parsed."""


class Router:
    """Endpoints with a common prefix and common tags, in the order in which they match."""

    def __init__(self, prefix: str = "", tags: Sequence[str] = ()) -> None:
        self._prefix = prefix
        self._tags = tuple(tags)
        self.endpoints: list[DeclaredEndpoint] = []

    def endpoint(
        self,
        method: str,
        path: str,
        *,
        responses: Responses | None = None,
        status_code: int = 200,
        openapi_extra: dict[str, Any] | None = None,
        documented: bool = True,
        known: KnownResponse | None = None,
    ) -> Callable[[F], F]:
        """Declare an endpoint: a function that returns a Response, or a value that is sent as JSON.

        `status_code` is the status of a value, and the first one in the OpenAPI document.
        """

        def declare(function: F) -> F:
            declared = DeclaredEndpoint(
                method,
                self._prefix + path,
                function,
                responses or {},
                self._tags,
                status_code,
                openapi_extra or {},
                documented,
                known,
            )
            self.endpoints.append(declared)
            return function

        return declare

    def get(self, path: str, **described: Any) -> Callable[[F], F]:
        """Declare an endpoint for GET."""
        return self.endpoint("GET", path, **described)

    def post(self, path: str, **described: Any) -> Callable[[F], F]:
        """Declare an endpoint for POST."""
        return self.endpoint("POST", path, **described)

    def put(self, path: str, **described: Any) -> Callable[[F], F]:
        """Declare an endpoint for PUT."""
        return self.endpoint("PUT", path, **described)

    def patch(self, path: str, **described: Any) -> Callable[[F], F]:
        """Declare an endpoint for PATCH."""
        return self.endpoint("PATCH", path, **described)

    def delete(self, path: str, **described: Any) -> Callable[[F], F]:
        """Declare an endpoint for DELETE."""
        return self.endpoint("DELETE", path, **described)
