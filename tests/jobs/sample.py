"""Jobs for tests, which a distribution of its own brings along: they count a collection slowly."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from naksha.model.errors import CollectionNotFound
from naksha.spark.jobs.frame import Access, InputFile, Job, OutputFile, Progress, Spec
from naksha.spi.staging import WriteMode

COUNT = "tests-count"
ONCE = "tests-once"
LOAD = "tests-load"
WIPE = "tests-wipe"


class Count(Spec, frozen=True, kw_only=True, tag=COUNT):
    """What is to be counted, and what happens meanwhile."""

    collection: str
    """The collection that is counted."""
    seconds: float = 0.0
    """How long a task of Spark takes before it is counted."""
    steps: int = 3
    """How often it is told how far it is."""
    fails: str = ""
    """How it ends: `crash`, `die`, or not at all."""
    job_id: str = ""
    app_id: str = ""
    author: str | None = None
    sources: tuple[InputFile, ...] = ()
    """Files whose sizes are told."""
    output: OutputFile | None = None
    """A file that gets the count."""


class Once(Count, frozen=True, kw_only=True, tag=ONCE):
    """The same, of which nobody may make two."""


class Load(Count, frozen=True, kw_only=True, tag=LOAD):
    """What writes."""

    source: InputFile
    mode: WriteMode = WriteMode.CREATE
    history: bool = False


class Wipe(Count, frozen=True, kw_only=True, tag=WIPE):
    """What drops something."""


class Counted(msgspec.Struct, frozen=True):
    """How many there are."""

    features: int
    pid: int
    job_id: str
    by: tuple[str, str | None]
    bytes_read: int


def count(spark: SparkSession, spec: Count, progress: Progress) -> Counted:
    """Counts through the data source."""
    print("this is not for who reads our lines")  # noqa: T201
    os.system("echo neither is this")
    sys.stderr.write("a secret that only the operator reads\n")
    progress.say(f"process {os.getpid()}")
    progress.phase("counting", spec.steps)
    options = {"storage": spec.place.location, "collection": spec.collection}
    if spec.place.schema is not None:
        options["schema"] = spec.place.schema
    table = spark.read.format("naksha").options(**options).load()
    try:
        features = table.count()
    except Exception as error:
        if "no collection" in str(error).lower():
            raise CollectionNotFound("There is none", collection_id=spec.collection) from error
        raise
    for _ in range(spec.steps):
        progress.advance()
    if spec.seconds:
        progress.phase("waiting")
        seconds = spec.seconds
        spark.sparkContext.parallelize([0], 1).map(lambda _: time.sleep(seconds)).count()
    if spec.fails == "crash":
        raise RuntimeError("nobody foresaw this")
    if spec.fails == "die":
        os._exit(3)
    size = sum(Path(name).stat().st_size for name in spec.sources)
    if spec.output is not None:
        Path(spec.output).write_text(str(features))
    return Counted(features, os.getpid(), spec.job_id, (spec.app_id, spec.author), size)


count_job = Job(Count, count, "Count the features of a collection, slowly.")
once_job = Job(Once, count, "Count them once.", is_repeatable=False)
load_job = Job(Load, count, "Count them, with the rights of who loads.", Access.WRITE)
wipe_job = Job(Wipe, count, "Count them, with the rights of who drops.", Access.MANAGE)
