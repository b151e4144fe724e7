"""Exact tests on geometries, many at a time; boxes have sorted out the rest before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.query import Intersects

METRES_PER_DEGREE: Final = 110_500.0
"""A bit less than the shortest degree of latitude, so that boxes come out too large."""
_EQUATOR_M: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_MEAN_M: Final = 6_371_008.8

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def tester_of(spatial: Intersects) -> Callable[[Sequence[bytes | None]], Flags]:
    """A function that tests geometries (WKB)."""
    wanted = shapely.from_wkb(spatial.wkb)
    if spatial.radius == 0:
        shapely.prepare(wanted)

        def meets(wkbs: Sequence[bytes | None]) -> Flags:
            found: Flags = shapely.intersects(
                wanted, shapely.from_wkb(np.array(wkbs, dtype=object))
            )
            return found

        return meets
    project = _projection(wanted)
    flat = shapely.transform(wanted, project)
    shapely.prepare(flat)

    def is_near(wkbs: Sequence[bytes | None]) -> Flags:
        shapes = shapely.from_wkb(np.array(wkbs, dtype=object))
        near: Flags = shapely.dwithin(flat, shapely.transform(shapes, project), spatial.radius)
        return near

    return is_near


def _projection(around: Any) -> Callable[[Floats], Floats]:
    """Metres around a geometry: distances from its middle are true, others nearly so."""
    west, south, east, north = shapely.bounds(around).tolist()
    lon0, lat0 = math.radians((west + east) / 2), math.radians((south + north) / 2)
    e2 = _FLATTENING * (2 - _FLATTENING)
    bend = 1 - e2 * math.sin(lat0) ** 2
    # The spheroid is bent differently along the meridian and across it.
    across = _EQUATOR_M / math.sqrt(bend) / _MEAN_M
    along = _EQUATOR_M * (1 - e2) / bend**1.5 / _MEAN_M

    def project(coordinates: Floats) -> Floats:
        lon, lat = np.radians(coordinates[:, 0]) - lon0, np.radians(coordinates[:, 1])
        cosine = math.sin(lat0) * np.sin(lat) + math.cos(lat0) * np.cos(lat) * np.cos(lon)
        angle = np.arccos(np.clip(cosine, -1.0, 1.0))
        # Near the middle the quotient is 1, and its formula is not.
        stretch = np.where(angle < 1e-9, 1.0, angle / np.maximum(np.sin(angle), 1e-12))
        x = stretch * np.cos(lat) * np.sin(lon)
        y = stretch * (math.cos(lat0) * np.sin(lat) - math.sin(lat0) * np.cos(lat) * np.cos(lon))
        return np.column_stack([x * _MEAN_M * across, y * _MEAN_M * along])

    return project


def grown(
    box: tuple[float, float, float, float], metres: float
) -> tuple[float, float, float, float]:
    """The box grown by a distance, generously; the whole circle of longitude where it must be."""
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
