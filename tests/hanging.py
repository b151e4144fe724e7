"""Watchdog that ends a hanging test process where pytest-timeout has no effect.

That is in a clean-up after its time-out, or at the very end of the run. So the run ends with a
reason, and soon enough to be read.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading

import pytest

TEST_SECONDS_MAX = 1500
ENDING_SECONDS_MAX = 300
LONG_ENDING_SECONDS_MAX = 3 * 3600
"""In a long run a process that is done waits for others."""


class Watch:
    """A deadline that is put off again and again. A thread, since pytest cancels the timer of
    faulthandler whenever a test fails."""

    def __init__(self, seconds: float, reason: str) -> None:
        self._is_over = threading.Event()
        arguments = (seconds, reason)
        self._thread = threading.Thread(target=self._wait, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the watch."""
        self._is_over.set()
        self._thread.join()

    def _wait(self, seconds: float, reason: str) -> None:
        if self._is_over.wait(seconds):
            return
        reported = sys.__stderr__
        assert reported is not None
        reported.write(f"\n{reason}: no end after {seconds:.0f} s\n")
        faulthandler.dump_traceback(reported, all_threads=True)
        reported.flush()
        os._exit(70)


def watch_test(item: pytest.Item) -> Watch:
    """Watch a test with all that is before and after it."""
    marker = item.get_closest_marker("timeout")
    allowed = float(marker.args[0]) if marker is not None else 0.0
    return Watch(max(TEST_SECONDS_MAX, 2 * allowed), item.nodeid)


def watch_end(config: pytest.Config) -> Watch:
    """Watch what comes after the last test."""
    is_long = config.getoption("--long")
    seconds = LONG_ENDING_SECONDS_MAX if is_long else ENDING_SECONDS_MAX
    return Watch(seconds, "The end of the run")
