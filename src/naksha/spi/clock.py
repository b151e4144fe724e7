"""Time, injectable."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock in epoch milliseconds. Tests pass one they can move."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def boot_seconds() -> float:
    """A clock that goes on while the process is stopped, and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
