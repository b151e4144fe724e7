"""Geometries that reach over the date line, cut there, so that no longitude is outside ±180.

Two kinds come: longitudes go on beyond ±180 (170 to 190), or they jump (170 to -170). The second
kind is made the first, which is cut at the date line, and the parts are moved back. Positions that
are not cut keep their doubles; at a cut, latitude and height are interpolated on the straight line
that GeoJSON means. A ring round a pole is closed over the pole of its hemisphere.

A jump may be meant as it stands: by RFC 7946 an edge from -170 to 170 leads through Greenwich. Of a
line that is not believed. A polygon is left alone if, as it stands, it is valid and its outer ring
is counter-clockwise, as the same RFC demands. What is no geometry is left to the storage to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import shapely

from naksha.model.feature_problems import readable_id
from naksha.model.geo.geometry_rules import geometry_problem

Feature = Mapping[str, Any]
Geometry = dict[str, Any]
Position = Sequence[float]
Path = Sequence[Position]
Rings = Sequence[Path]

_LONGITUDE_MAX: Final = 540.0
"""One turn beyond the date line; what is greater is no longitude, but perhaps metres."""
_NOT_GEOJSON: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class Change(StrEnum):
    """What was done to a geometry."""

    WRAPPED = "wrapped"
    SPLIT = "split"


class Adjustment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which feature was changed, and how; for whoever wrote it."""

    position: int
    change: Change
    id: str | None = None


class Mended(NamedTuple):
    """A geometry within ±180, and what was done to it, if anything."""

    geometry: Geometry
    change: Change | None


def mend(features: Sequence[Feature]) -> tuple[list[Feature], list[Adjustment]]:
    """Features as a storage takes them, and a report of those that had to be changed."""
    mended: list[Feature] = [*features]
    adjustments = []
    for position, feature in enumerate(features):
        geometry = feature.get("geometry")
        if geometry is None:
            continue
        fixed, change = mended_geometry(geometry)
        if change is not None:
            mended[position] = {**feature, "geometry": fixed}
            adjustments.append(Adjustment(position, change, readable_id(feature.get("id"))))
    return mended, adjustments


def mended_geometry(geometry: Geometry, *, shortest: bool = False) -> Mended:
    """One geometry; the very same one if there is nothing to do, or if it is none.

    Args:
        geometry: GeoJSON, as somebody sent it.
        shortest: Whether it is known that no edge leads more than half round the earth.
    """
    try:
        if not _needs_a_look(geometry):
            return Mended(geometry, None)
        if geometry["type"] == "GeometryCollection":
            return _mended_collection(geometry, shortest)
        return _mended_simple(geometry, shortest)
    except (*_NOT_GEOJSON, shapely.errors.ShapelyError):
        return Mended(geometry, None)


def _mended_collection(geometry: Geometry, shortest: bool) -> Mended:
    members = [mended_geometry(member, shortest=shortest) for member in geometry["geometries"]]
    changes = {member.change for member in members} - {None}
    if not changes:
        return Mended(geometry, None)
    fixed = {**geometry, "geometries": [member.geometry for member in members]}
    return Mended(fixed, Change.SPLIT if Change.SPLIT in changes else Change.WRAPPED)


def _mended_simple(geometry: Geometry, shortest: bool) -> Mended:
    name = geometry["type"]
    single = name.removeprefix("Multi")
    given = geometry["coordinates"] if name != single else [geometry["coordinates"]]
    parts = [part for each in given for part in _CUTS[single](each, shortest)]
    if parts == given:
        return Mended(geometry, None)
    many = name != single or len(parts) != 1
    fixed = {
        **geometry,
        "type": f"Multi{single}" if many else single,
        "coordinates": parts if many else parts[0],
    }
    if geometry_problem(fixed) is not None:
        return Mended(geometry, None)
    return Mended(fixed, Change.SPLIT if len(parts) > len(given) else Change.WRAPPED)


# ---- What must be looked at ----------------------------------------------------------------------


