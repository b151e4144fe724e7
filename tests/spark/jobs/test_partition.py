"""Equality of the optimal partitioning computed by Spark and by the storage."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.geo.quadkey import QRID_DIGITS
from naksha.spark.jobs.cells import CellFinder, cells_of, settle
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.partition import Partition, Partitioned, partition
from naksha.spark.jobs.publish_directory import OutputFormat
from naksha.spi.partitioning import decode_partitioning
from naksha.spi.partitioning import partition as partition_by_cell
from tests.spark.jobs.town import Town, point, scattered

BULKY = "x" * 1_000_000
"""One feature of this size leaves room for ten features in a cell."""
QRIDS = st.lists(
    st.sampled_from(["0", "12", "1213", "3" * 17]).flatmap(
        lambda start: st.text(
            "0123", min_size=QRID_DIGITS - len(start), max_size=QRID_DIGITS - len(start)
        ).map(lambda rest: start + rest)
    )
    | st.sampled_from(["2" * QRID_DIGITS, "20" * (QRID_DIGITS // 2)]),
    max_size=60,
)


def computed(spark: SparkSession, town: Town, **settings: object) -> Partitioned:
    spec = Partition(place=town.place, collection="places", **settings)  # type: ignore[arg-type]
    return partition(spark, spec, SilentProgress())


def by_cell(qrids: list[str], most: int) -> dict[str, int]:
    """Return the cells by counting one cell at a time, as storages do."""

    async def count(prefix: str, limit: int | None) -> int:
        number = sum(qrid.startswith(prefix) for qrid in qrids)
        return number if limit is None else min(number, limit)

    with asyncio.Runner() as runner:
        return runner.run(partition_by_cell(count, most))


@given(QRIDS, st.integers(1, 8))
def test_cells_are_the_same_in_whatever_steps_they_are_found(qrids: list[str], most: int) -> None:
    wanted = by_cell(qrids, most)
    found, left = settle(Counter(qrids), [""], most)
    assert (dict(sorted(found.items())), left) == (wanted, [])
    larger, found = [""], {}
    for depth in (3, 6, 18):
        below = [qrid for qrid in qrids if qrid.startswith(tuple(larger))] if larger else []
        settled, larger = settle(Counter(qrid[:depth] for qrid in below), larger or [""], most)
        found |= settled
    assert dict(sorted(found.items())) == wanted
    finder = CellFinder(["", *wanted])
    numbers = finder.numbers(pa.array([*qrids, None], pa.string()))
    cells = [finder.cells[number] for number in numbers]
    assert cells.pop() == ""
    assert Counter(cells) == wanted
    assert all(qrid.startswith(cell) for qrid, cell in zip(qrids, cells, strict=True))


def test_many_cells_are_counted_in_rounds(spark: SparkSession) -> None:
    stacked = ["301" + "2" * 15] * 9 + ["301" + "2" * 14 + "1"] * 3
    spread = [f"{n:018b}" for n in range(40)]
    table = spark.createDataFrame([(qrid,) for qrid in [*stacked, *spread, None]], "qrid string")
    assert cells_of(table, 4, counted_max=64) == {"": 1, **by_cell([*stacked, *spread], 4)}


def test_it_is_that_of_the_storage(spark: SparkSession, town: Town) -> None:
    town.put(*scattered(300, 1), point("bulky", 8.0, 50.0, text=BULKY))
    before = computed(spark, town)
    town.delete(*(f"f{n}" for n in range(0, 300, 7)))
    wanted = town.call(lambda storage: storage.partitioning("places"))
    found = computed(spark, town)
    assert found.by_qrid == wanted != before.by_qrid
    assert list(found.by_qrid) == sorted(wanted)
    assert (found.features_max, found.features, found.kept) == (10, sum(wanted.values()), False)
    assert max(map(len, wanted)) == QRID_DIGITS, "some stacked points are needed"
    assert "" in wanted
    then = computed(spark, town, version=str(before.seq_number), features_max=10)
    assert then.by_qrid == before.by_qrid


def test_a_branch_has_its_own(spark: SparkSession, town: Town) -> None:
    town.put(*scattered(40, 3))
    town.branch("draft")
    town.put(point("later", -100.0, 40.0))
    town.delete("f1", "f2", branch="draft")
    wanted = town.call(lambda storage: storage.partitioning("places"), branch="draft")
    found = computed(spark, town, version="draft")
    assert found.by_qrid == wanted
    assert found.features == 38


def test_it_is_kept_when_asked_for(spark: SparkSession, small_town: Town) -> None:
    small_town.put(*scattered(20, 4))
    found = computed(spark, small_town, keep=True)
    assert found.kept
    with sqlite3.connect(small_town.path) as connection:
        ((text,),) = connection.execute("SELECT jsondata FROM naksha_meta").fetchall()
    connection.close()
    stored = decode_partitioning(text)
    assert stored is not None
    assert (stored.by_qrid, stored.txn) == (found.by_qrid, found.txn)
    for wrong in ({"version": "1"}, {"features_max": 5}):
        with pytest.raises(InvalidArgument, match="HEAD"):
            computed(spark, small_town, keep=True, **wrong)


@pytest.mark.parametrize("format_", OutputFormat)
def test_all_cells_are_in_the_output(
    spark: SparkSession, small_town: Town, tmp_path: Path, format_: OutputFormat
) -> None:
    """The report has only some, so that it is never too long."""
    most = limits.CELLS_REPORTED_MAX + 10
    small_town.put(*(point(f"f{n}", (n % 60) * 5 - 149.0, n // 60 - 40.0) for n in range(most)))
    reported = computed(
        spark, small_town, features_max=1, output=str(tmp_path / "cells"), output_format=format_
    )
    assert (reported.features, len(reported.by_qrid)) == (most, limits.CELLS_REPORTED_MAX)
    if format_ is OutputFormat.PARQUET:
        rows = pq.read_table(tmp_path / "cells").to_pylist()
    else:
        (file,) = (tmp_path / "cells").glob("*.jsonl")
        rows = msgspec.json.Decoder().decode_lines(file.read_bytes())
    found = {row["qrid"]: row["features"] for row in rows}
    assert (len(found), sum(found.values())) == (reported.cells, most)
    assert list(found.items())[: limits.CELLS_REPORTED_MAX] == list(reported.by_qrid.items())
    assert len(msgspec.json.encode(reported)) < limits.JOB_REPORT_BYTES_MAX
