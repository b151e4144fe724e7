"""Brute-force evaluation of queries: slow, short, and correct by inspection.

A storage's indices, SQL and query rewriting can all be wrong in ways that only show on unusual
data. The suites compare its results with these functions, applied to the storage's own full
listing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, assert_never

import shapely
from shapely.geometry import shape

from naksha.model import query as q
from naksha.model.state import XYZ, State
from naksha.testing.models.json_values import ABSENT, contains, get_path, is_number, same

EARTH_RADIUS_M = 6_371_008.8
Bounds = tuple[float, float, float, float]
"""West, south, east, north."""


def select(states: Iterable[State], query: q.Query) -> list[State]:
    """Return the states that pass the query's filters; `states`, limit and cursor are ignored."""
    return [state for state in states if matches(state.feature, query)]


def matches(feature: dict[str, Any], query: q.Query) -> bool:
    """Return whether one state, as GeoJSON with its namespace, passes all filters of a query."""
    xyz = feature["properties"][XYZ]
    return (
        _one_of(feature["id"], query.ids)
        and (query.part is None or query.part.has(feature["id"]))
        and _one_of(xyz["author"], query.authors)
        and _one_of(xyz["appId"], query.app_ids)
        and _one_of(xyz["action"], query.actions)
        and _prefixed(xyz.get("mrid"), query.mrid_prefix)
        and _prefixed(xyz.get("qrid"), query.qrid_prefix)
        and _between(int(xyz["createdAt"]), query.created_from, query.created_to)
        and _between(int(xyz["updatedAt"]), query.updated_from, query.updated_to)
        and _between(int(xyz["txn"]), query.txn_from, query.txn_to)
        and _tagged(set(xyz.get("tags") or ()), query.tags)
        and (query.where is None or holds(feature, query.where))
        and (query.spatial is None or meets(feature.get("geometry"), query.spatial))
    )


def _one_of(value: str, wanted: tuple[str, ...] | None) -> bool:
    return wanted is None or value in wanted


def _prefixed(value: str | None, prefix: str | None) -> bool:
    return prefix is None or (value is not None and value.startswith(prefix))


def _between(value: int, first: int | None, end: int | None) -> bool:
    return (first is None or value >= first) and (end is None or value < end)


def _tagged(tags: set[str], wanted: tuple[tuple[str, ...], ...] | None) -> bool:
    return wanted is None or any(set(group) <= tags for group in wanted)


def holds(feature: dict[str, Any], predicate: q.Predicate) -> bool:
    """Return whether a predicate is true of a feature."""
    match predicate:
        case q.And(parts):
            return all(holds(feature, part) for part in parts)
        case q.Or(parts):
            return any(holds(feature, part) for part in parts)
        case q.Not(part):
            return not holds(feature, part)
        case q.Test(path, op, value):
            return compare(get_path(feature, path), op, value)
        case _:
            assert_never(predicate)


def compare(found: object, op: q.Op, value: object) -> bool:
    """Return whether `found op value` is true; for an absent property it never is."""
    if found is ABSENT:
        return False
    match op:
        case q.Op.EXISTS:
            return True
        case q.Op.IS_NULL:
            return found is None
        case q.Op.EQ:
            return same(found, value)
        case q.Op.NE:
            return not same(found, value)
        case q.Op.CONTAINS:
            return contains(found, value)
        case q.Op.STARTS_WITH:
            return isinstance(found, str) and isinstance(value, str) and found.startswith(value)
        case q.Op.ANY_STARTS_WITH:
            return isinstance(found, list) and any(
                compare(one, q.Op.STARTS_WITH, value) for one in found
            )
        case q.Op.LT | q.Op.LTE | q.Op.GT | q.Op.GTE:
            return _ordered(found, op, value)
        case _:
            assert_never(op)


def _ordered(found: Any, op: q.Op, value: Any) -> bool:
    numbers = is_number(found) and is_number(value)
    if not (numbers or (isinstance(found, str) and isinstance(value, str))):
        return False
    equal = same(found, value)
    less = not equal and bool(found < value)
    return {
        q.Op.LT: less,
        q.Op.LTE: less or equal,
        q.Op.GT: not (less or equal),
        q.Op.GTE: not less,
    }[op]


