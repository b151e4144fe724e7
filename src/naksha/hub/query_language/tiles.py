"""Tile ids of four schemes, and H3 hexagons, as areas on earth.

`quadkey`, `web` and `tms` name tiles of Web Mercator: by one digit per level, and by `level_x_y`
counted from the north or, in `tms`, from the south. Tiles of `here` are squares of degrees counted
from the south-west. They are named by one digit per level, by this key with a leading 1 written as
a decimal number, or by `level_x_y`.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from itertools import pairwise
from typing import Final

import h3
import msgspec
import numpy as np
import shapely

from naksha.model.errors import InvalidArgument
from naksha.model.geo.dateline import bounded_geometry
from naksha.model.limits import TILE_LEVEL_MAX
from naksha.model.query import Bbox

TILE_PIXELS: Final = 256
"""Pixels per tile, the unit of a tile's margin."""

_POLAR_LATITUDE: Final = 75.0
_POLAR_EDGES: Final = 32
"""Number of parts that a hexagon's edge near a pole is divided into."""

_WEB_ADDRESS: Final = re.compile(r"([0-9]{1,2})_([0-9]{1,10})_([0-9]{1,10})")
_QUADKEY: Final = re.compile("[0-3]*")
_DECIMAL: Final = re.compile("[1-9][0-9]{0,19}")


class Scheme(StrEnum):
    """Numbering scheme of tiles."""

    QUADKEY = "quadkey"
    WEB = "web"
    TMS = "tms"
    HERE = "here"


_SCHEMES: Final = {**{scheme.value: scheme for scheme in Scheme}, "quadkeys": Scheme.QUADKEY}
"""Schemes by name; `quadkeys` is the name used by the Python client."""


class TileFormat(StrEnum):
    """Response format of a tile."""

    GEOJSON = "geojson"
    MVT = "mvt"
    MVT_FLAT = "mvtf"


_FORMATS: Final = {
    "geojson": TileFormat.GEOJSON,
    "json": TileFormat.GEOJSON,
    "mvt": TileFormat.MVT,
    "mvt2": TileFormat.MVT,
    "mvtf": TileFormat.MVT_FLAT,
    "mvtf2": TileFormat.MVT_FLAT,
}


class MapTile(msgspec.Struct, frozen=True):
    """A tile of Web Mercator, `y` from the north, or a square of degrees, `y` from the south."""

    level: int
    x: int
    y: int
    mercator: bool = True

    @property
    def quadkey(self) -> str:
        """One digit per level, which adds 1 for the higher `x` and 2 for the higher `y`."""
        levels = reversed(range(self.level))
        return "".join(str((self.y >> level & 1) << 1 | self.x >> level & 1) for level in levels)

    def box(self, margin_pixels: int = 0) -> Bbox:
        """Return the area of the tile with a margin, cut at the edge of the world."""
        margin = margin_pixels / TILE_PIXELS
        first = (max(self.x - margin, 0.0), max(self.y - margin, 0.0))
        end = (self.x + 1 + margin, self.y + 1 + margin)
        return self._mercator_box(first, end) if self.mercator else self._degree_box(first, end)

    def search_box(self, margin_pixels: int = 0) -> Bbox:
        """Return the box to search for the features of the tile.

        Squares of degrees do not overlap: without a margin, the northern and the eastern edge
        belong to the neighbours.
        """
        box = self.box(margin_pixels)
        if self.mercator or margin_pixels:
            return box
        east = box.east if box.east >= 180.0 else math.nextafter(box.east, -math.inf)
        north = box.north if box.north >= 90.0 else math.nextafter(box.north, -math.inf)
        return Bbox(box.west, box.south, east, north)

    def _mercator_box(self, first: tuple[float, float], end: tuple[float, float]) -> Bbox:
        count = 1 << self.level
        return Bbox(
            west=first[0] / count * 360.0 - 180.0,
            south=_latitude(min(end[1] / count, 1.0)),
            east=min(end[0] / count, 1.0) * 360.0 - 180.0,
            north=_latitude(first[1] / count),
        )

    def _degree_box(self, first: tuple[float, float], end: tuple[float, float]) -> Bbox:
        size = 360.0 / (1 << self.level)
        return Bbox(
            west=first[0] * size - 180.0,
            south=first[1] * size - 90.0,
            east=min(end[0] * size - 180.0, 180.0),
            north=min(end[1] * size - 90.0, 90.0),
        )


def parse_tile(scheme: str, tile_id: str) -> MapTile:
    """Parse a tile id of a scheme."""
    known = _SCHEMES.get(scheme)
    if known is None:
        raise InvalidArgument(
            f"{scheme!r:.64} is not a tile type; use one of {', '.join(Scheme)}", field="type"
        )
    tile = _of_address(known, tile_id) if "_" in tile_id else _of_key(known, tile_id)
    if not _is_on_earth(tile):
        raise InvalidArgument(
            f"{tile_id!r:.64} is a tile of the type {known} that lies outside of the map; its "
            "column and row must exist at its level",
            field="tileId",
        )
    return tile


def split_suffix(tile_id: str) -> tuple[str, TileFormat | None]:
    """Split a tile id from the format suffix, if it has one."""
    name, dot, suffix = tile_id.partition(".")
    if not dot:
        return tile_id, None
    if suffix not in _FORMATS:
        raise InvalidArgument(
            f"{suffix!r:.64} is not a tile format; use one of {', '.join(_FORMATS)}",
            field="tileId",
        )
    return name, _FORMATS[suffix]


