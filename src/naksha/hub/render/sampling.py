"""Reduction of map responses: a sample of the features, or geometries with fewer coordinates.

A sample is selected by a hash of the feature's id. So it is stable, equal in all tiles that contain
the feature, evenly spread, and a stronger sample is a subset of a weaker one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.query_language.clustering import Simplification, SimplificationAlgorithm
from naksha.model.query import Bbox

Shapes = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]

_RATIOS: Final = (
    (1, 1 / 3),
    (5, 1 / 4),
    (10, 1 / 8),
    (30, 1 / 32),
    (50, 1 / 128),
    (75, 1 / 1024),
    (100, 1 / 4096),
)
"""Pairs of a maximum strength and the part of the features that is kept."""
_PERIMETERS: Final = ((5, 0.001), (10, 0.002), (30, 0.004), (50, 0.008), (75, 0.01), (100, 0.05))
"""Pairs of a maximum strength and the minimum perimeter of a feature's box in degrees."""
_TOLERANCES: Final = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""Degrees at the strengths 1, 26, 51, 76 and (hypothetically) 101, interpolated in between."""
_UNITS: Final = 4096
"""Units per width of the area if no strength of simplification is given."""
_TILE_UNITS: Final = 2048
"""Units per width of a tile."""
_VISUAL_THOUSANDS: Final = {"high": 15, "med": 30, "low": 70, "off": None}
_HASHES: Final = 2**64


def sampling_ratio(strength: int) -> float:
    """Return the part of the features that is kept."""
    return next(ratio for most, ratio in _RATIOS if strength <= most)


def ensuring_ratio(count: int, thousands: int | None) -> float:
    """Return the part of `count` features to keep, so that they do not exceed the limit."""
    return 1.0 if thousands is None else min(1.0, thousands * 1000 / max(count, 1))


def visual_thousands(sampling: str) -> int | None:
    """Return the limit of a tile with `mode=viz`, in thousands, by its `vizSampling`."""
    return _VISUAL_THOUSANDS.get(sampling, _VISUAL_THOUSANDS["med"])


def sample(ids: Iterable[str], ratio: float) -> Mask:
    """Return a mask of the features in a sample of this ratio."""
    below = min(round(ratio * _HASHES), _HASHES)
    return np.fromiter((_hash(id) < below for id in ids), np.bool_)


def large(shapes: Shapes, strength: int) -> Mask:
    """Return a mask of the shapes that are large enough at a strength of sampling."""
    least = next(perimeter for most, perimeter in _PERIMETERS if strength <= most)
    west, south, east, north = shapely.bounds(shapes).reshape(-1, 4).T
    mask: Mask = 2.0 * ((east - west) + (north - south)) > least
    return mask


def tolerance(strength: int | None, box: Bbox, *, tile_units: bool = False) -> float:
    """Return the distance in degrees that a coordinate may be moved."""
    if strength is None or tile_units:
        width = box.east - box.west if box.west <= box.east else box.east - box.west + 360.0
        return width / (_TILE_UNITS if tile_units else _UNITS)
    step, rest = divmod(strength - 1, 25)
    low, high = _TOLERANCES[min(step, 3)], _TOLERANCES[min(step, 3) + 1]
    return low + (high - low) / 25.0 * rest


def simplified(shapes: Shapes, options: Simplification, box: Bbox) -> Shapes:
    """Return the shapes with fewer coordinates.

    Shapes too small to be visible become empty; points are not moved.
    """
    algorithm = options.algorithm
    by_tile = algorithm is SimplificationAlgorithm.GRID_BY_TILE_LEVEL
    degrees = tolerance(options.strength, box, tile_units=by_tile)
    result = shapes.copy()
    others = np.flatnonzero(shapely.get_dimensions(shapes) > 0)
    if by_tile or algorithm is SimplificationAlgorithm.GRID:
        result[others] = shapely.set_precision(_valid(shapes[others]), degrees)
    else:
        keep = algorithm is SimplificationAlgorithm.SIMPLIFIED_KEEP_TOPOLOGY
        result[others] = shapely.simplify(shapes[others], degrees, preserve_topology=keep)
    return result


def _valid(shapes: Shapes) -> Shapes:
    """Make shapes valid, as rounding requires."""
    return np.where(shapely.is_valid(shapes), shapes, shapely.make_valid(shapes))


def _hash(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest())
