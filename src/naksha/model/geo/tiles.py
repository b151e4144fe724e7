"""Vector tiles: what is to be put into one, and where on the Web Mercator map it lies."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox

EARTH_RADIUS_M: Final = 6_378_137.0
"""The sphere of Web Mercator."""
WORLD_M: Final = math.pi * EARTH_RADIUS_M
"""From the middle of the map to each of its edges."""
LATITUDE_MAX: Final = math.degrees(2 * math.atan(math.exp(math.pi)) - math.pi / 2)
"""Where the map ends in the north, and with a minus in the south."""
FLAT_UNITS: Final = 1.0
"""How far a position may be from where it belongs, in units of the tile's grid: it is rounded to
these anyway, and on a screen they are an eighth of a pixel or less."""


_ROUNDING: Final = 1e-12
"""Of the way from degrees to metres and back, in tiles."""


class VectorTile(msgspec.Struct, frozen=True, kw_only=True):
    """A Mapbox Vector Tile that is to be made of the features of a query.

    The edges are in metres of Web Mercator (EPSG 3857); `web` gives those of the usual tiles. The
    tile's grid has `extent` units in both directions, `buffer` more of these on every side are
    looked at, and unless told otherwise geometries are clipped there. Features whose box does not
    meet the tile and its buffer are left out, whatever else is asked for.

    A feature has the property `id`, which is its id, its own properties and, when asked for, its
    namespace. What is null, or nested and empty, is left out. What is nested is JSON text under
    its key; `flattened`, keys are paths in the feature (`properties.a.b`), of two with the same
    path the one that is nested less counts, and only arrays are JSON text.
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

    def __post_init__(self) -> None:
        edges = (self.west, self.south, self.east, self.north)
        if not all(map(math.isfinite, edges)):
            raise InvalidArgument("The edges of a tile must be finite", field="tile")
        if self.west >= self.east or self.south >= self.north:
            raise InvalidArgument("A tile must have an inside", field="tile")
        if not 1 <= self.extent <= limits.TILE_EXTENT_MAX:
            raise InvalidArgument(
                f"extent must be between 1 and {limits.TILE_EXTENT_MAX}", field="extent"
            )
        if not 0 <= self.buffer <= limits.TILE_EXTENT_MAX:
            raise InvalidArgument(
                f"buffer must be between 0 and {limits.TILE_EXTENT_MAX}", field="buffer"
            )
        if not self.layer:
            raise InvalidArgument("A layer must have a name", field="layer")

    @classmethod
    def web(cls, level: int, column: int, row: int, **settings: object) -> VectorTile:
        """The tile of a level: columns are counted from the west, rows from the north."""
        if not 0 <= level <= limits.TILE_LEVEL_MAX:
            raise InvalidArgument(
                f"The level must be between 0 and {limits.TILE_LEVEL_MAX}", field="level"
            )
        count = 2**level
        if not (0 <= column < count and 0 <= row < count):
            raise InvalidArgument(
                f"Level {level} has columns and rows from 0 to {count - 1}", field="tile"
            )
        size = 2 * WORLD_M / count
        west, north = -WORLD_M + column * size, WORLD_M - row * size
        edges = {"west": west, "south": north - size, "east": west + size, "north": north}
        return msgspec.convert(edges | settings, cls)

    def bounds(self) -> Bbox:
        """The tile without its buffer, in degrees."""
        west, east = _longitude(self.west), _longitude(self.east)
        return Bbox(west, _latitude(self.south), east, _latitude(self.north))

    def box(self) -> Bbox:
        """The tile with its buffer, in degrees; not smaller than that, whatever is rounded."""
        wide = (self.east - self.west) * (self.buffer / self.extent + _ROUNDING)
        high = (self.north - self.south) * (self.buffer / self.extent + _ROUNDING)
        return Bbox(
            max(_longitude(self.west - wide), -180.0),
            _latitude(self.south - high),
            min(_longitude(self.east + wide), 180.0),
            _latitude(self.north + high),
        )

    def is_flat(self) -> bool:
        """Whether the tile is so small that degrees are as good as metres on it: those between
        its edges are nearly where they were if all of them were equally far apart."""
        box, height = self.bounds(), self.north - self.south
        parts = (0.25, 0.5, 0.75)  # on the equator the middle is always right
        latitudes = (box.south + (box.north - box.south) * part for part in parts)
        off = [
            abs((_y(latitude) - self.south) / height - part)
            for latitude, part in zip(latitudes, parts, strict=True)
        ]
        return max(off) * self.extent <= FLAT_UNITS


def mercator(longitude: float, latitude: float) -> tuple[float, float]:
    """A place on the map; the poles are nowhere."""
    return math.radians(longitude) * EARTH_RADIUS_M, _y(latitude)


def _longitude(x: float) -> float:
    return math.degrees(x / EARTH_RADIUS_M)


def _latitude(y: float) -> float:
    return math.degrees(2 * math.atan(math.exp(y / EARTH_RADIUS_M)) - math.pi / 2)


def _y(latitude: float) -> float:
    return EARTH_RADIUS_M * math.log(math.tan(math.pi / 4 + math.radians(latitude) / 2))
