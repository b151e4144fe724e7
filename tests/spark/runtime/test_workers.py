"""Garbage collection in Spark workers that have loaded Naksha."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

WORKERS = 2
"""Number of workers that the session of the tests runs at once."""


def test_objects_of_imported_modules_are_frozen_once(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import naksha.spark  # noqa: F401 - as a task of ours does

        for _ in batches:
            seen = [pa.array([os.getpid()]), pa.array([gc.get_freeze_count()])]
            yield pa.RecordBatch.from_arrays(seen, ["pid", "spared"])

    rows = spark.range(0, 1, 1, 1).mapInArrow(look, "pid long, spared long")
    seen: set[int] = set()
    for _ in range(WORKERS + 1):
        (row,) = rows.collect()
        if row.pid in seen:
            assert row.spared > 10_000
            return
        seen.add(row.pid)
    raise AssertionError(f"No worker had two tasks: {seen}")
