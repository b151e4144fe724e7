"""Optimal partitioning (see `naksha.spi.partitioning`), computed from the qrids of a table.

The features of each qrid are counted in one pass. Of few qrids the rest is done at once; of many a
few digits at a time are looked at, and only below the cells that have too many features. So the
result is that of counting cell by cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from naksha.model.quadkey import QRID_DIGITS
from naksha.spi.partitioning import NOWHERE

STEP: Final = 3
"""Digits looked at in one round: at most 64 cells come back for each that has too many."""
FEW: Final = 20_000
"""Different qrids that are looked at all together."""


def cells_of(qrids: DataFrame, most: int, few: int = FEW) -> dict[str, int]:
    """The coarsest cells with at most `most` rows each; `qrids` has the column `qrid`."""
    counted = qrids.groupBy("qrid").agg(f.count(f.lit(1)).alias("n")).persist()
    try:
        some = counted.limit(few + 1).toArrow()
        found = _of_few(some, most) if len(some) <= few else _of_many(counted, most)
    finally:
        counted.unpersist()
    return dict(sorted(found.items()))


def _of_few(counted: pa.Table, most: int) -> dict[str, int]:
    keys, numbers = (column.to_pylist() for column in counted.columns)
    counts = dict(zip(keys, numbers, strict=True))
    nowhere = counts.pop(None, 0)
    found, _ = settle(counts, [""], most)
    return {NOWHERE: nowhere, **found} if nowhere else found


def _of_many(counted: DataFrame, most: int) -> dict[str, int]:
    nowhere = counted.where("qrid IS NULL").first()
    found = {} if nowhere is None else {NOWHERE: int(nowhere.n)}
    somewhere = counted.where("qrid IS NOT NULL")
    larger: list[str] = [""]
    for depth in range(STEP, QRID_DIGITS + 1, STEP):
        settled, larger = settle(_counts(somewhere, larger, depth), larger, most)
        found |= settled
        if not larger:
            break
    return found


def _counts(counted: DataFrame, larger: Collection[str], depth: int) -> dict[str, int]:
    """The features of the cells with so many digits that are below some larger ones."""
    above = counted.withColumn("above", f.substring("qrid", 1, depth - STEP))
    if depth > STEP:
        spark = counted.sparkSession
        wanted = spark.createDataFrame([(key,) for key in larger], "above string")
        above = above.join(f.broadcast(wanted), "above", "left_semi")
    cells = above.groupBy(f.substring("qrid", 1, depth).alias("cell")).agg(f.sum("n").alias("n"))
    return {row.cell: row.n for row in cells.collect()}


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
