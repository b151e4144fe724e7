"""Optimal partitioning (see `naksha.spi.partitioning`), computed from the qrids of a table.

Features are counted by the first digits of their qrids, and again by further digits below the cells
that have too many. How many digits depends on how many cells that are, so that what comes back is
bounded; one or two rounds are enough for most tables. The result is that of counting cell by cell.
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

COUNTED_MAX: Final = 4**9
"""Cells that are counted in one round, at most."""


def cells_of(qrids: DataFrame, most: int, counted_max: int = COUNTED_MAX) -> dict[str, int]:
    """The coarsest cells with at most `most` rows each; `qrids` has the column `qrid`."""
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
    """How many digits so many cells are told apart by."""
    return max(1, (cells.bit_length() - 1) // 2)


def _rows_below(qrids: DataFrame, cells: Collection[str], depth: int) -> DataFrame:
    """The rows in some cells with so many digits."""
    if depth == 0:
        return qrids
    wanted = qrids.sparkSession.createDataFrame([(key,) for key in cells], "cell string")
    inside = qrids.withColumn("cell", f.substring("qrid", 1, depth))
    return inside.join(f.broadcast(wanted), "cell", "left_semi")


def _counts(qrids: DataFrame, depth: int) -> dict[Any, int]:
    """The number of rows by the first digits of their qrid."""
    cells = qrids.groupBy(f.substring("qrid", 1, depth).alias("cell")).count().toArrow()
    return dict(zip(*(column.to_pylist() for column in cells.columns), strict=True))


def settle(
    counts: Mapping[str, int], larger: Collection[str], most: int
) -> tuple[dict[str, int], list[str]]:
    """Cells that have at most so many features, coarsest first, and those of the finest level
    here that still have more. `larger` are the cells above that have too many."""
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
    """Which cell a qrid is in. The cells are those of a partitioning: disjoint, and all that is
    asked for is in one of them."""

    def __init__(self, cells: Collection[str]) -> None:
        self.cells = sorted(cells)
        self._starts = np.array(self.cells, dtype=f"S{QRID_DIGITS}")

    def numbers(self, qrids: pa.Array) -> npt.NDArray[np.int32]:
        """The numbers of the cells, in their order."""
        keys = np.array(qrids.fill_null(NOWHERE).to_numpy(zero_copy_only=False), "S")
        found = np.searchsorted(self._starts, keys, side="right") - 1
        return found.astype(np.int32)
