"""Writes of streams: one transaction per batch; a repeated batch has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import naksha.spark
from tests.spark.conftest import TownMaker
from tests.spark.source.write_support import COLUMNS, frame, fresh, log, numbers, options, staged
from tests.spark.towns import Town


@pytest.fixture(scope="module", params=["file", "postgresql"])
def target(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    with town_maker(request.param) as made:
        yield made


def test_a_repeated_batch_does_nothing(spark: SparkSession, target: Town, tmp_path: Path) -> None:
    name, source, checkpoint = fresh(), tmp_path / "in", tmp_path / "checkpoint"

    def bring(values: dict[str, int]) -> None:
        frame(spark, values, 1).write.mode("append").json(str(source))

    def run() -> None:
        stream = spark.readStream.schema(COLUMNS).json(str(source))
        writer = stream.writeStream.format("naksha").trigger(availableNow=True)
        writer = writer.options(**options(target, name, message="a batch"))
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()

    # Each feature is created: a batch that counted twice would fail.
    bring({"a": 1, "b": 1})
    run()
    before = len(log(target))
    bring({"c": 2})
    run()
    assert numbers(target, name) == {"a": 1, "b": 1, "c": 2}
    texts = {s.id: s.text for s in log(target)[-1].signals if s.action == "MESSAGE"}
    assert texts["message"] == "a batch"
    assert (texts["job"] or "").endswith("-1")
    # The driver died after it had written, and before it noted that.
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    run()
    assert numbers(target, name) == {"a": 1, "b": 1, "c": 2}
    assert (len(log(target)), staged(target)) == (before + 1, 0)
    # It goes on from there.
    bring({"d": 3})
    run()
    assert numbers(target, name) == {"a": 1, "b": 1, "c": 2, "d": 3}


def test_a_name_is_not_what_batches_are_known_by(
    spark: SparkSession, target: Town, tmp_path: Path
) -> None:
    """Streams of one name have batches of one number: after a new checkpoint, or because another
    user has chosen it too. They are different batches all the same."""
    name, before = fresh(), len(log(target))
    for number, values in enumerate([{"a": 1}, {"b": 2}]):
        source = str(tmp_path / f"in{number}")
        frame(spark, values, 1).write.json(source)
        stream = spark.readStream.schema(COLUMNS).json(source)
        writer = stream.writeStream.format("naksha").trigger(availableNow=True)
        writer = writer.options(**options(target, name, job="nightly"))
        checkpoint = str(tmp_path / f"checkpoint{number}")
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    assert numbers(target, name) == {"a": 1, "b": 2}
    found = log(target)[before:]
    jobs = [s.text or "" for each in found for s in each.signals if s.id == "job"]
    assert len(set(jobs)) == 2
    assert all(job.startswith("nightly-") and job.endswith("-0") for job in jobs)
    assert staged(target) == 0


def test_a_batch_without_features_is_done_once(
    spark: SparkSession, target: Town, tmp_path: Path
) -> None:
    """An empty batch is a mirror of nothing, which deletes all features."""
    name, source, checkpoint = fresh(), tmp_path / "in", tmp_path / "checkpoint"
    naksha.spark.write(frame(spark, {"old": 1}), target.location, name, app_id="test")
    frame(spark, {"a": 1}, 1).write.json(str(source))

    def run() -> None:
        stream = spark.readStream.schema(COLUMNS).json(str(source)).where("id = 'none'")
        writer = stream.writeStream.format("naksha").trigger(availableNow=True)
        writer = writer.options(**options(target, name, writeMode="mirror"))
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    run()
    assert numbers(target, name) == {}
    naksha.spark.write(frame(spark, {"new": 1}), target.location, name, app_id="test")
    for file in (checkpoint / "commits").glob("*0*"):
        file.unlink()
    run()
    assert (numbers(target, name), staged(target)) == ({"new": 1}, 0)


def test_an_option_that_is_misspelt_is_refused(
    spark: SparkSession, target: Town, tmp_path: Path
) -> None:
    frame(spark, {"a": 1}, 1).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema(COLUMNS).json(str(tmp_path / "in"))
    writer = stream.writeStream.format("naksha").trigger(availableNow=True).queryName("some")
    writer = writer.options(**options(target, fresh(), brnach="fix"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    before = len(log(target))
    with pytest.raises(PySparkException, match="Unknown option 'brnach'"):
        writer.start().awaitTermination()
    assert (len(log(target)), staged(target)) == (before, 0)


@pytest.mark.long
def test_a_complete_result_is_a_mirror(spark: SparkSession, target: Town, tmp_path: Path) -> None:
    name, source = fresh(), str(tmp_path / "in")
    naksha.spark.write(frame(spark, {"old": 1}), target.location, name, app_id="test")
    frame(spark, {"a": 1, "b": 2}, 1).write.json(source)
    counted = spark.readStream.schema(COLUMNS).json(source).groupBy("id").count().select("id")
    writer = counted.writeStream.format("naksha").outputMode("complete").trigger(availableNow=True)
    writer = writer.options(**options(target, name, job=f"{name}-stream"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert numbers(target, name) == {"a": None, "b": None}
    texts = {s.id: s.text for s in log(target)[-1].signals if s.action == "MESSAGE"}
    assert texts == {"job": f"{name}-stream-{query.id}-0"}