def _needs_a_look(geometry: Geometry) -> bool:
    """Whether something is outside, or so wide that it may have a jump; quick, for it is asked of
    every geometry that is written."""
    if geometry["type"] == "GeometryCollection":
        return any(map(_needs_a_look, geometry["geometries"]))
    wide = outside = False
    for path in _paths(geometry["type"], geometry["coordinates"]):
        lons = [position[0] for position in path]
        west, east = min(lons), max(lons)
        if not -_LONGITUDE_MAX <= west <= east <= _LONGITUDE_MAX:
            return False
        outside = outside or west < -180.0 or east > 180.0
        wide = wide or east - west > 180.0
    return outside or (wide and not geometry["type"].endswith("Point"))


def _paths(name: str, coordinates: Any) -> Iterator[Path]:
    if name == "Point":
        yield [coordinates]
    elif name in ("LineString", "MultiPoint"):
        yield coordinates
    elif name in ("Polygon", "MultiLineString"):
        yield from coordinates
    elif name == "MultiPolygon":
        for polygon in coordinates:
            yield from polygon


# ---- Points and lines ----------------------------------------------------------------------------


def _cut_point(position: Position, _: bool) -> list[Position]:
    if abs(position[0]) <= 180.0:
        return [position]
    return [_moved(position, _world(position[0]))]


def _cut_line(path: Path, _: bool) -> list[list[Position]]:
    """The parts of a line, one for each time that it is in another copy of the world."""
    unrolled = _unrolled(path, full_turns=True)
    lines: list[list[Position]] = []
    last_world: int | None = None
    for start, end in _pieces(unrolled):
        if last_world is None or not (_is_in(start, last_world) and _is_in(end, last_world)):
            last_world = _world((start[0] + end[0]) / 2.0)
            lines.append([_moved(start, last_world)])
        lines[-1].append(_moved(end, last_world))
    return lines


def _is_in(position: Position, world: int) -> bool:
    """Whether it is in a copy of the world, the edges included."""
    return abs(position[0] - 360.0 * world) <= 180.0


def _pieces(path: Path) -> Iterator[tuple[Position, Position]]:
    """The edges of a line, those that cross a date line in several pieces."""
    for start, end in pairwise(path):
        low, high = sorted((start[0], end[0]))
        first, last = math.floor((low + 180.0) / 360.0), math.ceil((high - 180.0) / 360.0)
        edges = [180.0 + 360.0 * turn for turn in range(first, last)]
        inner = [edge for edge in edges if low < edge < high]
        cuts = [_between(start, end, lon) for lon in (inner if start[0] < end[0] else inner[::-1])]
        stops = [start, *cuts, end]
        yield from pairwise(stops)


def _between(start: Position, end: Position, lon: float) -> Position:
    part = (lon - start[0]) / (end[0] - start[0])
    rest = zip(start[1:], end[1:], strict=True)
    return [lon, *(low + (high - low) * part for low, high in rest)]


def _unrolled(path: Path, *, full_turns: bool) -> list[Position]:
    """The path without jumps: each position is taken from the copy of the world that is nearest to
    the one before. A step of exactly one turn stays, unless it is asked for: it may be the edge of
    a polygon round the whole world."""
    unrolled = [path[0]]
    turns = 0
    for before, position in pairwise(path):
        step = position[0] - before[0]
        if abs(step) > 180.0 and (full_turns or step % 360.0 != 0.0):
            turns -= round(step / 360.0)
            if step % 360.0 == 0.0 and position[1:] == before[1:]:
                continue  # One place on the date line, named from both sides.
        unrolled.append(position if turns == 0 else _moved(position, -turns, bounded=False))
    return unrolled


def _world(lon: float) -> int:
    """Which copy of the world a longitude is in, ours being 0."""
    return math.floor((lon + 180.0) / 360.0)


def _moved(position: Position, worlds: int, *, bounded: bool = True) -> Position:
    """A position as it is `worlds` turns further west."""
    if worlds == 0:
        return position
    lon = position[0] - 360.0 * worlds
    return [min(max(lon, -180.0), 180.0) if bounded else lon, *position[1:]]


