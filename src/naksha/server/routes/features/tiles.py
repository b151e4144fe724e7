"""Features of a map tile, as GeoJSON or as a Mapbox vector tile."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from naksha.hub.query_language.tiles import TileFormat, parse_tile, split_suffix
from naksha.server.openapi.feature_schemas import BINARY, FEATURES, MVT, reads
from naksha.server.requests.parameters import PROPERTY_QUERY, TileParameters
from naksha.server.responses.encoding import GEO_JSON
from naksha.server.responses.feature_collections import SpaceRequestDep
from naksha.server.responses.space_tiles import TileName, space_tile
from naksha.server.routing.declarations import PathParam, QueryParam, Router

router = Router(tags=["features"])
_SCHEMES: Final = ["quadkey", "web", "tms", "here"]


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
    """Return the features of a tile.

    `versionRef` may be a range such as `3..9`: then the vector tile has the features that differ
    between the two versions, with `change`: `created`, `changed` or `deleted`. A changed feature
    whose geometry differs is there twice, once as it was, with `old`: true.
    """

    def parse() -> TileName:
        name, suffix = split_suffix(tile_id)
        accepted = TileFormat.MVT if MVT in request.http.headers.get("Accept", "") else None
        return TileName(parse_tile(scheme, name), suffix or accepted or TileFormat.GEOJSON)

    made = await space_tile(request, parse, parameters)
    if "." not in tile_id:
        made.headers.add_vary_header("Accept")
    return made
