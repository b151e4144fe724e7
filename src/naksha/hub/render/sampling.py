"""Answers made lighter for maps: only some of the features, or geometries with fewer coordinates.

A sample is taken by a hash of the feature's id: the same features again and again, in every tile
that they are in, evenly spread, and a stronger sample is a part of a weaker one.
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
"""Up to which strength of sampling what part of the features is taken."""
_PERIMETERS: Final = ((5, 0.001), (10, 0.002), (30, 0.004), (50, 0.008), (75, 0.01), (100, 0.05))
"""Up to which strength how many degrees the box around a feature must measure."""
_TOLERANCES: Final = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""Degrees at the strengths 1, 26, 51, 76 and, as far as it would go, 101; even in between."""
_UNITS: Final = 4096
"""Into so many parts a place is divided if nobody says how strongly to simplify."""
_TILE_UNITS: Final = 2048
"""Into so many parts a tile is, for a map of it."""
_VISUAL_THOUSANDS: Final = {"high": 15, "med": 30, "low": 70, "off": None}
_HASHES: Final = 2**64


def sampling_ratio(strength: int) -> float:
    """The part of the features that is taken."""
    return next(ratio for most, ratio in _RATIOS if strength <= most)


def ensuring_ratio(count: int, thousands: int | None) -> float:
    """The part of `count` features that may be taken so that they are not too many."""
    return 1.0 if thousands is None else min(1.0, thousands * 1000 / max(count, 1))


def visual_thousands(sampling: str) -> int | None:
    """How many thousand features a tile of `mode=viz` has at most, by its `vizSampling`."""
    return _VISUAL_THOUSANDS.get(sampling, _VISUAL_THOUSANDS["med"])


def sample(ids: Iterable[str], ratio: float) -> Mask:
    """Which of the features belong to a sample of this part of all."""
    below = min(round(ratio * _HASHES), _HASHES)
    return np.fromiter((_hash(id) < below for id in ids), np.bool_)


def large(shapes: Shapes, strength: int) -> Mask:
    """Which shapes are large enough to be taken at a strength of sampling."""
    least = next(perimeter for most, perimeter in _PERIMETERS if strength <= most)
    west, south, east, north = shapely.bounds(shapes).reshape(-1, 4).T
    mask: Mask = 2.0 * ((east - west) + (north - south)) > least
    return mask


def tolerance(strength: int | None, box: Bbox, *, tile_units: bool = False) -> float:
    """The degrees within which a coordinate may be moved."""
    if strength is None or tile_units:
        width = box.east - box.west if box.west <= box.east else box.east - box.west + 360.0
        return width / (_TILE_UNITS if tile_units else _UNITS)
    step, rest = divmod(strength - 1, 25)
    low, high = _TOLERANCES[min(step, 3)], _TOLERANCES[min(step, 3) + 1]
    return low + (high - low) / 25.0 * rest


def simplified(shapes: Shapes, options: Simplification, box: Bbox) -> Shapes:
    """The shapes with fewer coordinates; of what is too small to be seen, nothing is left but an
    empty shape. Points stay where they are."""
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
    """What is to be rounded must be right before."""
    return np.where(shapely.is_valid(shapes), shapes, shapely.make_valid(shapes))


def _hash(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest())
