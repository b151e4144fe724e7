"""Check of WKB from other writers against the rules of `geometry_rules`, in batches.

Geometries that are not obviously valid ("plain") are left to those rules, which locate the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry import mapping

from naksha.model.feature_problems import ProblemError
from naksha.model.geo.geometry import Shapes

SRIDS: Final = (0, 4326)
"""Accepted spatial reference systems: none, or WGS 84."""

CURVED: Final = (
    "is a curve or surface, which GeoJSON does not support; convert it to lines or polygons"
)
MEASURED: Final = "has measures (M), which GeoJSON does not support; remove them"
_POLYGONS: Final = (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON)
_FIRST_MULTI: Final = shapely.GeometryType.MULTIPOINT
_RING_POSITIONS_MIN: Final = 4

Mask = npt.NDArray[np.bool_]
_Index = npt.NDArray[np.int64]


def read_shapes(given: Shapes, read: Callable[..., Any] = shapely.from_wkb) -> Shapes:
    """Parse WKB, or WKT with `shapely.from_wkt`; invalid values and curves become None.

    A single curve makes shapely refuse the whole array, so the array is halved until it is
    isolated.
    """
    try:
        with np.errstate(invalid="ignore"):
            shapes: Shapes = read(given, on_invalid="ignore")
        return shapes
    except NotImplementedError:
        if len(given) == 1:
            return np.array([None], dtype=object)
    middle = len(given) // 2
    return np.concatenate([read_shapes(half, read) for half in (given[:middle], given[middle:])])


def shapes_of(wkbs: Sequence[bytes | None]) -> tuple[Shapes, Mask]:
    """Return the shapes, and a mask of those that are obviously valid.

    A None in the result for an input other than None is an unreadable geometry. Collections are
    never in the mask.
    """
    shapes = read_shapes(np.array(wkbs, dtype=object))
    kinds = shapely.get_type_id(shapes)
    missing = np.array([wkb is None for wkb in wkbs], dtype=np.bool_)
    plain: Mask = np.array(
        (kinds != shapely.GeometryType.GEOMETRYCOLLECTION)
        & ~shapely.is_empty(shapes)
        & ~shapely.has_m(shapes)
        & ((kinds >= 0) & np.isin(shapely.get_srid(shapes), SRIDS) | missing)
    )
    _check_positions(shapes, plain)
    _check_parts(shapes, np.flatnonzero(kinds >= _FIRST_MULTI), plain)
    _check_rings(shapes, np.flatnonzero(np.isin(kinds, _POLYGONS)), plain)
    return shapes, plain


def stored_shapes(wkbs: Sequence[bytes | None]) -> Shapes:
    """Parse stored geometries; unreadable ones become None."""
    shapes = read_shapes(np.array(wkbs, dtype=object))
    numbers, owners = shapely.get_coordinates(shapes, include_z=True, return_index=True)
    bad = ~np.isfinite(numbers[:, :2]).all(axis=1)
    bad |= np.asarray(shapely.has_z(shapes))[owners] & ~np.isfinite(numbers[:, 2])
    shapes[owners[bad]] = None
    return shapes


def geojson_like(wkb: bytes) -> dict[str, Any]:
    """Convert WKB to GeoJSON without further checks, as input for `geometry_rules`.

    Raises:
        Broken: GeoJSON has no equivalent.
    """
    try:
        with np.errstate(invalid="ignore"):
            shape = shapely.from_wkb(wkb)
    except shapely.errors.GEOSException as error:
        raise ProblemError("", f"is not valid WKB: {error}") from None
    except NotImplementedError:
        raise ProblemError("", CURVED) from None
    srid = shapely.get_srid(shape)
    if srid not in SRIDS:
        raise ProblemError("", f"is in the reference system {srid}; transform it to {SRIDS[-1]}")
    if shapely.has_m(shape):
        raise ProblemError("", MEASURED)
    try:
        found: dict[str, Any] = mapping(shape)
    except IndexError:  # an empty point among others
        raise ProblemError("", "has an empty part; remove that part") from None
    return found


def _check_positions(shapes: Shapes, plain: Mask) -> None:
    numbers, owners = shapely.get_coordinates(shapes, include_z=True, return_index=True)
    bad = ~(np.abs(numbers[:, 0]) <= 180.0) | ~(np.abs(numbers[:, 1]) <= 90.0)
    heights = np.asarray(shapely.has_z(shapes))
    if heights.any():
        bad |= heights[owners] & ~np.isfinite(numbers[:, 2])
    plain[owners[bad]] = False


def _check_parts(shapes: Shapes, places: _Index, plain: Mask) -> None:
    """Unmark shapes with empty parts."""
    if len(places):
        parts, owners = shapely.get_parts(shapes[places], return_index=True)
        plain[places[owners[shapely.is_empty(parts)]]] = False


def _check_rings(shapes: Shapes, places: _Index, plain: Mask) -> None:
    """Unmark shapes with rings that are too short, or closed in 2D but not in height."""
    if not len(places):
        return
    polygons, owners = shapely.get_parts(shapes[places], return_index=True)
    rings, of_polygons = shapely.get_rings(polygons, return_index=True)
    bad = shapely.get_num_coordinates(rings) < _RING_POSITIONS_MIN
    raised = np.flatnonzero(shapely.has_z(rings) & ~bad)
    if len(raised):
        heights = [shapely.get_z(shapely.get_point(rings[raised], end)) for end in (0, -1)]
        bad[raised[heights[0] != heights[1]]] = True
    plain[places[owners[of_polygons[bad]]]] = False
