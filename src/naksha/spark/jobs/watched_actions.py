"""Execution of Spark actions with progress reporting and cancellation."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from naksha.spark.jobs.frame import JobProgress
from naksha.spark.runtime.failures import ours

T = TypeVar("T")
_LOOK_SECONDS: Final = 0.2


def watched(spark: SparkSession, progress: JobProgress, name: str, action: Callable[[], T]) -> T:
    """Run an action and report how many of its tasks are done.

    If `progress` raises an error, the tasks are cancelled, too.

    Raises:
        NakshaError: The error of a task, with the field and the feature that it concerns.
    """
    context = spark.sparkContext
    group = f"naksha-{uuid.uuid4().hex}"
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        context.setJobGroup(group, name, interruptOnCancel=True)
        try:
            result.append(action())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            failure.append(error)

    thread = InheritableThread(target=run, name=name, session=spark)
    progress.phase(name)
    thread.start()
    try:
        _watch(context, group, thread, progress, name)
    except BaseException:
        # Repeated, because the action may currently be between two Spark jobs.
        while thread.is_alive():
            context.cancelJobGroup(group)
            thread.join(_LOOK_SECONDS)
        raise
    if failure:
        raise ours(failure[0])
    return result[0]


def _watch(
    context: SparkContext, group: str, thread: threading.Thread, progress: JobProgress, name: str
) -> None:
    done = total = 0
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        known, finished = _tasks(context, group)
        if known != total:
            total, done = known, 0
            progress.phase(name, total)
        progress.advance(finished - done)
        done = finished


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Count the tasks of the jobs of a group, and how many of them are done."""
    tracker = context.statusTracker()
    stages = []
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        stages += [] if found is None else list(found.stageIds)
    infos = [info for info in map(tracker.getStageInfo, set(stages)) if info is not None]
    return sum(info.numTasks for info in infos), sum(info.numCompletedTasks for info in infos)
