"""Buffers in metres around shapes, for clipping.

The shape is projected (azimuthal equidistant, centred on the shape, on a spherical earth), where
distances from the centre are exact; there it is buffered and projected back. Far from the centre
the error is a few per cent, which is enough for a clip edge. Queries *within* a distance are
measured by the storage instead.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import shapely

from naksha.model.geo.dateline import bounded_geometry

Floats = npt.NDArray[np.float64]
_EARTH_RADIUS_M: Final = 6_371_008.8
_SEGMENTS: Final = 16
"""Segments per quarter circle."""


def buffered_shape(shape: shapely.Geometry, metres: float) -> shapely.Geometry:
    """Return the shape with a buffer around it, cut in two at the date line."""
    if metres <= 0.0:
        return shape
    west, south, east, north = shape.bounds
    middle = ((west + east) / 2.0, (south + north) / 2.0)
    plane = shapely.transform(shapely.force_2d(shape), lambda at: _to_plane(at, middle))
    wide = shapely.buffer(plane, metres, quad_segs=_SEGMENTS)
    back = shapely.transform(wide, lambda at: _from_plane(at, middle))
    geometry: dict[str, Any] = msgspec.json.decode(shapely.to_geojson(back))
    mended = bounded_geometry(geometry, shortest=True).geometry
    return shapely.make_valid(shapely.from_geojson(msgspec.json.encode(mended)))


def _to_plane(points: Floats, middle: tuple[float, float]) -> Floats:
    """Project to the azimuthal equidistant plane."""
    lon, lat = np.radians(points[:, 0] - middle[0]), np.radians(points[:, 1])
    lat0 = np.radians(middle[1])
    cosine = np.sin(lat0) * np.sin(lat) + np.cos(lat0) * np.cos(lat) * np.cos(lon)
    angle = np.arccos(np.clip(cosine, -1.0, 1.0))
    sine = np.sin(angle)
    scale = np.divide(angle, sine, out=np.ones_like(angle), where=sine > 1e-12)
    x = scale * np.cos(lat) * np.sin(lon)
    y = scale * (np.cos(lat0) * np.sin(lat) - np.sin(lat0) * np.cos(lat) * np.cos(lon))
    return np.column_stack([x, y]) * _EARTH_RADIUS_M


def _from_plane(points: Floats, middle: tuple[float, float]) -> Floats:
    x, y = (points / _EARTH_RADIUS_M).T
    angle = np.hypot(x, y)
    lat0 = np.radians(middle[1])
    scale = np.divide(np.sin(angle), angle, out=np.ones_like(angle), where=angle > 1e-12)
    sine = np.cos(angle) * np.sin(lat0) + y * scale * np.cos(lat0)
    lat = np.degrees(np.arcsin(np.clip(sine, -1.0, 1.0)))
    east = x * scale
    north = np.cos(lat0) * np.cos(angle) - y * scale * np.sin(lat0)
    lon = middle[0] + np.degrees(np.arctan2(east, north))
    return np.column_stack([lon, lat])
