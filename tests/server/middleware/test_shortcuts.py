"""Equal results of the fast path to an endpoint and of FastAPI's own."""

from __future__ import annotations

from typing import Annotated, Any, Final

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from naksha.server.routes.shortcuts import Shortcuts
from naksha.server.routes.table import ROUTES

router = APIRouter()
asked: list[str] = []


class Wanted(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    number: int = Field(3, ge=1)
    tags: list[str] = []
    other: str = Field("", alias="theOther")


class Needed(BaseModel):
    needed: float


async def who(request: Request) -> str:
    asked.append("who")
    return request.headers.get("who", "nobody")


Who = Annotated[str, Depends(who)]


async def greeting(name: str, someone: Who) -> str:
    return f"{someone} to {name}"


def told(request: Request, *things: Any) -> Response:
    asked.append("endpoint")
    route = request.scope["route"].path
    return Response(repr((route, sorted(request.path_params.items()), *things)))


@router.get("/hub/spaces/{name}/plain")
async def plain(
    request: Request,
    greeted: Annotated[str, Depends(greeting)],
    someone: Who,
    wanted: Annotated[Wanted, Query()],
) -> Response:
    return told(request, greeted, someone, wanted)


@router.get("/hub/spaces/{name}/plain/{rest:path}")
async def rest(request: Request, name: str, rest: str) -> Response:
    return told(request, name, rest)


@router.get("/hub/spaces/{name}/needed")
async def needed(request: Request, wanted: Annotated[Needed, Query()]) -> Response:
    return told(request, wanted)


@router.get("/hub/spaces/{name}/named/{theOther}")
async def named(request: Request, other: Annotated[str, Path(alias="theOther")]) -> Response:
    return told(request, other)


@router.get("/hub/spaces/{name}/number/{number}")
async def number(request: Request, number: int) -> Response:
    return told(request, number)


@router.get("/hub/spaces/{name}/header")
async def header(request: Request, mark: Annotated[str, Header()]) -> Response:
    return told(request, mark)


@router.get("/hub/spaces/{name}/object")
async def an_object(name: str) -> dict[str, str]:
    return {"name": name}


def app(*, short: bool) -> FastAPI:
    made = FastAPI()
    if short:
        made.add_middleware(Shortcuts, routers=[router])
    made.include_router(router)
    return made


PLACES: Final = [
    "/hub/spaces/x/plain",
    "/hub/spaces/x/plain?number=5&tags=a&tags=b&theOther=c&unknown=1&unknown=2",
    "/hub/spaces/x/plain?number=5&number=6&theOther=",
    "/hub/spaces/x/plain?tags=&tags=%C3%A9+%26",
    "/hub/spaces/x/plain?other=by-its-name",
    "/hub/spaces/x/plain?number=0",
    "/hub/spaces/x/plain?number=many",
    "/hub/spaces/%C3%A9%20y/plain",
    "/hub/spaces/x/plain/a/b%2Fc",
    "/hub/spaces/x/plain/",
    "/hub/spaces/x/needed?needed=1.5",
    "/hub/spaces/x/needed",
    "/hub/spaces/x/named/y",
    "/hub/spaces/x/number/7",
    "/hub/spaces/x/number/seven",
    "/hub/spaces/x/header",
    "/hub/spaces/x/object",
    "/hub/spaces/x/nothing",
    "/hub/spaces/x",
    "/",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_both_ways_give_the_same(place: str, method: str) -> None:
    answers = []
    for short in (True, False):
        asked.clear()
        transport = httpx.ASGITransport(app(short=short))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, place, headers={"who": "anna", "mark": "m"})
        answers.append((answer.status_code, answer.text, sorted(answer.headers.items())))
        assert asked.count("who") <= 1
        assert asked.count("endpoint") <= 1
    assert answers[0] == answers[1]


async def test_what_is_plain_takes_the_short_way() -> None:
    async def fastapi(*_: object) -> None:
        raise AssertionError("the long way")

    short = Shortcuts(fastapi, [router])
    transport = httpx.ASGITransport(short)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for place in (*PLACES[:5], *PLACES[7:9], "/hub/spaces/x/needed?needed=1"):
            assert (await client.get(place)).status_code == 200
        for place in ("/hub/spaces/x/needed", "/hub/spaces/x/object", "/hub/spaces/x/nothing"):
            with pytest.raises(AssertionError, match="the long way"):
                await client.get(place)


@pytest.mark.parametrize(
    "path",
    [
        "/hub/spaces/{space_id}/features",
        "/hub/spaces/{space_id}/features/{feature_id:path}",
        "/hub/spaces/{space_id}/bbox",
        "/hub/spaces/{space_id}/search",
        "/hub/spaces/{space_id}/spatial",
        "/hub/spaces/{space_id}/iterate",
        "/hub/spaces/{space_id}/tile/{type}/{tileId}",
    ],
)
def test_there_is_a_short_way_to_features(path: str) -> None:
    assert path in Shortcuts(FastAPI(), [routes.router for routes in ROUTES]).paths
