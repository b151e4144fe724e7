"""Features combined into one for maps: those in one small cell, and lines that meet.

Cells are those of the geohash grid, as in XYZ-Hub: the longest geohash whose cell contains a
feature gives its location and its size. A higher strength uses larger cells.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.render.feature_shapes import with_shapes
from naksha.model.state import State

Shapes = npt.NDArray[np.object_]
Feature = dict[str, Any]

_DIGITS: Final = "0123456789bcdefghjkmnpqrstuvwxyz"
_HASH_LENGTH: Final = 20
_AXIS_BITS: Final = _HASH_LENGTH * 5 // 2
_POINT_LENGTH: Final = 9
"""Line ends with the same geohash of this length (5 metres) meet."""
_SMALL: Final = ((20, 7), (60, 6), (100, 0))
"""Pairs of a maximum strength and the geohash length that a feature must exceed to be joined."""
_REGIONS: Final = ((20, 7), (40, 6), (60, 5), (80, 4), (100, 3))
"""Pairs of a maximum strength and the number of leading geohash digits that the ends of joined
lines have in common."""
_STRENGTH_DEFAULT: Final = 50


def geohash(bounds: Sequence[float], length: int = _HASH_LENGTH) -> str:
    """Return the longest geohash whose cell contains a box (west, south, east, north).

    It has at most `length` digits, and exactly that many for a point.
    """
    west, south, east, north = bounds
    first, last = _point_hash(west, south), _point_hash(east, north)
    same = next((at for at in range(_HASH_LENGTH) if first[at] != last[at]), _HASH_LENGTH)
    return first[: min(same, length)]


def _point_hash(lon: float, lat: float) -> str:
    x, y = _bits((lon + 180.0) / 360.0), _bits((lat + 90.0) / 180.0)
    mixed = 0
    for at in reversed(range(_AXIS_BITS)):
        mixed = mixed << 2 | (x >> at & 1) << 1 | (y >> at & 1)
    return "".join(_DIGITS[mixed >> 5 * at & 31] for at in reversed(range(_HASH_LENGTH)))


def _bits(part: float) -> int:
    return min(max(int(part * (1 << _AXIS_BITS)), 0), (1 << _AXIS_BITS) - 1)


# ---- Features in one small cell ------------------------------------------------------------------


def merged(states: Sequence[State], strength: int | None) -> list[State]:
    """Return the union of the features in each small cell, one feature per part of it.

    Each has `groupInfo`: a name of the cell, the number of the part, the number of parts, and the
    number of features it was made of. The first part has the `ids` of these features.
    """
    least = _by_strength(_SMALL, strength)
    some, shapes = with_shapes(states)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for at, bounds in enumerate(shapely.bounds(shapes).tolist()):
        cell = geohash(bounds)
        groups[cell if len(cell) > least else (cell, some[at].id)].append(at)
    return [
        part
        for cell, members in groups.items()
        for part in _united(cell, [some[at].id for at in members], shapes[members])
    ]


def _united(cell: Hashable, ids: list[str], shapes: Shapes) -> Iterator[State]:
    flat = shapely.force_2d(shapes)
    valid = np.where(shapely.is_valid(flat), flat, shapely.make_valid(flat))
    parts = [part for part in shapely.get_parts(shapely.union_all(valid)) if not part.is_empty]
    name = hashlib.blake2b(repr(cell).encode(), digest_size=6).hexdigest()
    for number, part in enumerate(parts, 1):
        properties: Feature = {"ids": ids} if number == 1 else {}
        properties["groupInfo"] = [name, number, len(parts), len(ids)]
        yield _state(f"{name}-{number}", part, properties)


# ---- Lines that meet -----------------------------------------------------------------------------


def line_merged(states: Sequence[State], strength: int | None) -> list[State]:
    """Join lines that continue each other: where exactly two line ends meet.

    A joined line has the `ids` of its parts. Other features stay unchanged.
    """
    some, shapes = with_shapes(states)
    lines = np.flatnonzero(shapely.get_type_id(shapes) == shapely.GeometryType.LINESTRING).tolist()
    groups = _chains(lines, shapes, _by_strength(_REGIONS, strength))
    joined = {at for group in groups for at in group}
    rest = [state for at, state in enumerate(some) if at not in joined]
    return [*rest, *(_chain(group, some, shapes) for group in groups)]


def _chain(group: list[int], states: Sequence[State], shapes: Shapes) -> State:
    ids = sorted(states[at].id for at in group)
    line = shapely.line_merge(shapely.multilinestrings(shapes[group]))
    return _state(ids[-1], line, {"ids": ids})


def _chains(lines: Sequence[int], shapes: Shapes, length: int) -> list[list[int]]:
    """Return groups of lines to join; a line is in one group at most."""
    ends: dict[str, list[int]] = defaultdict(list)
    for at in lines:
        for position in shapely.get_coordinates(shapes[at])[[0, -1]].tolist():
            ends[geohash((*position, *position), _POINT_LENGTH)].append(at)
    groups: dict[int, list[int]] = {at: [at] for at in lines}
    regions: dict[int, str] = {}
    for end, met in sorted(ends.items()):
        if len(met) != 2 or groups[met[0]] is groups[met[1]]:
            continue
        region = end[:length]
        if any(regions.setdefault(at, region) != region for at in met):
            continue  # It continues beyond the region that is joined here.
        one, other = groups[met[0]], groups[met[1]]
        one += other
        groups |= dict.fromkeys(other, one)
    unique = {id(group): group for group in groups.values() if len(group) > 1}
    return [sorted(group) for group in unique.values()]


def _by_strength(table: Sequence[tuple[int, int]], strength: int | None) -> int:
    requested = _STRENGTH_DEFAULT if strength is None else strength
    return next(value for most, value in table if requested <= most)


def _state(id: str, shape: shapely.Geometry, properties: Feature) -> State:
    geometry = msgspec.Raw(shapely.to_geojson(shape).encode())
    feature = {"id": id, "type": "Feature", "geometry": geometry, "properties": properties}
    return State(id, msgspec.json.encode(feature))
