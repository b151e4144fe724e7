"""Progress as lines of JSON, for whoever has started the process."""

from __future__ import annotations

import threading
import time
from typing import BinaryIO, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import Cancelled
from naksha.spi.jobs.messages import Done, Late, Line, Moved, Phase, Said
from naksha.spi.jobs.reports import fitting

PAUSE_SECONDS: Final = 0.2
"""How often it is told that things are done: nobody reads faster."""
_AROUND_BYTES: Final = 1_000
"""More than the last line has besides the report."""


class LineProgress:
    """Tells lines; and ends the job, with the next call, once it was cancelled. Jobs may call it
    from several threads."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._done = 0
        self._told = 0
        self._told_at = 0.0
        self.is_cancelled = False
        self._is_late = False

    def phase(self, name: str, total: int | None = None) -> None:
        """Something new begins."""
        with self._lock:
            self._tell_moved()
            self._done = self._told = 0
            self._tell(Phase(name, total))
        self.check()

    def advance(self, count: int = 1) -> None:
        """So many more are done; told at most a few times a second."""
        with self._lock:
            self._done += count
            if time.monotonic() - self._told_at >= PAUSE_SECONDS:
                self._tell_moved()
        self.check()

    def say(self, text: str) -> None:
        """Something for the log."""
        with self._lock:
            self._tell(Said(text[: limits.JOB_SAID_LENGTH_MAX]))
        self.check()

    def too_late(self) -> None:
        """What follows is not cancelled any more."""
        # Each of the two first says what it does, and then looks at what the other one has said: so
        # it cannot be cancelled and be too late for that.
        self._is_late = True
        if self.is_cancelled:
            raise Cancelled("The job was cancelled")
        with self._lock:
            self._tell(Late())

    def cancel(self) -> bool:
        """Let the job end with its next call; tells whether that is new, and possible."""
        if self.is_cancelled:
            return False
        self.is_cancelled = True
        if self._is_late:
            self.is_cancelled = False
        return self.is_cancelled

    def end(self, line: Line) -> None:
        """The last line. A line that is too long would not be read, and the job taken for one that
        has ended without a word: a report is cut to what fits."""
        if isinstance(line, Done):
            report = fitting(line.report, limits.JOB_LINE_BYTES_MAX - _AROUND_BYTES)
            line = msgspec.structs.replace(line, report=report)
        with self._lock:
            self._tell_moved()
            self._tell(line)

    def check(self) -> None:
        """Raises Cancelled after somebody wished it to end."""
        if self.is_cancelled:
            raise Cancelled("The job was cancelled")

    def _tell_moved(self) -> None:
        if self._done != self._told:
            self._told, self._told_at = self._done, time.monotonic()
            self._tell(Moved(self._done))

    def _tell(self, line: Line) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")
        self._out.flush()
