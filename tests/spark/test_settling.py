"""What Spark's processes have loaded is not looked through for garbage after each task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from naksha.spark import settling
from naksha.spark.opened import existing
from naksha.spark.options import Place
from naksha.spi.storage import Storage
from tests.spark.towns import Town


async def number_of(storage: Storage) -> int:
    return storage.number


class Asking:
    """A task that asks a storage, and tells how many objects are set aside then."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            existing(Place(self._location)).call(number_of)
            yield pa.RecordBatch.from_pydict({"aside": [gc.get_freeze_count()]})


def test_a_process_of_spark_sets_aside_what_it_has_loaded(spark: SparkSession, town: Town) -> None:
    asked = spark.range(0, 1, 1, 1).mapInArrow(Asking(town.location), "aside bigint")
    (row,) = asked.collect()
    assert row.aside > len(sys.modules)


def test_it_is_done_again_only_after_something_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(settling, "_modules", 0)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    settling.settle()
    assert done == []  # This process is nobody's but ours.
    monkeypatch.setattr(settling, "is_sparks", lambda: True)
    settling.settle()
    settling.settle()
    assert done == ["collected", "frozen"]
    monkeypatch.setitem(sys.modules, "naksha.loaded_just_now", sys)
    settling.settle()
    assert done == ["collected", "frozen"] * 2
