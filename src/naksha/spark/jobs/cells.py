"""Optimal partitioning (see `naksha.spi.partitioning`), computed from the qrids of a table.

Features are counted by the first digits of their qrids, and, below the cells that have too many, by
further digits. The number of digits per round depends on the number of these cells, so that the
size of the result is bounded; one or two rounds are enough for most tables. The result is the same
as that of counting cell by cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from naksha.model.geo.quadkey import QRID_DIGITS
from naksha.spi.partitioning import NOWHERE

_COUNTED_MAX: Final = 4**9
"""Maximum number of cells that are counted in one round."""


def cells_of(qrids: DataFrame, most: int, counted_max: int = _COUNTED_MAX) -> dict[str, int]:
    """Find the coarsest cells with at most `most` rows each; `qrids` has the column `qrid`."""
    kept = qrids.persist()
    try:
        found: dict[str, int] = {}
        larger, depth = [""], 0
        while larger and depth < QRID_DIGITS:
            below = _rows_below(kept, larger, depth)
            depth = min(depth + _digits(counted_max // len(larger)), QRID_DIGITS)
            counts = _counts(below, depth)
            found |= {NOWHERE: counts.pop(None)} if None in counts else {}
            settled, larger = settle(counts, larger, most)
            found |= settled
    finally:
        kept.unpersist()
    return dict(sorted(found.items()))


def _digits(cells: int) -> int:
    """Return the number of digits that distinguish a number of cells."""
    return max(1, (cells.bit_length() - 1) // 2)


def _rows_below(qrids: DataFrame, cells: Collection[str], depth: int) -> DataFrame:
    """Filter the rows in cells, whose keys have `depth` digits."""
    if depth == 0:
        return qrids
    wanted = qrids.sparkSession.createDataFrame([(key,) for key in cells], "cell string")
    inside = qrids.withColumn("cell", f.substring("qrid", 1, depth))
    return inside.join(f.broadcast(wanted), "cell", "left_semi")


def _counts(qrids: DataFrame, depth: int) -> dict[Any, int]:
    """Count rows by the first digits of their qrid."""
    cells = qrids.groupBy(f.substring("qrid", 1, depth).alias("cell")).count().toArrow()
    return dict(zip(*(column.to_pylist() for column in cells.columns), strict=True))


def settle(
    counts: Mapping[str, int], larger: Collection[str], most: int
) -> tuple[dict[str, int], list[str]]:
    """Divide counted cells into final ones, coarsest first, and ones of the last level to split.

    Final cells have at most `most` features. `larger` are the parent cells that have more.
    """
    found: dict[str, int] = {}
    open_ = set(larger)
    if not counts:
        return found, []
    first, depth = len(next(iter(open_))), len(next(iter(counts)))
    for length in range(first + 1, depth + 1):
        sums: Counter[str] = Counter()
        for key, number in counts.items():
            if key[: length - 1] in open_:
                sums[key[:length]] += number
        open_ = set()
        for key, number in sums.items():
            if number > most and length < QRID_DIGITS:
                open_.add(key)
            else:
                found[key] = number
    return found, sorted(open_)


class CellFinder:
    """Lookup of the cell of a qrid.

    The cells are those of a partitioning: disjoint, and every qrid to look up is in one of them.
    """

    def __init__(self, cells: Collection[str]) -> None:
        self.cells = sorted(cells)
        self._starts = np.array(self.cells, dtype=f"S{QRID_DIGITS}")

    def numbers(self, qrids: pa.Array) -> npt.NDArray[np.int32]:
        """Return the index of the cell of each qrid in `cells`."""
        keys = np.array(qrids.fill_null(NOWHERE).to_numpy(zero_copy_only=False), "S")
        found = np.searchsorted(self._starts, keys, side="right") - 1
        return found.astype(np.int32)
