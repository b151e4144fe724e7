"""Execution of a job in its own process, in a thread so that a signal can end it at any time.

SIGTERM cancels the current work of Spark and of the storage and drops staged data. A job that does
not end in time is abandoned together with its process. A job writes at most one transaction; after
a failure the storage is asked whether it was applied before the result is reported.
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
from naksha.model.status_codes import status_codes_of
from naksha.spark.jobs.frame import JobAccess
from naksha.spark.jobs.registry import JobRequest
from naksha.spark.runtime.failures import failure_of
from naksha.spark.runtime.progress import LineProgress
from naksha.spark.runtime.sessions import session
from naksha.spark.runtime.storage_cache import (
    OpenStorage,
    SharedStorage,
    close_all,
    end_calls,
    existing_storage,
)
from naksha.spark.source.options import StorageRef
from naksha.spark.source.write import applied_job
from naksha.spi.jobs.messages import DoneMessage, FailedMessage, JobMessage

STARTING: Final = "starting Spark"
_UNFORESEEN: Final = "The job failed unexpectedly; see its log for the reason"
_CANCEL: Final = object()
_UNSURE: Final = frozenset(kind.code for kind in (Cancelled, Unavailable, TimedOut, OutcomeUnknown))
"""Errors that may be raised after the transaction was applied."""
_WRITTEN_BY_ANOTHER: Final = NotFound.code
"""Staged data is missing if another run of the same job, still active, has applied it."""
_AGAIN_SECONDS: Final = 0.2
"""Interval between requests to Spark to cancel its jobs."""


class JobRun:
    """One run of a job."""

    def __init__(
        self, request: JobRequest, progress: LineProgress, master: str, settings: Mapping[str, str]
    ) -> None:
        self._request = request
        self._progress = progress
        self._master = master
        self._settings = settings
        self._spark: SparkSession | None = None
        self._is_begun = False
        self._news: queue.SimpleQueue[object] = queue.SimpleQueue()

    def run(self) -> int:
        """Run the job to its end and return the exit code of the process."""
        signal.signal(signal.SIGTERM, self._cancel)
        signal.signal(signal.SIGINT, self._cancel)
        working = threading.Thread(target=self._work, name="naksha-job", daemon=True)
        working.start()
        line = self._news.get()
        if line is _CANCEL:
            line = self._wait_for_cancelled()
        assert isinstance(line, DoneMessage | FailedMessage)
        self._progress.end(line)
        return _exit_code(line)

    def close(self) -> None:
        """Stop Spark and close the open storages of this process."""
        if self._spark is not None:
            with contextlib.suppress(Exception):  # it may have been stopped already
                self._spark.stop()
            _end_java()
        close_all()

    def _cancel(self, number: int, frame: FrameType | None) -> None:
        if self._progress.cancel():
            self._news.put(_CANCEL)

    def _wait_for_cancelled(self) -> JobMessage:
        """Wait for the end of a cancelled job; it may have succeeded in the meantime."""
        end_calls()
        # In a thread of its own: the process must end even if Spark does not respond.
        threading.Thread(target=self._keep_cancelling, daemon=True).start()
        try:
            line = self._news.get(timeout=limits.JOB_CANCEL_SECONDS_MAX)
        except queue.Empty:
            line = self._recorded_result()
            self._progress.end(line)
            sys.stderr.flush()
            _terminate_group()
            os._exit(_exit_code(line))
        assert isinstance(line, DoneMessage | FailedMessage)
        return line

    def _recorded_result(self) -> DoneMessage | FailedMessage:
        """Determine the result of a job that does not end.

        Its calls are disabled, so it cannot write any more. It may block its storage object, so
        another one is opened.
        """
        end_calls(for_good=True)
        responses: queue.SimpleQueue[DoneMessage | FailedMessage] = queue.SimpleQueue()
        stuck = FailedMessage.of(Cancelled("The job was cancelled but did not end in time"))

        def ask() -> None:
            responses.put(self._settled(stuck, lambda place: OpenStorage(place, must_exist=True)))

        threading.Thread(target=ask, daemon=True).start()
        try:
            return responses.get(timeout=limits.JOB_SETTLE_SECONDS_MAX)
        except queue.Empty:
            return _unknown_outcome(stuck)

    def _keep_cancelling(self) -> None:
        """Cancel repeatedly: the job may start more work before it notices the cancellation."""
        while True:
            if not self._is_begun:
                _terminate_group()  # Spark cannot be cancelled while it starts
            elif self._spark is not None:
                self._spark.sparkContext.cancelAllJobs()
            time.sleep(_AGAIN_SECONDS)

    def _work(self) -> None:
        """Run in the thread of the job."""
        try:
            line: JobMessage = self._done()
        except BaseException as error:  # noqa: BLE001 - every failure is reported
            failed = self._failure(error)
            line = _unknown_outcome(failed)
            with contextlib.suppress(Exception):  # `run` waits for a line in any case
                line = self._settled(failed, existing_storage)
        self._news.put(line)

    def _done(self) -> DoneMessage:
        progress, job = self._progress, self._request.job
        if job.access is not JobAccess.WRITE:
            existing_storage(
                self._request.spec.place
            )  # a job that only reads does not create a storage
        if job.takes_spark(self._request.spec):
            progress.phase(STARTING)
            name = f"naksha {job.name}"
            self._spark = session(self._master, name=name, settings=self._settings)
            self._spark.sparkContext.setJobGroup(name, job.about, interruptOnCancel=True)
        progress.check()
        self._is_begun = True
        spark: Any = self._spark  # None for a job that does not use Spark
        report = job.run(spark, self._request.spec, progress)
        code = 0 if job.exit_code is None else job.exit_code(report)
        return DoneMessage(msgspec.to_builtins(report), code)

    def _failure(self, error: BaseException) -> FailedMessage:
        if self._progress.is_cancelled:
            # Any error after a cancellation is taken for a consequence of it.
            return FailedMessage.of(Cancelled("The job was cancelled"))
        found = failure_of(error)
        if found is None:
            traceback.print_exception(error, file=sys.stderr)
            found = FailedMessage(NakshaError.code, _UNFORESEEN)
        return found

    def _settled(
        self, failed: FailedMessage, storage_at: Callable[[StorageRef], OpenStorage | SharedStorage]
    ) -> DoneMessage | FailedMessage:
        """Determine the result of a job after an error.

        If its transaction was applied nevertheless, the job is done, even when it was cancelled.
        Otherwise its staged data is dropped; if that fails, staged data is swept later.
        """
        spec: Any = self._request.spec
        job_id = getattr(spec, "job_id", "")
        if not job_id or self._request.job.access is not JobAccess.WRITE:
            return failed
        try:
            storage = storage_at(spec.place)
            is_asked = failed.code in _UNSURE or failed.code == _WRITTEN_BY_ANOTHER
            applied = applied_job(storage, job_id, spec.collection) if is_asked else None
            if applied is not None:
                return DoneMessage(msgspec.to_builtins(applied))
        except (NotFound, Conflict):
            return failed  # the storage or collection does not exist, or another job has this id
        except NakshaError:
            return _unknown_outcome(failed)
        with contextlib.suppress(NakshaError):
            storage.call(lambda it: it.drop_staged(job_id))
        return failed


def _unknown_outcome(failed: FailedMessage) -> FailedMessage:
    """Convert a failure for a storage that cannot report whether the write was applied."""
    if failed.code not in _UNSURE:
        return failed
    return FailedMessage.of(
        OutcomeUnknown(
            f"{failed.message}; the storage did not report whether the job's result was written, "
            "so check before you repeat the job"
        )
    )


def _exit_code(line: DoneMessage | FailedMessage) -> int:
    return (
        line.exit_code if isinstance(line, DoneMessage) else status_codes_of(line.error()).exit_code
    )


def _terminate_group() -> None:
    """Send SIGTERM to the process group; this process gets it too, and ignores the repetition."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)


def _end_java() -> None:
    """End Spark's Java process and wait for it.

    Java ends when its stdin is closed. After that no process of the job is left.
    """
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return  # it was not started by this process
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(limits.JOB_JAVA_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
