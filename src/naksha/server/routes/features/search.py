"""Search and count features of a space by properties and tags, or by bounding box."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

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
from naksha.server.responses.area_features import AreaRequest
from naksha.server.responses.encoding import GEO_JSON, JSON, json_response
from naksha.server.responses.feature_collections import SpaceRequestDep, projection_of
from naksha.server.routing.declarations import QueryParam, Router

router = Router(tags=["features"])
SPACE: Final = "/hub/spaces/{space_id}"


@router.get(
    f"{SPACE}/search",
    responses=reads("The features found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def search(
    request: SpaceRequestDep, parameters: Annotated[FilterParameters, QueryParam()]
) -> Response:
    """Find features by properties, tags and authors; without a condition, any features."""
    read = ReadFeatures(
        query=query_of(request.http, parameters, limit=parameters.limit),
        ref=parameters.ref,
        context=parameters.context,
    )
    return await request.features(read, projection_of(request.http, parameters))


@router.get(
    f"{SPACE}/count",
    responses=reads("The count.", (JSON, COUNT)),
    openapi_extra=PROPERTY_QUERY,
)
async def count(
    request: SpaceRequestDep, parameters: Annotated[CountParameters, QueryParam()]
) -> Response:
    """Count the features that a search would find without a limit."""
    found = await request.send(
        CountFeatures(
            query=query_of(request.http, parameters), ref=parameters.ref, context=parameters.context
        )
    )
    return json_response(request.http, {"type": "CountResponse", **msgspec.to_builtins(found)})


@router.get(
    f"{SPACE}/bbox",
    responses=reads("The features found, in any order.", (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def bbox(
    request: SpaceRequestDep, parameters: Annotated[BboxParameters, QueryParam()]
) -> Response:
    """Find features in a bounding box; a box with west > east crosses the antimeridian."""
    once(request.http, "west", "south", "east", "north")
    box = parameters.box()
    return await AreaRequest(request, parameters, box, level_of_box(box)).answer()
