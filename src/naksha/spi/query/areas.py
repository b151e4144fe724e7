"""Areas of queries: the boxes that stand for them, and shapes that must be tested exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import shapely

from naksha.model.errors import InvalidArgument
from naksha.model.geo import quadkey
from naksha.model.query import Bbox, Intersects, Spatial, Tile

METRES_PER_DEGREE: Final = 110_500.0
"""Slightly less than the shortest degree of latitude, so that boxes are never too small."""

Box = tuple[float, float, float, float]


class Area(msgspec.Struct, frozen=True):
    """Spatial condition: the box of a geometry meets one of `boxes`.

    With `shape`, that only preselects: then the geometry itself must intersect the shape.
    """

    boxes: tuple[Box, ...]
    shape: Intersects | None = None


def area_of(spatial: Spatial) -> Area:
    """Return the area of a spatial condition."""
    shape = spatial if isinstance(spatial, Intersects) else None
    return Area(tuple(boxes_of(spatial)), shape)


def boxes_of(spatial: Spatial | None) -> list[Box]:
    """Return the boxes of which a feature's box must meet one; none without spatial test."""
    if spatial is None:
        return []
    if isinstance(spatial, Tile):
        return [quadkey.bounds(spatial.quadkey)]
    if isinstance(spatial, Bbox):
        return _bbox(spatial)
    west, south, east, north = shapely.bounds(geometry_of(spatial)).tolist()
    if math.isnan(west):
        return [(1.0, 1.0, -1.0, -1.0)]  # an empty geometry: a box that meets nothing
    return [grown((west, south, east, north), spatial.radius)]


def _bbox(box: Bbox) -> list[Box]:
    edges = (box.west, box.south, box.east, box.north)
    if not all(map(math.isfinite, edges)):
        raise InvalidArgument(
            f"The edges of a bounding box must be finite numbers, not {edges}", field="bbox"
        )
    if box.south > box.north:
        raise InvalidArgument(
            f"The south edge {box.south} of a bounding box must not be greater than its north "
            f"edge {box.north}",
            field="bbox",
        )
    if box.west <= box.east:
        return [(box.west, box.south, box.east, box.north)]
    return [(box.west, box.south, 180.0, box.north), (-180.0, box.south, box.east, box.north)]


def union_of(boxes: Sequence[Bbox]) -> Bbox | None:
    """Return the box around all boxes, if there are any."""
    if not boxes:
        return None
    return Bbox(
        min(box.west for box in boxes),
        min(box.south for box in boxes),
        max(box.east for box in boxes),
        max(box.north for box in boxes),
    )


def geometry_of(spatial: Intersects) -> Any:
    """Return the shape of a spatial test."""
    if not (math.isfinite(spatial.radius) and spatial.radius >= 0):
        raise InvalidArgument(
            f"The radius must be a finite number of metres, 0 or more, not {spatial.radius}",
            field="spatial.radius",
        )
    try:
        return shapely.from_wkb(spatial.wkb)
    except (shapely.errors.GEOSException, NotImplementedError) as error:
        raise InvalidArgument(
            f"The geometry of the query is not valid WKB: {error}", field="spatial.wkb"
        ) from None


def grown(box: Box, metres: float) -> Box:
    """Enlarge a box by at least a distance, to all longitudes where necessary."""
    if metres == 0:
        return box
    west, south, east, north = box
    grow = metres / METRES_PER_DEGREE
    south, north = max(south - grow, -90.0), min(north + grow, 90.0)
    shrink = math.cos(math.radians(max(abs(south), abs(north))))
    wide = grow / shrink if shrink > 0.01 else 360.0
    if west - wide < -180.0 or east + wide > 180.0:
        return -180.0, south, 180.0, north
    return west - wide, south, east + wide, north
