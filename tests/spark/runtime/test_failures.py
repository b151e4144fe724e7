"""Errors of tasks, raised to the caller unchanged, although Spark transports only texts."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    Expired,
    InvalidArgument,
    NakshaError,
    NotFound,
)
from naksha.model.query import Query
from naksha.spark.jobs.collection_tables import table
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load
from naksha.spark.jobs.loading.spec import Load
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.failures import failure_in, failure_of, noting
from naksha.spark.source.options import StorageRef
from tests.spark.towns import COLLECTION, Town

KINDS = st.sampled_from([NakshaError, InvalidArgument, CollectionNotFound, Conflict, Expired])
TEXTS = st.text(st.characters(categories=["L", "N", "P", "Zs", "S"]), min_size=1).filter(
    lambda text: text == text.strip()
)
PARTS = st.none() | st.text()


def reported(error: NakshaError, *, noted: bool) -> str:
    """Return the printed error, with the text that Spark adds."""
    try:
        if noted:
            with noting():
                raise error
        raise error
    except NakshaError as raised:
        lines = "".join(traceback.format_exception(raised))
    return (
        f"[PYTHON] An exception was thrown:\n{lines}\n\tat org.apache.spark.Task.run(Task.scala:1)"
    )


def parts(error: NakshaError) -> tuple[object, ...]:
    where = (error.field, error.feature_id, error.collection_id, error.position)
    return (type(error), error.message, *where)


@given(KINDS, TEXTS, PARTS, PARTS, PARTS, st.none() | st.integers(0, 9), st.booleans())
def test_any_error_of_ours_is_read_from_a_traceback(
    kind: type[NakshaError],
    message: str,
    field: str | None,
    feature: str | None,
    collection: str | None,
    position: int | None,
    noted: bool,
) -> None:
    error = kind(message, field=field, feature_id=feature, collection_id=collection)
    error.position = position
    found = failure_in(reported(error, noted=noted))
    assert found is not None
    assert parts(found) == parts(error)
    assert failure_of(found) == failure_of(error)


def test_foreign_errors_are_not_naksha_errors() -> None:
    assert failure_of(RuntimeError("(field 'id')")) is None
    assert failure_in("acme.errors.InvalidArgument: no (field 'id')") is None


def test_an_error_of_a_task_is_raised_by_the_job(spark: SparkSession) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise InvalidArgument("It's not (yet) right", field="id", feature_id="o'neill")
        yield from ()

    rows = spark.range(1).mapInArrow(fail, "id long")
    with pytest.raises(InvalidArgument) as caught:
        watched(spark, SilentProgress(), "failing", rows.collect)
    error = caught.value
    assert (error.message, error.field) == ("It's not (yet) right", "id")
    assert error.feature_id == "o'neill"


def test_a_file_that_a_task_cannot_read_is_named_with_its_field(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.geojson").write_text('{"type": "FeatureCollection", "features": [')
    spec = Load(
        place=StorageRef(f"file:{tmp_path}/town.naksha"),
        collection="roads",
        files=(str(tmp_path / "a.geojson"),),
        app_id="test",
    )
    with pytest.raises(InvalidArgument, match=r"a\.geojson is not valid GeoJSON") as caught:
        load(spark, spec, SilentProgress())
    assert caught.value.field == "files"


def test_a_storage_that_is_not_where_a_task_is_is_named(
    spark: SparkSession, town: Town, tmp_path: Path
) -> None:
    splits = town.call(lambda s: s.plan(COLLECTION, Query()))
    nowhere = StorageRef(f"file:{tmp_path}/nowhere.naksha")
    rows = table(spark, nowhere, splits, ["id"])
    with pytest.raises(NotFound, match=r"nowhere\.naksha") as caught:
        watched(spark, SilentProgress(), "reading", rows.collect)
    assert caught.value.field == "storage"
    assert [*tmp_path.iterdir()] == []
