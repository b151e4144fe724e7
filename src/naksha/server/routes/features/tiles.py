"""Features of a map tile, as GeoJSON or as a Mapbox vector tile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import shapely
from starlette.responses import Response

from naksha.hub.pipeline.requests import ReadTile
from naksha.hub.query_language.clustering import (
    Ensure,
    Sampling,
    Simplification,
    SimplificationAlgorithm,
)
from naksha.hub.query_language.tiles import (
    TILE_PIXELS,
    MapTile,
    TileFormat,
    parse_tile,
    split_suffix,
)
from naksha.hub.render.feature_shapes import with_shapes
from naksha.hub.render.projection import StateProjection, shaped
from naksha.hub.render.sampling import visual_thousands
from naksha.hub.write.conflicted_branches import is_for_solving
from naksha.model.geo.tiles import VectorTile, mercator
from naksha.model.state import XYZ, State
from naksha.server.openapi.feature_schemas import BINARY, FEATURES, MVT, reads
from naksha.server.requests.parameters import PROPERTY_QUERY, TileParameters, query_of
from naksha.server.requests.tile_plans import RequestedTile
from naksha.server.responses.area_features import AreaRequest
from naksha.server.responses.encoding import GEO_JSON
from naksha.server.responses.feature_collections import (
    SpaceRequest,
    SpaceRequestDep,
    projection_of,
)
from naksha.server.responses.tile_responses import body_of, tile_response
from naksha.server.routing.declarations import PathParam, QueryParam, Router
from naksha.spi.support.vector_tiles import tile_of

router = Router(tags=["features"])
_SCHEMES: Final = ["quadkey", "web", "tms", "here"]
_EXTENT: Final = 4096
"""Resolution of the grid of a vector tile."""
LATITUDE_MAX: Final = 89.99
"""The Mercator projection has no poles."""
NAMESPACE: Final = ("properties", XYZ)


@router.get(
    "/hub/spaces/{space_id}/tile/{type}/{tileId}",
    responses=reads("The features found, in any order.", (GEO_JSON, FEATURES), (MVT, BINARY)),
    openapi_extra=PROPERTY_QUERY,
)
async def tile(
    request: SpaceRequestDep,
    scheme: Annotated[str, PathParam(alias="type", json_schema_extra={"enum": _SCHEMES})],
    tile_id: Annotated[
        str,
        PathParam(
            alias="tileId",
            description="`quadkey`: digits; `web` and `tms`: level_x_y; `here`: digits, a number "
            "or level_x_y. The suffix `.mvt` or `.mvtf` (nested properties flattened), or an "
            "`Accept` header, selects a vector tile; its features have their namespace only if "
            "`selection` names it, or is `*`.",
        ),
    ],
    parameters: Annotated[TileParameters, QueryParam()],
) -> Response:
    """Return the features of a tile."""

    def wanted() -> RequestedTile:
        tile, tile_format = _tile_of(request, scheme, tile_id)
        return RequestedTile(
            tile,
            parameters.margin,
            parameters.ref,
            parameters.context,
            tile_format,
            GEO_JSON if tile_format is TileFormat.GEOJSON else MVT,
            # Cells reach beyond the tile, and their counts may be shares of all features.
            is_cacheable=parameters.clustering is None,
        )

    async def render() -> bytes | Response:
        tile, tile_format = _tile_of(request, scheme, tile_id)
        is_vector = tile_format is not TileFormat.GEOJSON
        area = AreaRequest(
            request,
            parameters,
            tile.search_box(parameters.margin),
            tile.level,
            clip=is_vector or parameters.mode == "viz",
            tweaks=_visual(parameters) if parameters.mode == "viz" else (),
        )
        if not is_vector:
            return body_of(await area.answer())
        is_flat = tile_format is TileFormat.MVT_FLAT
        return await _vector_tile(area, tile, parameters, flattened=is_flat)

    made = await tile_response(request, wanted, render)
    if "." not in tile_id:
        made.headers.add_vary_header("Accept")
    return made


def _tile_of(request: SpaceRequest, scheme: str, tile_id: str) -> tuple[MapTile, TileFormat]:
    name, suffix = split_suffix(tile_id)
    return parse_tile(scheme, name), suffix or _accepted(request.http.headers.get("Accept", ""))


def _accepted(header: str) -> TileFormat:
    return TileFormat.MVT if MVT in header else TileFormat.GEOJSON


def _visual(parameters: TileParameters) -> Sequence[Sampling | Simplification | Ensure]:
    """Return the reductions that `mode=viz` applies."""
    simpler = Simplification(algorithm=SimplificationAlgorithm.GRID_BY_TILE_LEVEL)
    thousands = visual_thousands(parameters.viz_sampling)
    return (simpler,) if thousands is None else (Ensure(thousands), simpler)


async def _vector_tile(
    area: AreaRequest, map_tile: MapTile, parameters: TileParameters, *, flattened: bool
) -> bytes:
    request = area.request
    shaping = projection_of(request.http, parameters)
    selection = shaping.selection
    tile = _edges(
        map_tile,
        parameters.margin,
        layer=request.space_id,
        clip=area.clip,
        flattened=flattened,
        namespace=selection is not None and selection.has(NAMESPACE),
    )
    if selection is not None and selection.keeps_all:
        shaping = dataclasses.replace(shaping, selection=None)
    is_stored = (
        area.is_plain and shaping == StateProjection() and not is_for_solving(parameters.ref)
    )
    if is_stored and await request.is_plain():
        spatial = None if map_tile.mercator else area.box
        query = query_of(request.http, parameters, limit=parameters.limit, spatial=spatial)
        read = ReadTile(tile=tile, query=query, ref=parameters.ref)
        return (await request.send(read)).mvt
    if area.clustering is not None:
        found = [_state(cell) for cell in await area.cells(area.clustering)]
    else:
        found = shaped(await (await area.features()).all(), shaping)
    return await asyncio.to_thread(_encoded, found, tile)


def _encoded(states: Sequence[State], tile: VectorTile) -> bytes:
    some, shapes = with_shapes(states)
    return tile_of(some, shapely.to_wkb(shapes).tolist(), tile) if some else b""


def _state(feature: dict[str, Any]) -> State:
    return State(feature["id"], msgspec.json.encode(feature))


def _edges(map_tile: MapTile, margin: int, **settings: Any) -> VectorTile:
    """Return the tile in Mercator coordinates; a tile in degrees is stretched there."""
    settings |= {"extent": _EXTENT, "buffer": round(margin * _EXTENT / TILE_PIXELS)}
    if map_tile.mercator:
        return VectorTile.web(map_tile.level, map_tile.x, map_tile.y, **settings)
    box = map_tile.box()
    west, south = mercator(box.west, max(box.south, -LATITUDE_MAX))
    east, north = mercator(box.east, min(box.north, LATITUDE_MAX))
    return VectorTile(west=west, south=south, east=east, north=north, **settings)