def bounds_of(geometry: dict[str, Any] | None) -> Bounds | None:
    """Return the 2D bounding box of a GeoJSON geometry, by looking at every position.

    Of a polygon only the outer ring counts, as everywhere: holes lie inside it, or the polygon is
    invalid.
    """
    if geometry is None:
        return None
    positions = list(_positions(geometry))
    lons, lats = [p[0] for p in positions], [p[1] for p in positions]
    return (min(lons), min(lats), max(lons), max(lats))


def _positions(geometry: dict[str, Any]) -> Iterable[list[float]]:
    if geometry["type"] == "GeometryCollection":
        for member in geometry["geometries"]:
            yield from _positions(member)
    elif geometry["type"] == "Polygon":
        yield from geometry["coordinates"][0]
    elif geometry["type"] == "MultiPolygon":
        for polygon in geometry["coordinates"]:
            yield from polygon[0]
    else:
        yield from _flat(geometry["coordinates"])


def _flat(coordinates: Any) -> Iterable[list[float]]:
    if is_number(coordinates[0]):
        yield coordinates
    else:
        for member in coordinates:
            yield from _flat(member)


def union(boxes: Iterable[Bounds | None]) -> Bounds | None:
    """Return the union of all given boxes; missing boxes are skipped."""
    present = [box for box in boxes if box is not None]
    if not present:
        return None
    wests, souths, easts, norths = zip(*present, strict=True)
    return (min(wests), min(souths), max(easts), max(norths))


def meets(geometry: dict[str, Any] | None, spatial: q.Spatial) -> bool:
    """Return whether a geometry passes a spatial test; a null geometry passes none."""
    box = bounds_of(geometry)
    if geometry is None or box is None:
        return False
    match spatial:
        case q.Bbox(west, south, east, north):
            return any(_boxes_meet(box, part) for part in _parts(west, south, east, north))
        case q.Tile(quadkey):
            return _boxes_meet(box, cell(quadkey))
        case q.Intersects(wkb, radius):
            return _intersects(geometry, wkb, radius)
        case _:
            assert_never(spatial)


def _parts(west: float, south: float, east: float, north: float) -> list[Bounds]:
    if west <= east:
        return [(west, south, east, north)]
    return [(west, south, 180.0, north), (-180.0, south, east, north)]


def _boxes_meet(one: Bounds, other: Bounds) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


def cell(quadkey: str) -> Bounds:
    """Return the cell of a quad key, by halving the world digit by digit."""
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    for digit in quadkey:
        lon, lat = (west + east) / 2, (south + north) / 2
        west, east = (lon, east) if digit in "13" else (west, lon)
        south, north = (south, lat) if digit in "23" else (lat, north)
    return (west, south, east, north)


def quad_key(lon: float, lat: float, digits: int = 18) -> str:
    """Return the quad key of a position: the digits of its column and row, highest bit first."""
    cells = 2**digits
    column = min(math.floor((lon + 180.0) / 360.0 * cells), cells - 1)
    row = min(math.floor((90.0 - lat) / 180.0 * cells), cells - 1)
    return "".join(
        str(2 * (row >> bit & 1) + (column >> bit & 1)) for bit in reversed(range(digits))
    )


def quad_key_of(geometry: dict[str, Any] | None) -> str | None:
    """Return the quad key of the centre of a geometry's bounding box."""
    box = bounds_of(geometry)
    return None if box is None else quad_key((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)


def _intersects(geometry: dict[str, Any], wkb: bytes, radius: float) -> bool:
    mine, other = shape(geometry), shapely.from_wkb(wkb)
    if radius == 0.0:
        return bool(shapely.intersects(mine, other))
    if mine.geom_type == "Point" and other.geom_type == "Point":
        return distance_m(mine.x, mine.y, other.x, other.y) <= radius
    raise ValueError("The brute-force model supports distances between points only")


def distance_m(lon: float, lat: float, other_lon: float, other_lat: float) -> float:
    """Return the distance on a sphere, within half a percent of the one on the spheroid."""
    a, b = math.radians(lat), math.radians(other_lat)
    half = math.sin((b - a) / 2) ** 2
    half += math.cos(a) * math.cos(b) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))
