"""Progress reporting as JSON lines, for the process that has started the job."""

from __future__ import annotations

import threading
import time
from typing import BinaryIO, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import Cancelled
from naksha.spi.jobs.messages import (
    DoneMessage,
    JobMessage,
    LogMessage,
    PhaseMessage,
    ProgressMessage,
    UncancellableMessage,
)
from naksha.spi.jobs.reports import fitting

_PAUSE_SECONDS: Final = 0.2
"""Minimum interval between two reports of a count."""
_AROUND_BYTES: Final = 1_000
"""Upper bound for the size of the last line without its report."""


class LineProgress:
    """Thread-safe writer of progress lines.

    Once the job was cancelled, the next call raises `Cancelled`.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._done = 0
        self._reported = 0
        self._reported_at = 0.0
        self.is_cancelled = False
        self._is_late = False

    def phase(self, name: str, total: int | None = None) -> None:
        """Report the start of a phase."""
        with self._lock:
            self._report_progress()
            self._done = self._reported = 0
            self._write_line(PhaseMessage(name, total))
        self.check()

    def advance(self, count: int = 1) -> None:
        """Add to the count of the phase; it is reported at most a few times a second."""
        with self._lock:
            self._done += count
            if time.monotonic() - self._reported_at >= _PAUSE_SECONDS:
                self._report_progress()
        self.check()

    def say(self, text: str) -> None:
        """Report a text for the log."""
        with self._lock:
            self._write_line(LogMessage(text[: limits.JOB_SAID_LENGTH_MAX]))
        self.check()

    def disable_cancellation(self) -> None:
        """Reject cancellation from now on.

        Raises:
            Cancelled: The job was cancelled before.
        """
        # This method and `cancel` each set their own flag before they read the other one, so both
        # cannot succeed.
        self._is_late = True
        if self.is_cancelled:
            raise Cancelled("The job was cancelled")
        with self._lock:
            self._write_line(UncancellableMessage())

    def cancel(self) -> bool:
        """Cancel the job with its next call; False if it was cancelled before or is too late."""
        if self.is_cancelled:
            return False
        self.is_cancelled = True
        if self._is_late:
            self.is_cancelled = False
        return self.is_cancelled

    def end(self, line: JobMessage) -> None:
        """Write the last line, with the report cut to the maximum size of a line.

        The reader rejects longer lines and would take the job for one that ended without a result.
        """
        if isinstance(line, DoneMessage):
            report = fitting(line.report, limits.JOB_LINE_BYTES_MAX - _AROUND_BYTES)
            line = msgspec.structs.replace(line, report=report)
        with self._lock:
            self._report_progress()
            self._write_line(line)

    def check(self) -> None:
        """Raise Cancelled if the job was cancelled."""
        if self.is_cancelled:
            raise Cancelled("The job was cancelled")

    def _report_progress(self) -> None:
        if self._done != self._reported:
            self._reported, self._reported_at = self._done, time.monotonic()
            self._write_line(ProgressMessage(self._done))

    def _write_line(self, line: JobMessage) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")
        self._out.flush()
