"""Cells of the tile pyramid, by which a storage records where transactions changed features.

A cell is a square of the quadtree that quad keys use, as a number: a leading 1, then two bits per
level. 1 is the whole world, and `cell >> 2` the parent of a cell. SQL computes the same numbers.

A changed geometry is recorded by the deepest cells of which two by two contain its box
(`cover`); everything in these cells counts as changed. So a box may have been changed by a
transaction if one of its cells, an ancestor of it or a cell inside of it was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from naksha.model.limits import TILE_CELLS_MAX
from naksha.model.query import Bbox

TILE_CELL_LEVEL: Final = 12
"""Level of the smallest cells, about 10 km wide at the equator."""
WORLD_CELL: Final = 1
"""The cell that contains every other one."""

_Cells = npt.NDArray[np.int64]
_FIRST_CELLS: Final = 4 ** np.arange(TILE_CELL_LEVEL + 1, dtype=np.int64)
"""The smallest cell number of each level."""
_SPREAD: Final = np.array([int(f"{n:b}", 4) for n in range(1 << TILE_CELL_LEVEL)], np.int64)
_SPREAD_ONE: Final[list[int]] = _SPREAD.tolist()
"""Numbers of columns and rows with a zero bit before each of their bits."""
_LOOK_UP_CELLS: Final = 64
"""Number of cells that a box is looked up by, at most."""


def cell_at(level: int, column: int, row: int) -> int:
    """Return the number of a cell; rows are counted from the north."""
    return 1 << 2 * level | _SPREAD_ONE[row] << 1 | _SPREAD_ONE[column]


def level_of(cell: int) -> int:
    """Return the level of a cell; 0 is the whole world."""
    return (cell.bit_length() - 1) // 2


def ancestors(cell: int) -> Iterator[int]:
    """Yield the cells that contain a cell, without itself, the smallest first."""
    while cell > WORLD_CELL:
        cell >>= 2
        yield cell


def cover(west: float, south: float, east: float, north: float) -> set[int]:
    """Return the cells that record a change inside a box: at most two by two of one level."""
    columns, rows = _span(west, east, 180.0, 360.0), _span(-north, -south, 90.0, 180.0)
    level = TILE_CELL_LEVEL
    while columns[1] - columns[0] > 1 or rows[1] - rows[0] > 1:
        columns, rows = (columns[0] >> 1, columns[1] >> 1), (rows[0] >> 1, rows[1] >> 1)
        level -= 1
    return {cell_at(level, column, row) for column in {*columns} for row in {*rows}}


def covers(bounds: npt.NDArray[np.float64]) -> set[int]:
    """Return the cells that record changes inside many boxes (rows of west, south, east, north).

    Rows of NaN are geometries without a position. There are at most TILE_CELLS_MAX cells: if there
    were more, ancestors replace the smallest ones.
    """
    known = bounds[~np.isnan(bounds).any(axis=1)]
    count = 1 << TILE_CELL_LEVEL
    scaled = (
        (known[:, 0] + 180.0) / 360.0,
        (90.0 - known[:, 3]) / 180.0,
        (known[:, 2] + 180.0) / 360.0,
        (90.0 - known[:, 1]) / 180.0,
    )
    west, north, east, south = (
        np.clip(np.floor(edge * count).astype(np.int64), 0, count - 1) for edge in scaled
    )
    up = np.zeros(len(known), dtype=np.int64)
    for _ in range(TILE_CELL_LEVEL):
        up += ((east >> up) - (west >> up) > 1) | ((south >> up) - (north >> up) > 1)
    first = np.int64(1) << 2 * (TILE_CELL_LEVEL - up)
    columns = [_SPREAD[edge >> up] for edge in (west, east)]
    rows = [_SPREAD[edge >> up] << 1 for edge in (north, south)]
    cells = np.unique(np.concatenate([first | x | y for x in columns for y in rows]))
    return {*_merged(cells).tolist()}


def merged(cells: Iterable[int]) -> set[int]:
    """Return cells that cover the given ones, at most TILE_CELLS_MAX."""
    found = {*cells}
    if len(found) <= TILE_CELLS_MAX:
        return found
    return {*_merged(np.fromiter(found, np.int64, len(found))).tolist()}


def _merged(cells: _Cells) -> _Cells:
    level = np.searchsorted(_FIRST_CELLS, cells, side="right") - 1
    deepest = TILE_CELL_LEVEL
    while len(cells) > TILE_CELLS_MAX:
        deepest -= 1
        cells, kept = np.unique(cells >> 2 * np.maximum(level - deepest, 0), return_index=True)
        level = np.minimum(level, deepest)[kept]
    return cells


def look_up_cells(box: Bbox) -> list[int]:
    """Return the cells of one level that cover a box, for the question what changed inside it.

    The level is the deepest with at most 64 of them.
    """
    spans = [(box.west, box.east)]
    if box.west > box.east:
        spans = [(box.west, 180.0), (-180.0, box.east)]
    rows = _span(-box.north, -box.south, 90.0, 180.0)
    columns = [_span(west, east, 180.0, 360.0) for west, east in spans]
    level = TILE_CELL_LEVEL
    while _count(columns) * (rows[1] - rows[0] + 1) > _LOOK_UP_CELLS:
        columns = [(first >> 1, last >> 1) for first, last in columns]
        rows = rows[0] >> 1, rows[1] >> 1
        level -= 1
    found = {
        cell_at(level, column, row)
        for first, last in columns
        for column in range(first, last + 1)
        for row in range(rows[0], rows[1] + 1)
    }
    return sorted(found)


def _count(spans: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in spans)


def _span(low: float, high: float, offset: float, length: float) -> tuple[int, int]:
    """Return the first and last column (or row, from the north) of the smallest cells."""
    count = 1 << TILE_CELL_LEVEL
    first = math.floor((low + offset) / length * count)
    last = math.floor((high + offset) / length * count)
    return min(max(first, 0), count - 1), min(max(last, 0), count - 1)
