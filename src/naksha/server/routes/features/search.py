"""Features of a space by their properties and tags, or by a box; and how many there are."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from naksha.hub.pipeline.requests import CountFeatures, ReadFeatures
from naksha.hub.query_language.tiles import level_of_box
from naksha.server.openapi.feature_schemas import COUNT, FEATURES, reads
from naksha.server.requests.parameters import (
    PROPERTY_QUERY,
    BboxParameters,
    CountParameters,
    FilterParameters,
    once,
    query_of,
)
from naksha.server.responses.area_features import Area
from naksha.server.responses.encoding import GEO_JSON, JSON, json_answer
from naksha.server.responses.feature_collections import AskedDep, shaping_of

router = APIRouter(tags=["features"])
SPACE: Final = "/hub/spaces/{space_id}"


@router.get(
    f"{SPACE}/search",
    response_class=Response,
    responses=reads("Those found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def search(asked: AskedDep, parameters: Annotated[FilterParameters, Query()]) -> Response:
    """Features by their properties, tags and authors; without any of these, any features."""
    read = ReadFeatures(
        query=query_of(asked.request, limit=parameters.limit),
        ref=parameters.ref,
        context=parameters.context,
    )
    return await asked.features(read, shaping_of(asked.request, parameters))


@router.get(
    f"{SPACE}/count",
    response_class=Response,
    responses=reads("How many.", (JSON, COUNT)),
    openapi_extra=PROPERTY_QUERY,
)
async def count(asked: AskedDep, parameters: Annotated[CountParameters, Query()]) -> Response:
    """How many features a search would find without a limit."""
    found = await asked.send(
        CountFeatures(query=query_of(asked.request), ref=parameters.ref, context=parameters.context)
    )
    return json_answer(asked.request, {"type": "CountResponse", **msgspec.to_builtins(found)})


@router.get(
    f"{SPACE}/bbox",
    response_class=Response,
    responses=reads("Those found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def bbox(asked: AskedDep, parameters: Annotated[BboxParameters, Query()]) -> Response:
    """Features in a box. If its west is east of its east, it reaches over the date line."""
    once(asked.request, "west", "south", "east", "north")
    box = parameters.box()
    return await Area(asked, parameters, box, level_of_box(box)).answer()