# ---- Polygons ------------------------------------------------------------------------------------


def _cut_polygon(rings: Rings, shortest: bool) -> list[Rings]:
    if not shortest and _stands_as_it_is(rings):
        return [rings]
    if not all(map(_is_ring, rings)):
        raise ValueError("not closed")
    shell = _closed_over_pole(_unrolled(rings[0], full_turns=False))
    holes = [_beside(_unrolled(ring, full_turns=False), shell) for ring in rings[1:]]
    lons = [position[0] for position in shell]
    world = _world((min(lons) + max(lons)) / 2.0)
    if abs(min(lons) - 360.0 * world) <= 180.0 and abs(max(lons) - 360.0 * world) <= 180.0:
        return [[[_moved(position, world) for position in ring] for ring in (shell, *holes)]]
    polygon = shapely.Polygon(shell, holes)
    return _worlds_of(polygon if polygon.is_valid else shapely.make_valid(polygon))


def _is_ring(path: Path) -> bool:
    first, last = path[0], path[-1]
    return len(path) >= 4 and first[1:] == last[1:] and (first[0] - last[0]) % 360.0 == 0.0


def _stands_as_it_is(rings: Rings) -> bool:
    """Whether a polygon means what it says on the plane, though it is wide."""
    if any(abs(position[0]) > 180.0 for ring in rings for position in ring):
        return False
    lons = [position[0] for position in rings[0]]
    if max(lons) - min(lons) <= 180.0:
        return True
    polygon = shapely.Polygon(rings[0], rings[1:])
    return bool(polygon.is_valid and shapely.is_ccw(polygon.exterior))


def _closed_over_pole(ring: list[Position]) -> list[Position]:
    """A ring that went once round the earth encloses a pole: the nearer one."""
    first, last = ring[0], ring[-1]
    if first[0] == last[0]:
        return ring
    pole = math.copysign(90.0, sum(position[1] for position in ring))
    corners = [[last[0], pole, *last[2:]], [first[0], pole, *first[2:]]]
    return [*ring, *corners, first]


def _beside(hole: list[Position], shell: list[Position]) -> list[Position]:
    """A hole in that copy of the world in which its shell is."""
    turns = round((_middle(hole) - _middle(shell)) / 360.0)
    return [_moved(position, turns, bounded=False) for position in hole]


def _middle(path: Path) -> float:
    lons = [position[0] for position in path]
    return (min(lons) + max(lons)) / 2.0


def _worlds_of(polygon: shapely.Geometry) -> list[Rings]:
    """The parts of a polygon in each copy of the world, moved into ours."""
    west, _, east, _ = polygon.bounds
    parts = []
    for world in range(_world(west), math.ceil((east + 180.0) / 360.0)):
        left = 360.0 * world - 180.0
        piece = shapely.intersection(polygon, shapely.box(left, -91.0, left + 360.0, 91.0))
        parts += [
            _polygon_moved(part, world)
            for part in shapely.get_parts(piece)
            if part.geom_type == "Polygon"
        ]
    if east - west >= 360.0:
        # What went round the earth meets itself again.
        parts = [*shapely.get_parts(shapely.union_all(parts))]
    return [
        [_positions(ring) for ring in (part.exterior, *part.interiors)]
        for part in shapely.orient_polygons(parts)
    ]


def _polygon_moved(polygon: shapely.Geometry, world: int) -> shapely.Geometry:
    rings = [
        [_moved(position, world) for position in _positions(ring)]
        for ring in (polygon.exterior, *polygon.interiors)
    ]
    return shapely.Polygon(rings[0], rings[1:])


def _positions(ring: shapely.Geometry) -> list[list[float]]:
    coordinates: list[list[float]] = shapely.get_coordinates(ring, include_z=ring.has_z).tolist()
    return coordinates


_CUTS: Final[Mapping[str, Callable[[Any, bool], list[Any]]]] = {
    "Point": _cut_point,
    "LineString": _cut_line,
    "Polygon": _cut_polygon,
}