def level_of_box(box: Bbox) -> int:
    """Return the level whose tiles are about as large as the box."""
    width = box.east - box.west if box.west <= box.east else box.east - box.west + 360.0
    size = max(width, box.north - box.south, 1e-9)
    return min(max(round(math.log2(360.0 / size)), 0), TILE_LEVEL_MAX)


def tiles_over(box: Bbox, level: int) -> list[MapTile]:
    """Return the tiles of Web Mercator at a level that overlap a box."""
    count = 1 << level
    first, last = _row(box.north, count), _row(box.south, count)
    start, end = _column(box.west, count), _column(box.east, count)
    columns = [*range(start, end + 1)] if start <= end else [*range(start, count), *range(end + 1)]
    if box.west > box.east and start <= end:
        columns = [*range(count)]
    return [MapTile(level, x, y) for y in range(first, last + 1) for x in columns]


def hexagon(index: str) -> shapely.Geometry:
    """Return the H3 cell with an index, cut in two where it crosses the date line."""
    try:
        boundary = h3.cell_to_boundary(index)
    except (h3.H3BaseException, OverflowError, ValueError):
        raise InvalidArgument(
            f"{index!r:.64} is not an H3 index; use for example 8a2a1072b59ffff", field="h3Index"
        ) from None
    ring = [[lon, lat] for lat, lon in (*boundary, boundary[0])]
    if max(abs(lat) for lat, _ in boundary) > _POLAR_LATITUDE:
        ring = _along_great_circles(ring)
    mended = bounded_geometry({"type": "Polygon", "coordinates": [ring]}, shortest=True)
    return shapely.from_geojson(msgspec.json.encode(mended.geometry))


def _along_great_circles(ring: list[list[float]]) -> list[list[float]]:
    """Add positions to a ring, so that its edges on the map follow great circles.

    Near a pole a great circle is far from straight on the map.
    """
    angles = np.radians(np.array(ring))
    lons, lats = angles[:, 0], angles[:, 1]
    places = np.column_stack(
        [np.cos(lats) * np.cos(lons), np.cos(lats) * np.sin(lons), np.sin(lats)]
    )
    parts = np.linspace(0.0, 1.0, _POLAR_EDGES, endpoint=False)[:, None]
    chords = [start + (end - start) * parts for start, end in pairwise(places)]
    x, y, z = np.concatenate([*chords, places[-1:]]).T
    fine = np.degrees([np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))]).T
    fine[-1] = fine[0]
    positions: list[list[float]] = fine.tolist()
    return positions


def _latitude(down: float) -> float:
    """Return the latitude at a fraction of the way from the north to the south end of the map."""
    return math.degrees(math.atan(math.sinh(math.pi * (1.0 - 2.0 * down))))


def _column(lon: float, count: int) -> int:
    return min(max(math.floor((lon + 180.0) / 360.0 * count), 0), count - 1)


def _row(lat: float, count: int) -> int:
    sine = math.sin(math.radians(min(max(lat, -89.0), 89.0)))
    down = 0.5 - math.atanh(sine) / (2.0 * math.pi)
    return min(max(math.floor(down * count), 0), count - 1)


def _of_address(scheme: Scheme, address: str) -> MapTile:
    found = _WEB_ADDRESS.fullmatch(address)
    if found is None or scheme is Scheme.QUADKEY:
        raise _unreadable(scheme, address)
    level, x, y = map(int, found.groups())
    if scheme is Scheme.TMS:
        y = (1 << level) - 1 - y
    return MapTile(level, x, y, scheme is not Scheme.HERE)


def _of_key(scheme: Scheme, key: str) -> MapTile:
    if scheme is Scheme.HERE:
        return _of_here_key(key)
    if scheme is not Scheme.QUADKEY or not _is_quadkey(key):
        raise _unreadable(scheme, key)
    return _of_digits(key, mercator=True)


def _of_here_key(key: str) -> MapTile:
    if key and _is_quadkey(key):
        tile = _of_digits(key, mercator=False)
        if _is_on_earth(tile):
            return tile
    if not _DECIMAL.fullmatch(key) or int(key).bit_length() % 2 == 0:
        raise _unreadable(Scheme.HERE, key)
    number = int(key)
    levels = number.bit_length() // 2
    digits = "".join(str(number >> 2 * level & 3) for level in reversed(range(levels)))
    return _of_digits(digits, mercator=False)


def _is_quadkey(key: str) -> bool:
    return len(key) <= TILE_LEVEL_MAX and _QUADKEY.fullmatch(key) is not None


def _of_digits(key: str, *, mercator: bool) -> MapTile:
    x = y = 0
    for digit in map(int, key):
        x, y = x << 1 | digit & 1, y << 1 | digit >> 1
    return MapTile(len(key), x, y, mercator)


def _is_on_earth(tile: MapTile) -> bool:
    """Whether the tile exists; squares of degrees have half as many rows as columns, at least 1."""
    if not 0 <= tile.level <= TILE_LEVEL_MAX:
        return False
    columns = 1 << tile.level
    rows = columns if tile.mercator else max(columns // 2, 1)
    return 0 <= tile.x < columns and 0 <= tile.y < rows


def _unreadable(scheme: Scheme, tile_id: str) -> InvalidArgument:
    example = {
        Scheme.QUADKEY: "1202102332",
        Scheme.WEB: "10_550_335",
        Scheme.TMS: "10_550_688",
        Scheme.HERE: "377894440, 12201203120220 or 14_8800_6486",
    }[scheme]
    return InvalidArgument(
        f"{tile_id!r:.64} is not a valid {scheme} tile id; use for example {example}",
        field="tileId",
    )
