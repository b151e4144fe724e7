"""A job in a process of its own: it runs in a thread, so that a signal can end it at any time.

Whoever cancels it (SIGTERM) gets what Spark and the storage do now cancelled, and what was staged
dropped; a job that does not end in time is left behind with its process. What it wrote is one
transaction, which was made or was not: the storage is asked before anybody is told.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

import msgspec
from pyspark import SparkContext
from pyspark.sql import SparkSession

from naksha.model import limits
from naksha.model.errors import (
    Cancelled,
    Conflict,
    NakshaError,
    NotFound,
    OutcomeUnknown,
    TimedOut,
    Unavailable,
)
from naksha.model.status_codes import outward
from naksha.spark.jobs.frame import Access
from naksha.spark.jobs.registry import Asked
from naksha.spark.runtime.failures import failure_of
from naksha.spark.runtime.progress import LineProgress
from naksha.spark.runtime.sessions import session
from naksha.spark.runtime.storage_cache import Opened, Shared, close_all, end_calls, existing
from naksha.spark.source.options import Place
from naksha.spark.source.write import applied_job
from naksha.spi.jobs.messages import Done, Failed, Line

STARTING: Final = "starting Spark"
UNFORESEEN: Final = "The job failed in a way that nobody foresaw; its log has the reason"
_CANCEL: Final = object()
_UNSURE: Final = frozenset(kind.code for kind in (Cancelled, Unavailable, TimedOut, OutcomeUnknown))
"""Errors that may come after something was written."""
_WRITTEN_BY_ANOTHER: Final = NotFound.code
"""What is staged is gone when another run of the job, which nobody could stop, has applied it."""
_AGAIN_SECONDS: Final = 0.2
"""How often Spark is told to cancel what it does."""


class Run:
    """One run of a job."""

    def __init__(
        self, asked: Asked, progress: LineProgress, master: str, settings: Mapping[str, str]
    ) -> None:
        self._asked = asked
        self._progress = progress
        self._master = master
        self._settings = settings
        self._spark: SparkSession | None = None
        self._is_begun = False
        self._news: queue.SimpleQueue[object] = queue.SimpleQueue()

    def run(self) -> int:
        """Until it has ended; gives the exit code of the process."""
        signal.signal(signal.SIGTERM, self._cancel)
        signal.signal(signal.SIGINT, self._cancel)
        working = threading.Thread(target=self._work, name="naksha-job", daemon=True)
        working.start()
        line = self._news.get()
        if line is _CANCEL:
            line = self._cancelled()
        assert isinstance(line, Done | Failed)
        self._progress.end(line)
        return _exit_code(line)

    def close(self) -> None:
        """End Spark, and what this process has open."""
        if self._spark is not None:
            with contextlib.suppress(Exception):  # it may have been ended already
                self._spark.stop()
            _end_java()
        close_all()

    def _cancel(self, number: int, frame: FrameType | None) -> None:
        if self._progress.cancel():
            self._news.put(_CANCEL)

    def _cancelled(self) -> Line:
        """How it ended after it was to end: it may have been done by then."""
        end_calls()
        # Without an answer from Spark the process ends all the same.
        threading.Thread(target=self._keep_cancelling, daemon=True).start()
        try:
            line = self._news.get(timeout=limits.JOB_CANCEL_SECONDS_MAX)
        except queue.Empty:
            line = self._left_behind()
            self._progress.end(line)
            sys.stderr.flush()
            _terminate_group()
            os._exit(_exit_code(line))
        assert isinstance(line, Done | Failed)
        return line

    def _left_behind(self) -> Done | Failed:
        """How a job ended that does not. It cannot write any more, and it has its storage for
        itself; so another one is opened."""
        end_calls(for_good=True)
        answers: queue.SimpleQueue[Done | Failed] = queue.SimpleQueue()
        stuck = Failed.of(Cancelled("The job was cancelled, and did not end"))

        def ask() -> None:
            answers.put(self._settled(stuck, lambda place: Opened(place, must_exist=True)))

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answers.get(timeout=limits.JOB_SETTLE_SECONDS_MAX)
        except queue.Empty:
            return _unsure(stuck)

    def _keep_cancelling(self) -> None:
        """Again and again: what is cancelled may begin something else before it notices."""
        while True:
            if not self._is_begun:
                _terminate_group()  # it waits for Spark, which starts and listens to nobody
            elif self._spark is not None:
                self._spark.sparkContext.cancelAllJobs()
            time.sleep(_AGAIN_SECONDS)

    def _work(self) -> None:
        """In the thread of the job."""
        try:
            line: Line = self._done()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            failed = self._failure(error)
            line = _unsure(failed)
            with contextlib.suppress(Exception):  # somebody waits for the news
                line = self._settled(failed, existing)
        self._news.put(line)

    def _done(self) -> Done:
        progress, job = self._progress, self._asked.job
        if job.access is not Access.WRITE:
            existing(self._asked.spec.place)  # whoever only reads makes none
        if job.takes_spark(self._asked.spec):
            progress.phase(STARTING)
            name = f"naksha {job.name}"
            self._spark = session(self._master, name=name, settings=self._settings)
            self._spark.sparkContext.setJobGroup(name, job.about, interruptOnCancel=True)
        progress.check()
        self._is_begun = True
        spark: Any = self._spark  # None for a job that needs none
        report = job.run(spark, self._asked.spec, progress)
        code = 0 if job.exit_code is None else job.exit_code(report)
        return Done(msgspec.to_builtins(report), code)

    def _failure(self, error: BaseException) -> Failed:
        if self._progress.is_cancelled:
            # Whatever it was that broke, it was because of that.
            return Failed.of(Cancelled("The job was cancelled"))
        found = failure_of(error)
        if found is None:
            traceback.print_exception(error, file=sys.stderr)
            found = Failed(NakshaError.code, UNFORESEEN)
        return found

    def _settled(
        self, failed: Failed, storage_at: Callable[[Place], Opened | Shared]
    ) -> Done | Failed:
        """How it ended after it broke. What it was to write may have been written before: then it
        is done, whoever wished what. Else what was staged is of no use any more; if it cannot be
        dropped now, it is swept."""
        spec: Any = self._asked.spec
        job_id = getattr(spec, "job_id", "")
        if not job_id or self._asked.job.access is not Access.WRITE:
            return failed
        try:
            storage = storage_at(spec.place)
            is_asked = failed.code in _UNSURE or failed.code == _WRITTEN_BY_ANOTHER
            applied = applied_job(storage, job_id, spec.collection) if is_asked else None
            if applied is not None:
                return Done(msgspec.to_builtins(applied))
        except (NotFound, Conflict):
            return failed  # it was not even made, or the job is another one
        except NakshaError:
            return _unsure(failed)
        with contextlib.suppress(NakshaError):
            storage.call(lambda it: it.drop_staged(job_id))
        return failed


def _unsure(failed: Failed) -> Failed:
    """What is told when the storage does not say whether it was written."""
    if failed.code not in _UNSURE:
        return failed
    return Failed.of(
        OutcomeUnknown(f"{failed.message}; the storage does not answer whether it was written")
    )


def _exit_code(line: Done | Failed) -> int:
    return line.exit_code if isinstance(line, Done) else outward(line.error()).exit_code


def _terminate_group() -> None:
    """Let all end that this process has started; it hears of it, too, and knows already."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)


def _end_java() -> None:
    """Spark's process ends when nobody could tell it anything any more. It is waited for, so that
    nothing of a job is left when it has ended."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return  # somebody else has started it
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(limits.JOB_JAVA_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
