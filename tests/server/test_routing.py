"""Declared endpoints: which one serves a request, with which parameters."""

from __future__ import annotations

import re
from typing import Annotated, Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from naksha.model.errors import InvalidArgument
from naksha.server.errors import no_endpoint
from naksha.server.middleware.request_record import RequestRecord
from naksha.server.requests.json_body import json_body
from naksha.server.routes.table import ROUTES
from naksha.server.routing.binding import ParameterBinding
from naksha.server.routing.declarations import (
    BodyParam,
    Depends,
    HeaderParam,
    PathParam,
    QueryParam,
    Router,
)
from naksha.server.routing.dispatch import Dispatcher

router = Router(prefix="/hub/spaces/{name}")
calls: list[str] = []


class Filter(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    number: int = Field(3, ge=1)
    tags: list[str] = []
    other: str = Field("", alias="theOther")


class Required(BaseModel):
    needed: float


class Thing(BaseModel):
    id: str
    size: int = 0


async def user(request: Request) -> str:
    calls.append("user")
    return request.headers.get("user", "nobody")


User = Annotated[str, Depends(user)]


async def greeting(name: str, someone: User) -> str:
    return f"{someone} to {name}"


@router.get("/plain")
async def plain(
    greeted: Annotated[str, Depends(greeting)],
    someone: User,
    found: Annotated[Filter, QueryParam()],
) -> list[Any]:
    return [greeted, someone, found.number, found.tags, found.other]


@router.get("/plain/{rest:path}")
async def rest(request: Request, name: str, rest: str) -> Response:
    return Response(f"{request.method} {name} {rest}")


@router.get("/required")
async def required(found: Annotated[Required, QueryParam()]) -> list[float]:
    return [found.needed]


@router.get("/named/{theOther}")
async def named(
    other: Annotated[str, PathParam(alias="theOther", pattern="^[a-z]+$")],
) -> list[str]:
    return [other]


@router.get("/number/{number}")
async def number(number: int) -> list[int]:
    return [number]


@router.get("/singles")
async def singles(
    mark: Annotated[str, HeaderParam(alias="The-Mark")],
    limit: Annotated[int, QueryParam(ge=1)] = 10,
    state: Annotated[list[str], QueryParam()] = [],  # noqa: B006 - it is only read
) -> list[Any]:
    return [mark, limit, state]


@router.post("/things", status_code=201)
async def make(thing: Thing) -> dict[str, Any]:
    return thing.model_dump()


@router.put("/things")
async def replace(thing: Annotated[dict[str, Any], BodyParam()]) -> dict[str, Any]:
    return thing


@router.delete("/things", status_code=204)
async def remove() -> Response:
    return Response(status_code=204)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The endpoints, with errors of parameters as plain text."""
    RequestRecord.begin(scope)
    dispatcher = Dispatcher([router], json_body, no_endpoint)
    try:
        await dispatcher(scope, receive, send)
    except InvalidArgument as error:
        await Response(f"{error.field}|{error.message}", 400)(scope, receive, send)


async def request(method: str, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, f"/hub/spaces/{path}", **options)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x/plain", ["anna to x", "anna", 3, [], ""]),
        (
            "x/plain?number=5&tags=a&tags=b&theOther=c&no=1",
            ["anna to x", "anna", 5, ["a", "b"], "c"],
        ),
        ("x/plain?number=5&number=6&theOther=", ["anna to x", "anna", 6, [], ""]),
        ("x/plain?tags=&tags=%C3%A9+%26", ["anna to x", "anna", 3, ["", "é &"], ""]),
        ("x/plain?other=not-its-name", ["anna to x", "anna", 3, [], ""]),
        ("%C3%A9%20y/plain", ["anna to é y", "anna", 3, [], ""]),
        ("x/required?needed=1.5", [1.5]),
        ("x/named/y", ["y"]),
        ("x/number/7", [7]),
        ("x/singles", ["m", 10, []]),
        ("x/singles?limit=2&state=a&state=b", ["m", 2, ["a", "b"]]),
    ],
)
async def test_parameters_are_bound(path: str, expected: list[Any]) -> None:
    calls.clear()
    answer = await request("GET", path, headers={"user": "anna", "the-mark": "m"})
    assert (answer.status_code, answer.json()) == (200, expected)
    assert len(calls) <= 1, "a dependency is called once"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("x/plain?number=0", "number"),
        ("x/plain?number=many", "number"),
        ("x/required", "needed"),
        ("x/named/Y", "theOther"),
        ("x/number/seven", "number"),
        ("x/singles", "The-Mark"),
        ("x/singles?limit=0", "limit"),
    ],
)
async def test_invalid_parameters_are_named(path: str, field: str) -> None:
    headers = {} if field == "The-Mark" else {"the-mark": "m"}
    answer = await request("GET", path, headers=headers)
    assert (answer.status_code, answer.text.partition("|")[0]) == (400, field)


async def test_all_invalid_parameters_are_listed() -> None:
    answer = await request("GET", "x/singles?limit=none")
    assert "limit: " in answer.text
    assert "The-Mark: required but missing" in answer.text


async def test_the_rest_of_a_path_is_one_parameter() -> None:
    assert (await request("GET", "x/plain/a/b%2Fc")).text == "GET x a/b/c"
    assert (await request("GET", "x/plain/")).text == "GET x "


async def test_the_body_is_validated_and_a_value_is_sent_as_json() -> None:
    made = await request("POST", "x/things", json={"id": "a", "size": 2})
    assert (made.status_code, made.json()) == (201, {"id": "a", "size": 2})
    assert made.headers["content-type"] == "application/json"
    wrong = await request("POST", "x/things", json={"size": 2})
    assert wrong.text == "id|id: required but missing"
    wrong = await request("POST", "x/things", json=[1])
    assert wrong.text.startswith("body|body: ")
    wrong = await request("PUT", "x/things", content=b"{")
    assert wrong.text.startswith("body|The body is not valid JSON")
    assert (await request("PUT", "x/things", json={"any": [1]})).json() == {"any": [1]}
    assert (await request("DELETE", "x/things")).status_code == 204


async def test_unknown_paths_and_methods() -> None:
    for path in ("x/nothing", "x", "x/things/more"):
        assert (await request("GET", path)).status_code == 404
    answer = await request("PATCH", "x/things")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, POST, PUT")
    assert (await request("POST", "x/plain")).headers["allow"] == "GET, HEAD"


def test_a_parameter_without_a_source_is_refused_at_start_up() -> None:
    async def wrong(limit: int = 3) -> None: ...

    with pytest.raises(TypeError, match=r"limit of .*wrong has no source"):
        ParameterBinding(wrong, ())


@pytest.mark.parametrize("filled", ["a", "features", "spaces", "a/b", "{}"])
def test_the_index_of_endpoints_leaves_none_out(filled: str) -> None:
    dispatcher = Dispatcher([routes.router for routes in ROUTES], json_body, no_endpoint)
    for endpoint in dispatcher.endpoints:
        path = re.sub(r"\{[^}]*\}", filled, endpoint.declared.path)
        matching = [one for one in dispatcher.endpoints if one.pattern.match(path)]
        assert [*dispatcher._matching(path)] == matching
