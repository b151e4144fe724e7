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

_LOOK_UP_CELLS: Final = 64
"""Number of cells that a box is looked up by, at most."""


def cell_at(level: int, column: int, row: int) -> int:
    """Return the number of a cell; rows are counted from the north."""
    cell = WORLD_CELL
    for shift in reversed(range(level)):
        cell = cell << 2 | (row >> shift & 1) << 1 | column >> shift & 1
    return cell


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
    scaled = np.column_stack(
        [
            (known[:, 0] + 180.0) / 360.0,
            (90.0 - known[:, 3]) / 180.0,
            (known[:, 2] + 180.0) / 360.0,
            (90.0 - known[:, 1]) / 180.0,
        ]
    )
    grid = np.clip(np.floor(scaled * count).astype(np.int64), 0, count - 1)
    found: set[int] = set()
    for west, north, east, south in np.unique(grid, axis=0).tolist():
        level = TILE_CELL_LEVEL
        while east - west > 1 or south - north > 1:
            west, north, east, south = west >> 1, north >> 1, east >> 1, south >> 1
            level -= 1
        found |= {cell_at(level, column, row) for column in {west, east} for row in {north, south}}
    return merged(found)


def merged(cells: Iterable[int]) -> set[int]:
    """Return cells that cover the given ones, at most TILE_CELLS_MAX."""
    found = {*cells}
    while len(found) > TILE_CELLS_MAX:
        deepest = max(map(level_of, found))
        found = {cell >> 2 if level_of(cell) == deepest else cell for cell in found}
    return found


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
