"""Injectable clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in epoch milliseconds; tests pass one that they can set."""

    def now_ms(self) -> int: ...


class SystemClock:
    """Clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def boot_seconds() -> float:
    """Return a clock that keeps running while the process is suspended or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
