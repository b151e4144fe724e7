"""Tile matrix sets: the grids in which tiles are offered."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from naksha.hub.query_language.tiles import MapTile
from naksha.model.errors import NotFound
from naksha.server.ogc.links import RELATIONS, link, url_of
from naksha.server.openapi.feature_schemas import object_of, reads
from naksha.server.responses.encoding import JSON, json_response
from naksha.server.routing.declarations import Router

router = Router(prefix="/ogc/tileMatrixSets", tags=["ogc"])
_TILE_PIXELS: Final = 256
_PIXEL_METRES: Final = 0.00028
"""Size of a pixel, by which the standard defines the denominators of scales."""
_CRS: Final = "http://www.opengis.net/def/crs/"
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}


class TileMatrixSet(NamedTuple):
    """A pyramid of grids; each level has twice as many columns and rows as the one above."""

    id: str
    title: str
    crs: str
    axes: tuple[str, str]
    level_max: int
    columns: int
    """Number of columns at level 0, where there is one row."""
    origin: tuple[float, float]
    cell_size: float
    """Size of a pixel at level 0, in units of the CRS."""
    metres_per_unit: float
    in_degrees: bool

    @property
    def uri(self) -> str:
        """The URI of the definition."""
        return f"http://www.opengis.net/def/tilematrixset/OGC/1.0/{self.id}"

    def size(self, level: int) -> tuple[int, int]:
        """Return the number of columns and rows of a level."""
        return self.columns << level, 1 << level

    def tile(self, level: str, row: str, column: str) -> MapTile:
        """Return a tile, else raise NotFound."""
        if all(one.isascii() and one.isdigit() and len(one) <= 10 for one in (level, row, column)):
            z, x, y = int(level), int(column), int(row)
            columns, rows = self.size(min(z, self.level_max))
            if z <= self.level_max and x < columns and y < rows:
                if self.in_degrees:
                    return MapTile(z + 1, x, rows - 1 - y, mercator=False)
                return MapTile(z, x, y)
        raise NotFound(
            f"The tile {level:.20}/{row:.20}/{column:.20} is not in {self.id}: its levels are 0 to "
            f"{self.level_max}, and at level z it has {self.columns} · 2^z columns and 2^z rows",
            field="tile",
        )

    def definition(self) -> dict[str, Any]:
        """Return the definition."""
        return {
            "id": self.id,
            "title": self.title,
            "uri": self.uri,
            "crs": self.crs,
            "orderedAxes": [*self.axes],
            "wellKnownScaleSet": f"http://www.opengis.net/def/wkss/OGC/1.0/{_SCALES[self.id]}",
            "tileMatrices": [self._matrix(level) for level in range(self.level_max + 1)],
        }

    def limits(self) -> list[dict[str, Any]]:
        """Return the rows and columns of each level: all of them."""
        found = []
        for level in range(self.level_max + 1):
            columns, rows = self.size(level)
            found.append(
                {
                    "tileMatrix": str(level),
                    "minTileRow": 0,
                    "maxTileRow": rows - 1,
                    "minTileCol": 0,
                    "maxTileCol": columns - 1,
                }
            )
        return found

    def _matrix(self, level: int) -> dict[str, Any]:
        columns, rows = self.size(level)
        size = self.cell_size / (1 << level)
        return {
            "id": str(level),
            "scaleDenominator": size * self.metres_per_unit / _PIXEL_METRES,
            "cellSize": size,
            "cornerOfOrigin": "topLeft",
            "pointOfOrigin": [*self.origin],
            "tileWidth": _TILE_PIXELS,
            "tileHeight": _TILE_PIXELS,
            "matrixWidth": columns,
            "matrixHeight": rows,
        }


_HALF: Final = 20_037_508.342789244
_DEGREE_METRES: Final = 111_319.490793273573
WEB_MERCATOR: Final = TileMatrixSet(
    id="WebMercatorQuad",
    title="Google Maps Compatible for the World",
    crs=f"{_CRS}EPSG/0/3857",
    axes=("X", "Y"),
    level_max=24,
    columns=1,
    origin=(-_HALF, _HALF),
    cell_size=2 * _HALF / _TILE_PIXELS,
    metres_per_unit=1.0,
    in_degrees=False,
)
WORLD_CRS84: Final = TileMatrixSet(
    id="WorldCRS84Quad",
    title="CRS84 for the World",
    crs=f"{_CRS}OGC/1.3/CRS84",
    axes=("Lon", "Lat"),
    level_max=23,
    columns=2,
    origin=(-180.0, 90.0),
    cell_size=180.0 / _TILE_PIXELS,
    metres_per_unit=_DEGREE_METRES,
    in_degrees=True,
)
SETS: Final = {one.id: one for one in (WEB_MERCATOR, WORLD_CRS84)}
_SCALES: Final = {"WebMercatorQuad": "GoogleMapsCompatible", "WorldCRS84Quad": "GoogleCRS84Quad"}


def tile_matrix_set(id: str) -> TileMatrixSet:
    """Return a tile matrix set, else raise NotFound."""
    found = SETS.get(id)
    if found is None:
        raise NotFound(
            f"{id!r:.64} is not a tile matrix set of this server; use one of {', '.join(SETS)}",
            field="tileMatrixSetId",
        )
    return found


@router.get(
    "",
    responses=reads("The grids.", (JSON, object_of("tileMatrixSets", tileMatrixSets=_OBJECTS))),
)
async def list_tile_matrix_sets(request: Request) -> Response:
    """List the grids in which tiles are offered."""
    found = [
        {
            "id": one.id,
            "title": one.title,
            "uri": one.uri,
            "links": [link(url_of(request, "tileMatrixSets", one.id), f"{RELATIONS}tiling-scheme")],
        }
        for one in SETS.values()
    ]
    return json_response(request, {"tileMatrixSets": found})


@router.get(
    "/{tileMatrixSetId}",
    responses=reads("The grid.", (JSON, object_of("id", "crs", "tileMatrices"))),
)
async def get_tile_matrix_set(request: Request, tileMatrixSetId: str) -> Response:  # noqa: N803
    """Return the definition of a grid."""
    return json_response(request, tile_matrix_set(tileMatrixSetId).definition())
