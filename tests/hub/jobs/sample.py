"""Sample jobs for tests, provided by a separate distribution.

Most of them need no Spark and so start quickly; they stop where their arguments say, and continue
when a file appears.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.spark.jobs.frame import InputFile, Job, JobAccess, JobProgress, JobSpec, OutputFile
from naksha.spark.runtime.storage_cache import shared_storage
from naksha.spi.arrow import INPUT
from naksha.spi.staging import StagedWrite, WriteMode

COUNT = "tests-count"
ONCE = "tests-once"
LOAD = "tests-load"
WIPE = "tests-wipe"
SLEEP = "tests-sleep"
CANCELLED = "cancelled"
NOTE = "something that was found" * 4
WAIT_SECONDS = 0.05
SECONDS_MAX = 120


class Count(JobSpec, frozen=True, kw_only=True, tag=COUNT):
    """The collection to count, and faults to inject meanwhile."""

    collection: str
    """The collection that is counted."""
    steps: int = 3
    """Number of progress reports."""
    until: InputFile | None = None
    """A file that it waits for."""
    is_deaf: bool = False
    """Whether it goes on although it was cancelled; a file tells that it knows."""
    has_child: bool = False
    """Whether it starts another process, which would not end by itself."""
    fails: str = ""
    """How it ends: `crash`, `die`, or not at all."""
    job_id: str = ""
    app_id: str = ""
    author: str | None = None
    sources: tuple[InputFile, ...] = ()
    """Files whose sizes are reported."""
    notes: int = 0
    """How many lines of `NOTE` its report has."""
    output: OutputFile | None = None
    """A file that gets the count."""


class Once(Count, frozen=True, kw_only=True, tag=ONCE):
    """The same job, which is not repeatable."""


class Load(Count, frozen=True, kw_only=True, tag=LOAD):
    """A job that writes."""

    source: InputFile
    """A file that it waits for before it applies what it has staged."""
    info: CollectionInfo | None = None
    mode: WriteMode = WriteMode.CREATE
    history: bool = False


class Wipe(Count, frozen=True, kw_only=True, tag=WIPE):
    """A job that drops a collection."""


class Sleep(Count, frozen=True, kw_only=True, tag=SLEEP):
    """A job that keeps Spark busy."""


class Counted(msgspec.Struct, frozen=True):
    """How many there are."""

    features: int
    pid: int
    job_id: str
    by: tuple[str, str | None]
    bytes_read: int = 0
    repeated: bool = False
    notes: list[str] = []


def count(spark: SparkSession | None, spec: Count, progress: JobProgress) -> Counted:
    """Counts."""
    print("this is not for who reads our lines")  # noqa: T201
    os.system("echo neither is this")
    sys.stderr.write("a secret that only the operator reads\n")
    _begin(spec, progress)
    # As those do that learn only then how much there is to do.
    for total in (None, spec.steps + 1):
        progress.phase("counting", total)
    features = shared_storage(spec.place).call(lambda s: s.count(spec.collection, Query()))
    for _ in range(spec.steps):
        progress.advance()
    _wait(spec, progress, spec.until)
    progress.advance()
    if spec.fails == "crash":
        raise RuntimeError("an unforeseen failure")
    if spec.fails == "die":
        os._exit(3)
    size = sum(Path(name).stat().st_size for name in spec.sources)
    if spec.output is not None:
        Path(spec.output).write_text(str(features))
    by, notes = (spec.app_id, spec.author), [NOTE] * spec.notes
    return Counted(features, os.getpid(), spec.job_id, by, size, notes=notes)


def load(spark: SparkSession | None, spec: Load, progress: JobProgress) -> Counted:
    """Stages features, waits, applies them, and waits once more."""
    _begin(spec, progress)
    progress.phase("staging", spec.steps)
    storage, info = shared_storage(spec.place), spec.info or CollectionInfo(id=spec.collection)
    with storage.using() as used:
        stage = used.call(lambda s: s.stage(spec.job_id, info))
        for n in range(spec.steps):
            feature = {"id": f"m{n}", "properties": "{}"}
            used.wait(stage.add(pa.RecordBatch.from_pylist([feature], schema=INPUT)))
            progress.advance()
        part = used.wait(stage.close())
    progress.phase("staged")
    _wait(spec, progress, spec.source)
    write = StagedWrite(
        job=spec.job_id, info=info, mode=spec.mode, app_id=spec.app_id, author=spec.author
    )
    applied = storage.call(lambda s: s.apply_staged(write, [part]))
    progress.phase("written")
    _wait(spec, progress, spec.until)
    by = spec.app_id, spec.author
    return Counted(applied.created, os.getpid(), spec.job_id, by, repeated=applied.repeated)


def wipe(spark: SparkSession | None, spec: Wipe, progress: JobProgress) -> Counted:
    """Counts when it is too late to cancel it."""
    progress.disable_cancellation()
    return count(spark, spec, progress)


def sleep(spark: SparkSession, spec: Sleep, progress: JobProgress) -> Counted:
    """Lets a task of Spark sleep, in a process of Python that Java has started."""
    _begin(spec, progress)
    progress.phase("sleeping")
    rest: Callable[[int], None] = lambda _: time.sleep(SECONDS_MAX)  # noqa: E731 - for executors
    features = spark.sparkContext.parallelize([0], 1).map(rest).count()
    return Counted(features, os.getpid(), spec.job_id, (spec.app_id, spec.author))


def _begin(spec: Count, progress: JobProgress) -> None:
    progress.say(f"process {os.getpid()}")
    if spec.has_child:
        subprocess.Popen(["sleep", str(SECONDS_MAX)])


def _wait(spec: Count, progress: JobProgress, name: str | None) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while name is not None and not Path(name).exists() and time.monotonic() < deadline:
        time.sleep(WAIT_SECONDS)
        if not spec.is_deaf:
            progress.advance(0)
        elif getattr(progress, "is_cancelled", False):
            Path(f"{name}.{CANCELLED}").touch()


count_job = Job(Count, count, "Count the features of a collection, slowly.", needs_spark=False)
once_job = Job(Once, count, "Count them once.", is_repeatable=False, needs_spark=False)
load_job = Job(Load, load, "Make some features.", JobAccess.WRITE, needs_spark=False)
wipe_job = Job(
    Wipe, wipe, "Count them, with the rights of who drops.", JobAccess.MANAGE, needs_spark=False
)
sleep_job = Job(Sleep, sleep, "Let Spark sleep.")
