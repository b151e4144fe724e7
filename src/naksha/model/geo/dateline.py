"""Splitting of geometries that cross the date line, so that no longitude is outside ±180.

Input comes in two forms: longitudes that continue beyond ±180 (170 to 190), or that jump (170 to
-170). The second form is converted to the first, which is cut at the date line, and the parts are
shifted back. Positions that are not cut keep their doubles; at a cut, latitude and height are
interpolated on the straight line that GeoJSON means. A ring around a pole is closed over the pole
of its hemisphere.

A jump may be meant literally: by RFC 7946 an edge from -170 to 170 passes through Greenwich. Lines
are never taken literally. A polygon is left unchanged if, taken literally, it is valid and its
outer ring is counter-clockwise, as the RFC requires. Invalid geometries are left unchanged; the
storage refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

import shapely

from naksha.model.geo.geometry_rules import geometry_problem

Feature = Mapping[str, Any]
Geometry = dict[str, Any]
Position = Sequence[float]
Path = Sequence[Position]
Rings = Sequence[Path]

_LONGITUDE_MAX: Final = 540.0
"""One turn beyond the date line; a greater number is not a longitude, but perhaps metres."""
_NOT_GEOJSON: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class DatelineChange(StrEnum):
    """How a geometry was changed."""

    WRAPPED = "wrapped"
    SPLIT = "split"


class BoundedGeometry(NamedTuple):
    """A geometry within ±180, and how it was changed, if at all."""

    geometry: Geometry
    change: DatelineChange | None


def bounded_geometry(geometry: Geometry, *, shortest: bool = False) -> BoundedGeometry:
    """Bring one geometry within ±180.

    Returns the very same object if there is nothing to change, or if it is not a valid geometry.

    Args:
        geometry: GeoJSON as sent by a client.
        shortest: Whether the caller knows that no edge spans more than half of the earth.
    """
    try:
        if not _may_cross(geometry):
            return BoundedGeometry(geometry, None)
        if geometry["type"] == "GeometryCollection":
            return _bounded_collection(geometry, shortest)
        return _bounded_simple(geometry, shortest)
    except (*_NOT_GEOJSON, shapely.errors.ShapelyError):
        return BoundedGeometry(geometry, None)


def _bounded_collection(geometry: Geometry, shortest: bool) -> BoundedGeometry:
    members = [bounded_geometry(member, shortest=shortest) for member in geometry["geometries"]]
    changes = {member.change for member in members} - {None}
    if not changes:
        return BoundedGeometry(geometry, None)
    fixed = {**geometry, "geometries": [member.geometry for member in members]}
    return BoundedGeometry(
        fixed, DatelineChange.SPLIT if DatelineChange.SPLIT in changes else DatelineChange.WRAPPED
    )


def _bounded_simple(geometry: Geometry, shortest: bool) -> BoundedGeometry:
    name = geometry["type"]
    single = name.removeprefix("Multi")
    given = geometry["coordinates"] if name != single else [geometry["coordinates"]]
    parts = [part for each in given for part in _CUTS[single](each, shortest)]
    if parts == given:
        return BoundedGeometry(geometry, None)
    many = name != single or len(parts) != 1
    fixed = {
        **geometry,
        "type": f"Multi{single}" if many else single,
        "coordinates": parts if many else parts[0],
    }
    if geometry_problem(fixed) is not None:
        return BoundedGeometry(geometry, None)
    return BoundedGeometry(
        fixed, DatelineChange.SPLIT if len(parts) > len(given) else DatelineChange.WRAPPED
    )


# ---- Fast check ----------------------------------------------------------------------------------


def _may_cross(geometry: Geometry) -> bool:
    """Return whether the geometry reaches beyond ±180, or is so wide that it may have a jump.

    Must be fast: it runs for every geometry that is written.
    """
    if geometry["type"] == "GeometryCollection":
        return any(map(_may_cross, geometry["geometries"]))
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
    """Split a line at each change to another copy of the world."""
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
    """Return whether a position is in a copy of the world, edges included."""
    return abs(position[0] - 360.0 * world) <= 180.0


def _pieces(path: Path) -> Iterator[tuple[Position, Position]]:
    """Yield the edges of a line, split where they cross a date line."""
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
    """Return the path without jumps.

    Each position is shifted to the copy of the world that is nearest to its predecessor. A step of
    exactly one turn is kept, unless `full_turns` is set: it may be the edge of a polygon around the
    whole world.
    """
    unrolled = [path[0]]
    turns = 0
    for before, position in pairwise(path):
        step = position[0] - before[0]
        if abs(step) > 180.0 and (full_turns or step % 360.0 != 0.0):
            turns -= round(step / 360.0)
            if step % 360.0 == 0.0 and position[1:] == before[1:]:
                continue  # The same point on the date line, once as 180 and once as -180.
        unrolled.append(position if turns == 0 else _moved(position, -turns, bounded=False))
    return unrolled


def _world(lon: float) -> int:
    """Return the copy of the world that a longitude is in; 0 is [-180, 180)."""
    return math.floor((lon + 180.0) / 360.0)


def _moved(position: Position, worlds: int, *, bounded: bool = True) -> Position:
    """Shift a position west by `worlds` turns."""
    if worlds == 0:
        return position
    lon = position[0] - 360.0 * worlds
    return [min(max(lon, -180.0), 180.0) if bounded else lon, *position[1:]]


# ---- Polygons ------------------------------------------------------------------------------------


def _cut_polygon(rings: Rings, shortest: bool) -> list[Rings]:
    if not shortest and _is_literal(rings):
        return [rings]
    if not all(map(_is_ring, rings)):
        raise ValueError("a ring of the polygon is not closed: its first and last positions differ")
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


def _is_literal(rings: Rings) -> bool:
    """Return whether a wide polygon is meant literally (see the module)."""
    if any(abs(position[0]) > 180.0 for ring in rings for position in ring):
        return False
    lons = [position[0] for position in rings[0]]
    if max(lons) - min(lons) <= 180.0:
        return True
    polygon = shapely.Polygon(rings[0], rings[1:])
    return bool(polygon.is_valid and shapely.is_ccw(polygon.exterior))


def _closed_over_pole(ring: list[Position]) -> list[Position]:
    """Close a ring that goes once around the earth over the nearer pole, which it encloses."""
    first, last = ring[0], ring[-1]
    if first[0] == last[0]:
        return ring
    pole = math.copysign(90.0, sum(position[1] for position in ring))
    corners = [[last[0], pole, *last[2:]], [first[0], pole, *first[2:]]]
    return [*ring, *corners, first]


def _beside(hole: list[Position], shell: list[Position]) -> list[Position]:
    """Shift a hole to the copy of the world that its shell is in."""
    turns = round((_middle(hole) - _middle(shell)) / 360.0)
    return [_moved(position, turns, bounded=False) for position in hole]


def _middle(path: Path) -> float:
    lons = [position[0] for position in path]
    return (min(lons) + max(lons)) / 2.0


def _worlds_of(polygon: shapely.Geometry) -> list[Rings]:
    """Cut a polygon into its parts in each copy of the world, shifted to [-180, 180]."""
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
        # A polygon all around the earth touches itself after the shift: dissolve the seam.
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
