"""Clocks for tests that are moved by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.snowflake import EPOCH_MS

START_MS = EPOCH_MS + 1_000_000_000


class HandClock:
    """The two clocks of a machine, which go on together unless the wall clock is set."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.wall_ns = start_ms * 1_000_000
        self.monotonic_ns = 77_000_000_000

    def advance(self, seconds: float) -> None:
        self.monotonic_ns += int(seconds * 1e9)
        self.wall_ns += int(seconds * 1e9)

    def set_wall(self, seconds: float) -> None:
        """Move the wall clock by a number of seconds."""
        self.wall_ns += int(seconds * 1e9)

    def clock(self) -> MonotonicClock:
        return MonotonicClock(lambda: self.wall_ns, lambda: self.monotonic_ns)


class ListedClock:
    """Says one time after the other, the last one for ever."""

    def __init__(self, *times_ms: int) -> None:
        self._times_ms = list(times_ms)

    def now_ms(self) -> int:
        return self._times_ms.pop(0) if len(self._times_ms) > 1 else self._times_ms[0]


class TickingClock:
    """Goes on by a millisecond with every so-many-th reading."""

    def __init__(self, readings: int, start_ms: int = START_MS) -> None:
        self._readings = readings
        self._start_ms = start_ms
        self.read = 0

    def now_ms(self) -> int:
        self.read += 1
        return self._start_ms + self.read // self._readings


async def until(is_so: Callable[[], bool]) -> None:
    """Wait in real time until something is so."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
