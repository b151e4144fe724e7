"""Description of a vector tile: its content and its position on the map."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, QueryPart

EARTH_RADIUS_M: Final = 6_378_137.0
"""Radius of the sphere of Web Mercator."""
WORLD_M: Final = math.pi * EARTH_RADIUS_M
"""Distance from the centre of the map to each of its edges."""
LATITUDE_MAX: Final = math.degrees(2 * math.atan(math.exp(math.pi)) - math.pi / 2)
"""Latitude of the northern edge of the map; the southern edge is its negative."""
FLAT_UNITS: Final = 1.0
"""Tolerated error of a position in units of the tile's grid. Positions are rounded to these units
anyway, and on a screen a unit is an eighth of a pixel or less."""


_HALVINGS_MAX: Final = limits.PARTS_MAX.bit_length() - 1
"""Number of times that the features of a tile can be halved, at most."""
_ROUNDING: Final = 1e-12
"""Rounding error of a conversion from degrees to metres and back, in tiles."""


class VectorTile(msgspec.Struct, frozen=True, kw_only=True):
    """Definition of a Mapbox Vector Tile that is built from the features of a query.

    The edges are in metres of Web Mercator (EPSG 3857); `web` calculates those of the usual tiles.
    With `degrees` they are in degrees, and so is the grid: `square` calculates those.
    The tile's grid has `extent` units in both directions plus `buffer` units on every side.
    Geometries are clipped to the buffered tile unless `clip` is false. Features whose box does not
    meet the buffered tile are left out, whatever else the query selects.

    A feature of the tile has the property `id`, which is its id, its own properties and, with
    `namespace`, its namespace. Null values and empty nested values are left out. Nested values are
    JSON text under their key. With `flattened`, keys are paths in the feature (`properties.a.b`);
    of two with the same path the one that is nested less takes precedence, and only arrays are JSON
    text.

    Lines and areas are simplified by `tolerance` degrees before they are clipped, so that they meet
    their other parts in neighbouring tiles. If more than `features_max` features match, the tile
    has a sample of at most about `sample_max`, selected by the hash of the id. Each sample contains
    the smaller ones: a feature of a tile is also in the tiles below it.
    """

    west: float
    south: float
    east: float
    north: float
    layer: str = "default"
    extent: int = 4096
    buffer: int = 256
    clip: bool = True
    flattened: bool = False
    namespace: bool = False
    degrees: bool = False
    tolerance: float = 0.0
    features_max: int | None = None
    sample_max: int = limits.TILE_SAMPLE_MAX

    def __post_init__(self) -> None:
        edges = (self.west, self.south, self.east, self.north)
        if not all(map(math.isfinite, edges)):
            raise InvalidArgument(
                f"The edges of a tile must be finite numbers, not {edges}", field="tile"
            )
        if self.west >= self.east or self.south >= self.north:
            raise InvalidArgument(
                "The west and south edges of a tile must be less than its east and north edges; "
                f"(west, south, east, north) is {edges}",
                field="tile",
            )
        if not 1 <= self.extent <= limits.TILE_EXTENT_MAX:
            raise InvalidArgument(
                f"extent must be between 1 and {limits.TILE_EXTENT_MAX}, not {self.extent}",
                field="extent",
            )
        if not 0 <= self.buffer <= limits.TILE_EXTENT_MAX:
            raise InvalidArgument(
                f"buffer must be between 0 and {limits.TILE_EXTENT_MAX}, not {self.buffer}",
                field="buffer",
            )
        if not self.layer:
            raise InvalidArgument("The layer name of a tile must not be empty", field="layer")
        if not 0.0 <= self.tolerance < math.inf:
            raise InvalidArgument(
                f"tolerance must be a number of degrees, 0 or more, not {self.tolerance}",
                field="tolerance",
            )

    @classmethod
    def square(cls, box: Bbox, **settings: object) -> VectorTile:
        """Return the tile of a box, with a grid of degrees."""
        edges = {"west": box.west, "south": box.south, "east": box.east, "north": box.north}
        return msgspec.convert(edges | {"degrees": True} | settings, cls)

    @classmethod
    def web(cls, level: int, column: int, row: int, **settings: object) -> VectorTile:
        """Return the tile of a level; columns are counted from the west, rows from the north."""
        if not 0 <= level <= limits.TILE_LEVEL_MAX:
            raise InvalidArgument(
                f"The tile level must be between 0 and {limits.TILE_LEVEL_MAX}, not {level}",
                field="level",
            )
        count = 2**level
        if not (0 <= column < count and 0 <= row < count):
            raise InvalidArgument(
                f"Columns and rows of tile level {level} must be between 0 and {count - 1}, not "
                f"{column} and {row}",
                field="tile",
            )
        size = 2 * WORLD_M / count
        west, north = -WORLD_M + column * size, WORLD_M - row * size
        edges = {"west": west, "south": north - size, "east": west + size, "north": north}
        return msgspec.convert(edges | settings, cls)

    def bounds(self) -> Bbox:
        """Return the tile without its buffer, in degrees."""
        if self.degrees:
            return Bbox(self.west, self.south, self.east, self.north)
        west, east = _longitude(self.west), _longitude(self.east)
        return Bbox(west, _latitude(self.south), east, _latitude(self.north))

    def box(self) -> Bbox:
        """Return the tile with its buffer in degrees, enlarged by possible rounding errors."""
        wide = (self.east - self.west) * (self.buffer / self.extent + _ROUNDING)
        high = (self.north - self.south) * (self.buffer / self.extent + _ROUNDING)
        if self.degrees:
            return Bbox(
                max(self.west - wide, -180.0),
                max(self.south - high, -90.0),
                min(self.east + wide, 180.0),
                min(self.north + high, 90.0),
            )
        return Bbox(
            max(_longitude(self.west - wide), -180.0),
            _latitude(self.south - high),
            min(_longitude(self.east + wide), 180.0),
            _latitude(self.north + high),
        )

    def sample_of(self, count: int) -> QueryPart | None:
        """Return the part of `count` matching features that the tile has, None for all of them."""
        if self.features_max is None or count <= self.features_max:
            return None
        halvings = math.ceil(math.log2(max(count / self.sample_max, 1.0)))
        return QueryPart(1, 2 ** min(halvings, _HALVINGS_MAX))

    def is_flat(self) -> bool:
        """Return whether the tile is so small that degrees can be treated as metres.

        That is so if latitudes between its edges are nearly equidistant on the map, as they are in
        a grid of degrees.
        """
        if self.degrees:
            return True
        box, height = self.bounds(), self.north - self.south
        parts = (0.25, 0.5, 0.75)  # on the equator the middle alone would always match
        latitudes = (box.south + (box.north - box.south) * part for part in parts)
        off = [
            abs((_y(latitude) - self.south) / height - part)
            for latitude, part in zip(latitudes, parts, strict=True)
        ]
        return max(off) * self.extent <= FLAT_UNITS


def mercator(longitude: float, latitude: float) -> tuple[float, float]:
    """Project a position to the map; the poles have no finite position."""
    return math.radians(longitude) * EARTH_RADIUS_M, _y(latitude)


def _longitude(x: float) -> float:
    return math.degrees(x / EARTH_RADIUS_M)


def _latitude(y: float) -> float:
    return math.degrees(2 * math.atan(math.exp(y / EARTH_RADIUS_M)) - math.pi / 2)


def _y(latitude: float) -> float:
    return EARTH_RADIUS_M * math.log(math.tan(math.pi / 4 + math.radians(latitude) / 2))
