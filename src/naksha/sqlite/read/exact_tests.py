"""Exact spatial tests on batches of geometries that passed the bounding-box filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.geo.wkb_rules import stored_shapes
from naksha.model.query import Intersects

_EQUATOR_M: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_MEAN_M: Final = 6_371_008.8

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def tester_of(spatial: Intersects) -> Callable[[Sequence[bytes | None]], Flags]:
    """Return a function that tests a batch of geometries (WKB)."""
    wanted = shapely.from_wkb(spatial.wkb)
    if spatial.radius == 0:
        shapely.prepare(wanted)

        def meets(wkbs: Sequence[bytes | None]) -> Flags:
            found: Flags = shapely.intersects(wanted, stored_shapes(wkbs))
            return found

        return meets
    project = _projection(wanted)
    flat = shapely.transform(wanted, project)
    shapely.prepare(flat)

    def is_near(wkbs: Sequence[bytes | None]) -> Flags:
        shapes = shapely.transform(stored_shapes(wkbs), project)
        near: Flags = shapely.dwithin(flat, shapes, spatial.radius)
        return near

    return is_near


def _projection(around: Any) -> Callable[[Floats], Floats]:
    """Return a projection to metres (azimuthal equidistant) centred on a geometry.

    Distances from the centre are exact, others nearly so.
    """
    west, south, east, north = shapely.bounds(around).tolist()
    lon0, lat0 = math.radians((west + east) / 2), math.radians((south + north) / 2)
    e2 = _FLATTENING * (2 - _FLATTENING)
    bend = 1 - e2 * math.sin(lat0) ** 2
    # The radius of curvature of the spheroid differs along the meridian and across it.
    across = _EQUATOR_M / math.sqrt(bend) / _MEAN_M
    along = _EQUATOR_M * (1 - e2) / bend**1.5 / _MEAN_M

    def project(coordinates: Floats) -> Floats:
        lon, lat = np.radians(coordinates[:, 0]) - lon0, np.radians(coordinates[:, 1])
        cosine = math.sin(lat0) * np.sin(lat) + math.cos(lat0) * np.cos(lat) * np.cos(lon)
        angle = np.arccos(np.clip(cosine, -1.0, 1.0))
        # Near the centre the quotient tends to 1, but computing it would divide by zero.
        stretch = np.where(angle < 1e-9, 1.0, angle / np.maximum(np.sin(angle), 1e-12))
        x = stretch * np.cos(lat) * np.sin(lon)
        y = stretch * (math.cos(lat0) * np.sin(lat) - math.sin(lat0) * np.cos(lat) * np.cos(lon))
        return np.column_stack([x * _MEAN_M * across, y * _MEAN_M * along])

    return project
