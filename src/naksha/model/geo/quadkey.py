"""Quad keys on the plain quadtree of [-180,180]×[-90,90]: base-4 digits, one per level.

0 is top-left, 1 top-right, 2 bottom-left, 3 bottom-right.  A point on an inner border belongs to
the cell on its right or below it; the right and bottom edges of the world are clamped inward.
SQL uses exactly the same float arithmetic and so gets the same results: the column of a cell is
floor((lon + 180) / 360 · 2¹⁸) and its row floor((90 − lat) / 180 · 2¹⁸), at most 2¹⁸ − 1.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from naksha.model.errors import InvalidArgument

QRID_DIGITS: Final = 18
"""About 150 m × 75 m at the equator: finer than any partition, short enough to index."""

_CELLS: Final = 2**QRID_DIGITS

# Text is built six digits at a time: 6 bits of the row and 6 of the column select an entry.
_CHUNK: Final = 6
_CHUNK_MASK: Final = 2**_CHUNK - 1

Bounds = tuple[float, float, float, float]
"""West, south, east, north."""


def _digits(column: int, row: int, count: int) -> str:
    return "".join(
        str((row >> level & 1) << 1 | column >> level & 1) for level in reversed(range(count))
    )


_CHUNKS: Final = np.array(
    [_digits(index & _CHUNK_MASK, index >> _CHUNK, _CHUNK) for index in range(4**_CHUNK)],
    dtype=f"S{_CHUNK}",
)


def qrid(lon: float, lat: float) -> str:
    """Return the quad key of a position, 18 digits."""
    if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
        raise _outside(lon, lat)
    column = min(math.floor((lon + 180.0) / 360.0 * _CELLS), _CELLS - 1)
    row = min(math.floor((90.0 - lat) / 180.0 * _CELLS), _CELLS - 1)
    return _digits(column, row, QRID_DIGITS)


def qrids(lons: npt.NDArray[np.float64], lats: npt.NDArray[np.float64]) -> list[str]:
    """Return the quad keys of many positions, the same as `qrid` for each."""
    inside = (np.abs(lons) <= 180.0) & (np.abs(lats) <= 90.0)
    if not bool(np.all(inside)):
        first = int(np.argmin(inside))
        raise _outside(float(lons[first]), float(lats[first]))
    columns = np.minimum(np.floor((lons + 180.0) / 360.0 * _CELLS).astype(np.int64), _CELLS - 1)
    rows = np.minimum(np.floor((90.0 - lats) / 180.0 * _CELLS).astype(np.int64), _CELLS - 1)
    chunks = np.empty((len(lons), QRID_DIGITS // _CHUNK), dtype=_CHUNKS.dtype)
    for place in range(chunks.shape[1]):
        shift = QRID_DIGITS - _CHUNK * (place + 1)
        index = (rows >> shift & _CHUNK_MASK) << _CHUNK | columns >> shift & _CHUNK_MASK
        chunks[:, place] = _CHUNKS[index]
    texts: list[str] = chunks.view(f"S{QRID_DIGITS}").ravel().astype(f"U{QRID_DIGITS}").tolist()
    return texts


def _outside(lon: float, lat: float) -> InvalidArgument:
    return InvalidArgument(
        f"The position ({lon}, {lat}) is outside of the longitudes -180 to 180 and the latitudes "
        "-90 to 90"
    )


def bounds(quadkey: str) -> Bounds:
    """Return the cell of a quad key or of a prefix of one; the empty key is the whole world."""
    if len(quadkey) > QRID_DIGITS or quadkey.strip("0123"):
        raise InvalidArgument(
            f"{quadkey!r:.64} is not a quad key; use at most {QRID_DIGITS} digits from 0 to 3",
            field="qrid",
        )
    column = row = 0
    for digit in quadkey:
        column = column << 1 | int(digit) & 1
        row = row << 1 | int(digit) >> 1
    width, height = 360.0 / 2 ** len(quadkey), 180.0 / 2 ** len(quadkey)
    return (
        column * width - 180.0,
        90.0 - (row + 1) * height,
        (column + 1) * width - 180.0,
        90.0 - row * height,
    )
