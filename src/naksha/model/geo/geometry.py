"""Conversion of GeoJSON geometries to WKB and back, in batches, with every double kept exactly.

Coordinates are flattened type by type into arrays, checked there and passed to shapely as ragged
arrays: several times faster than parsing GeoJSON text, and without rounding.  `geometry_rules`
locates the error when a geometry is invalid.  Members other than `type`, `coordinates` and
`geometries` (`crs`, `bbox`) are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.feature_problems import invalid_feature
from naksha.model.geo.geometry_rules import (
    COLLECTION,
    COUNTS_MIN,
    RINGED,
    geometry_problem,
    is_array_type,
    is_number_type,
)
from naksha.model.geo.quadkey import qrids
from naksha.model.limits import GEOMETRY_DEPTH_MAX

_TYPES: Final[Mapping[str, shapely.GeometryType]] = {
    "Point": shapely.GeometryType.POINT,
    "MultiPoint": shapely.GeometryType.MULTIPOINT,
    "LineString": shapely.GeometryType.LINESTRING,
    "Polygon": shapely.GeometryType.POLYGON,
    "MultiLineString": shapely.GeometryType.MULTILINESTRING,
    "MultiPolygon": shapely.GeometryType.MULTIPOLYGON,
}

Shapes = npt.NDArray[np.object_]
_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Geometries:
    """Parallel lists with one entry per feature; a feature without geometry has None and False."""

    wkb: list[bytes | None]
    """ISO WKB, little-endian, with Z only if the geometry has heights."""
    has_z: list[bool]
    qrid: list[str | None]
    """The quad key of the centre of the 2D bounding box.  As in PostGIS, the box of a polygon is
    that of its outer ring: parts of an invalid polygon's holes outside of that ring do not
    count."""


class _Invalid(Exception):
    """Internal: a geometry breaks a rule; `geometry_rules` determines which one and where."""


def encode_geometries(features: Sequence[Mapping[str, Any]]) -> Geometries:
    """Check and encode the geometries of GeoJSON features."""
    geometries = [feature.get("geometry") for feature in features]
    try:
        shapes = _build(geometries)
    except (_Invalid, AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
        _raise_first_problem(features, geometries)
        raise AssertionError("a geometry was refused although it breaks no rule") from error
    return Geometries(wkb_of(shapes), shapely.has_z(shapes).tolist(), qrids_of(shapes))


def geojson_of(wkb: bytes) -> dict[str, Any]:
    """Convert WKB to a GeoJSON geometry, the exact inverse of the encoding."""
    geometry: dict[str, Any] = msgspec.json.decode(shapely.to_geojson(shapely.from_wkb(wkb)))
    return geometry


def geojson_texts(wkbs: Sequence[bytes | None]) -> list[str | None]:
    """Convert many WKBs to GeoJSON texts, as exactly as `geojson_of`."""
    texts: list[str | None] = shapely.to_geojson(
        shapely.from_wkb(np.array(wkbs, dtype=object))
    ).tolist()
    return texts


def _raise_first_problem(features: Sequence[Mapping[str, Any]], geometries: list[Any]) -> None:
    for position, geometry in enumerate(geometries):
        problem = None if geometry is None else geometry_problem(geometry)
        if problem is not None:
            raise invalid_feature(problem.below("geometry"), features[position], position)


def wkb_of(shapes: Shapes) -> list[bytes | None]:
    wkb: list[bytes | None] = shapely.to_wkb(
        shapes, output_dimension=3, byte_order=1, include_srid=False, flavor="iso"
    ).tolist()
    return wkb


def qrids_of(shapes: Shapes) -> list[str | None]:
    present = ~shapely.is_missing(shapes)
    west, south, east, north = shapely.bounds(shapes[present]).reshape(-1, 4).T
    keys = qrids((west + east) / 2.0, (south + north) / 2.0)
    if len(keys) == len(shapes):
        return [*keys]
    every = np.full(len(shapes), None, dtype=object)
    every[present] = keys
    found: list[str | None] = every.tolist()
    return found


def _build(geometries: Sequence[Any]) -> Shapes:
    """Build the shapes of top-level geometries, where None is allowed."""
    places = [place for place, geometry in enumerate(geometries) if geometry is not None]
    shapes = np.full(len(geometries), None, dtype=object)
    if places:
        shapes[places] = _build_all([geometries[place] for place in places], 1)
    return shapes


def _build_all(geometries: list[Mapping[str, Any]], depth: int) -> Shapes:
    names = [geometry["type"] for geometry in geometries]
    distinct = set(names)
    if len(distinct) == 1:
        return _build_type(names[0], geometries, depth)
    shapes = np.full(len(geometries), None, dtype=object)
    for wanted in distinct:
        places = [place for place, name in enumerate(names) if name == wanted]
        shapes[places] = _build_type(wanted, [geometries[place] for place in places], depth)
    return shapes


def _build_type(name: str, geometries: list[Mapping[str, Any]], depth: int) -> Shapes:
    if name == COLLECTION:
        return _build_collections([geometry["geometries"] for geometry in geometries], depth)
    return _build_simple(name, [geometry["coordinates"] for geometry in geometries])


def _build_collections(collections: list[Any], depth: int) -> Shapes:
    if depth > GEOMETRY_DEPTH_MAX:
        raise _Invalid
    counts = _counts(collections, 1)
    members = _build_all(list(chain.from_iterable(collections)), depth + 1)
    with_z = np.add.reduceat(shapely.has_z(members).astype(np.int64), _starts(counts))
    if not np.all((with_z == 0) | (with_z == counts)):
        raise _Invalid
    owners = np.repeat(np.arange(len(collections)), counts)
    shapes: Shapes = shapely.geometrycollections(members, indices=owners)
    return shapes


def _build_simple(name: str, coordinates: list[Any]) -> Shapes:
    counts, positions = _flatten(COUNTS_MIN[name], coordinates)
    lengths = set(map(len, positions))
    if lengths == {2, 3}:
        return _build_by_dimension(name, coordinates)
    if lengths not in ({2}, {3}):
        raise _Invalid
    numbers = _numbers(positions, lengths.pop())
    if name in RINGED:
        _check_rings(numbers, counts[-1])
    offsets = [np.concatenate(([0], np.cumsum(level))) for level in reversed(counts)]
    shapes: Shapes = shapely.from_ragged_array(_TYPES[name], numbers, tuple(offsets) or None)
    return shapes


def _build_by_dimension(name: str, coordinates: list[Any]) -> Shapes:
    """Build 2D and 3D geometries separately; a geometry that mixes both fails in its half."""
    flat = np.array([_dimension(name, each) == 2 for each in coordinates])
    if flat.all() or not flat.any():
        raise _Invalid
    shapes = np.full(len(coordinates), None, dtype=object)
    for places in (np.flatnonzero(flat), np.flatnonzero(~flat)):
        shapes[places] = _build_simple(name, [coordinates[place] for place in places])
    return shapes


def _dimension(name: str, coordinates: Any) -> int:
    for _ in COUNTS_MIN[name]:
        coordinates = coordinates[0]
    return len(coordinates)


def _flatten(counts_min: tuple[int, ...], level: list[Any]) -> tuple[list[_Counts], list[Any]]:
    """Return the member counts of all arrays level by level, and all positions in sequence."""
    counts = []
    for count_min in counts_min:
        counts.append(_counts(level, count_min))
        level = list(chain.from_iterable(level))
    if not all(map(is_array_type, set(map(type, level)))):
        raise _Invalid
    return counts, level


def _counts(arrays: list[Any], count_min: int) -> _Counts:
    if not all(map(is_array_type, set(map(type, arrays)))):
        raise _Invalid
    counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
    if counts.min() < count_min:
        raise _Invalid
    return counts


def _numbers(positions: list[Any], dimension: int) -> _Floats:
    """Return all positions as one array of finite doubles within the bounds of the earth."""
    flat = list(chain.from_iterable(positions))
    if not all(map(is_number_type, set(map(type, flat)))):
        raise _Invalid
    numbers = np.array(flat, dtype=np.float64).reshape(-1, dimension)
    if not (
        np.isfinite(numbers).all()
        and np.abs(numbers[:, 0]).max() <= 180.0
        and np.abs(numbers[:, 1]).max() <= 90.0
    ):
        raise _Invalid
    return numbers


def _check_rings(numbers: _Floats, counts: _Counts) -> None:
    starts = _starts(counts)
    if not np.array_equal(numbers[starts], numbers[starts + counts - 1]):
        raise _Invalid


def _starts(counts: _Counts) -> _Counts:
    return np.cumsum(counts) - counts
