"""Descriptions of the tiles of a space for map clients."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from naksha.server.openapi.feature_schemas import object_of, reads
from naksha.server.requests.parameters import PROPERTY_QUERY, TileParameters
from naksha.server.responses.encoding import JSON, complete_response
from naksha.server.responses.feature_collections import SpaceRequestDep
from naksha.server.responses.tile_sets import map_style, tile_json, tile_set
from naksha.server.routing.declarations import QueryParam, Router

router = Router(prefix="/hub/spaces/{space_id}", tags=["features"])
_REVALIDATED: Final = {"Cache-Control": "no-cache"}
_OBJECT: Final = {"type": "object"}
_TILE_JSON: Final = object_of(
    "tilejson",
    "tiles",
    "vector_layers",
    tilejson={"type": "string"},
    tiles={"type": "array", "items": {"type": "string"}},
    vector_layers={"type": "array", "items": _OBJECT},
)
_STYLE: Final = object_of(
    "version",
    "sources",
    "layers",
    version={"type": "integer"},
    sources=_OBJECT,
    layers={"type": "array", "items": _OBJECT},
)


@router.get(
    "/tilejson",
    responses=reads("The description, as TileJSON 3.0.", (JSON, _TILE_JSON)),
    openapi_extra=PROPERTY_QUERY,
)
async def tilejson(
    request: SpaceRequestDep, parameters: Annotated[TileParameters, QueryParam()]
) -> Response:
    """Describe the vector tiles of a space: where they are, and what they contain.

    All parameters are passed on to the tiles. A tag or a time is passed on as the version that it
    means. `versionRef` may be a range such as `3..9`, for tiles of the difference.
    """
    found = tile_json(request.http, await tile_set(request, parameters))
    return complete_response(request.http, msgspec.json.encode(found), JSON, _REVALIDATED)


@router.get(
    "/style",
    responses=reads("The style, for MapLibre.", (JSON, _STYLE)),
    openapi_extra=PROPERTY_QUERY,
)
async def style(
    request: SpaceRequestDep, parameters: Annotated[TileParameters, QueryParam()]
) -> Response:
    """Return a map style that draws the vector tiles of a space, with the same parameters."""
    found = map_style(request.http, await tile_set(request, parameters))
    return complete_response(request.http, msgspec.json.encode(found), JSON, _REVALIDATED)
