"""OGC API – Tiles of a collection: tilesets and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import Field
from starlette.responses import Response

from naksha.hub.query_language.tiles import TileFormat
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.server.ogc.links import RELATIONS, ROOT, link, url_of
from naksha.server.ogc.tile_matrix_sets import SETS, WEB_MERCATOR, TileMatrixSet, tile_matrix_set
from naksha.server.openapi.feature_schemas import BINARY, FEATURES, MVT, object_of, reads
from naksha.server.requests.parameters import PROPERTY_QUERY, TileParameters
from naksha.server.responses.encoding import GEO_JSON, JSON, complete_response
from naksha.server.responses.feature_collections import SpaceRequest, SpaceRequestDep
from naksha.server.responses.space_tiles import TileName, space_tile
from naksha.server.responses.tile_sets import (
    MARGIN,
    TileSet,
    path_id,
    tile_json,
    tile_set,
    tile_url,
)
from naksha.server.routing.declarations import PathParam, QueryParam, Router

router = Router(prefix="/ogc/collections/{space_id}/tiles", tags=["ogc"])
TILE_JSON: Final = "application/vnd.mapbox.tile+json"
_TILE: Final = ("{tileMatrix}", "{tileRow}", "{tileCol}")
_REVALIDATED: Final = {"Cache-Control": "no-cache"}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}
_FORMATS: Final = {
    "mvt": TileFormat.MVT,
    "mvtf": TileFormat.MVT_FLAT,
    "geojson": TileFormat.GEOJSON,
}
SetId = Annotated[str, PathParam(alias="tileMatrixSetId", json_schema_extra={"enum": [*SETS]})]


class OgcTileParameters(TileParameters):
    """Parameters of a tile; its features reach beyond its edges by default."""

    margin: int = Field(
        MARGIN,
        ge=0,
        le=limits.TILE_MARGIN_PIXELS_MAX,
        description="Margin in pixels (tile: 256).",
    )
    f: Literal["mvt", "mvtf", "geojson"] = Field(
        "mvt", description="`mvt`, `mvtf` (nested properties flattened) or `geojson`."
    )


class TileSetParameters(TileParameters):
    """Parameters of the tiles that a tileset links to, and the format of its description."""

    f: Literal["json", "tilejson"] = Field("json", description="`json`, or `tilejson`.")


_Parameters = Annotated[TileSetParameters, QueryParam()]


@router.get(
    "",
    responses=reads("The tilesets.", (JSON, object_of("tilesets", tilesets=_OBJECTS))),
    openapi_extra=PROPERTY_QUERY,
)
async def list_tile_sets(request: SpaceRequestDep, parameters: _Parameters) -> Response:
    """List the tilesets of a collection: one for each grid."""
    tiles = await tile_set(request, parameters)
    found = [_tile_set(request, tiles, one) for one in SETS.values()]
    links = [link(_url(request, tiles), "self")]
    return _json(request, {"links": links, "tilesets": found})


@router.get(
    "/{tileMatrixSetId}",
    responses=reads(
        "The tileset.",
        (JSON, object_of("dataType", "crs", "links", links=_OBJECTS)),
        (TILE_JSON, object_of("tilejson", "tiles", "vector_layers")),
    ),
    openapi_extra=PROPERTY_QUERY,
)
async def get_tile_set(
    request: SpaceRequestDep, set_id: SetId, parameters: _Parameters
) -> Response:
    """Describe a tileset of a collection; all parameters are passed on to its tiles."""
    matrices = tile_matrix_set(set_id)
    tiles = await tile_set(request, parameters)
    if parameters.f == "json":
        return _json(request, _tile_set(request, tiles, matrices) | _contents(tiles))
    if matrices is not WEB_MERCATOR:
        raise InvalidArgument(
            f"TileJSON describes tiles of {WEB_MERCATOR.id} only, not of {matrices.id}", field="f"
        )
    content = msgspec.json.encode(tile_json(request.http, tiles))
    return complete_response(request.http, content, TILE_JSON, _REVALIDATED)


@router.get(
    "/{tileMatrixSetId}/{tileMatrix}/{tileRow}/{tileCol}",
    responses=reads("The features of the tile.", (MVT, BINARY), (GEO_JSON, FEATURES)),
    openapi_extra=PROPERTY_QUERY,
)
async def get_tile(
    request: SpaceRequestDep,
    set_id: SetId,
    matrix: Annotated[str, PathParam(alias="tileMatrix")],
    row: Annotated[str, PathParam(alias="tileRow")],
    column: Annotated[str, PathParam(alias="tileCol")],
    parameters: Annotated[OgcTileParameters, QueryParam()],
) -> Response:
    """Return a tile of a collection; an empty one is an empty body."""

    def parse() -> TileName:
        matrices = tile_matrix_set(set_id)
        tile = matrices.tile(matrix, row, column)
        return TileName(tile, _FORMATS[parameters.f], in_degrees=matrices.in_degrees)

    return await space_tile(request, parse, parameters)


def _url(request: SpaceRequest, tiles: TileSet, *segments: str, more: Sequence[str] = ()) -> str:
    """Return the URL of a resource of the collection, with the parameters of the request."""
    path = "".join(f"/{segment}" for segment in ("tiles", *segments))
    return tile_url(request.http, tiles, f"{ROOT}/collections/{path_id(tiles)}{path}", *more)


def _tile_set(request: SpaceRequest, tiles: TileSet, matrices: TileMatrixSet) -> dict[str, Any]:
    """Return the members that a tileset has in a list, too."""
    links = [
        link(_url(request, tiles, matrices.id), "self"),
        link(url_of(request.http, "tileMatrixSets", matrices.id), f"{RELATIONS}tiling-scheme"),
        link(_url(request, tiles, matrices.id, *_TILE), "item", MVT, templated=True),
    ]
    if not tiles.is_difference:
        url = _url(request, tiles, matrices.id, *_TILE, more=["f=geojson"])
        links.append(link(url, "item", GEO_JSON, templated=True))
    if matrices is WEB_MERCATOR:
        links.append(
            link(_url(request, tiles, matrices.id, more=["f=tilejson"]), "describedby", TILE_JSON)
        )
    return {
        "title": tiles.space.title or tiles.space.id,
        "dataType": "vector",
        "crs": matrices.crs,
        "tileMatrixSetURI": matrices.uri,
        "tileMatrixSetId": matrices.id,
        "tileMatrixSetLimits": matrices.limits(),
        "links": links,
    }


def _contents(tiles: TileSet) -> dict[str, Any]:
    """Return the members that describe what the tiles contain."""
    box, crs84 = tiles.bounds, "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
    return {
        "boundingBox": {
            "lowerLeft": [box.west, box.south],
            "upperRight": [box.east, box.north],
            "crs": crs84,
        },
        "layers": [
            {
                "id": tiles.space.id,
                "dataType": "vector",
                "propertiesSchema": {
                    "type": "object",
                    "properties": {name: {"title": name} for name in tiles.fields},
                },
            }
        ],
    }


def _json(request: SpaceRequest, value: dict[str, Any]) -> Response:
    return complete_response(request.http, msgspec.json.encode(value), JSON, _REVALIDATED)
