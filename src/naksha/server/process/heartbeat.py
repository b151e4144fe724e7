"""Whether a worker process still works: its event loop counts, and its supervisor looks at that.

A process that hangs is there, keeps its part of the connections, and answers nobody. Only the
process itself can show that it does not, and only by the loop that serves: a thread would go on.
"""

from __future__ import annotations

import asyncio
from multiprocessing.context import SpawnContext
from typing import Final

from naksha.model import limits

_LOOKS: Final = 4
"""How often a worker is looked at before it is given up, so that one late look gives up none."""


class Pulse:
    """A count in memory that both processes have; picklable for a process that is started."""

    def __init__(self, processes: SpawnContext) -> None:
        self._count = processes.RawValue("Q", 0)

    @property
    def count(self) -> int:
        """Signs of life so far."""
        return int(self._count.value)

    def beat(self) -> None:
        """Give a sign of life."""
        self._count.value += 1

    async def keep_beating(self, seconds: float) -> None:
        """Again and again, until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(seconds)


class Watch:
    """The supervisor's side of one worker."""

    def __init__(self, pulse: Pulse, seconds_max: float) -> None:
        self.pulse = pulse
        self._seconds_max = seconds_max
        self._seen = 0
        self._silent_seconds = 0.0

    def look(self, seconds: float) -> bool:
        """Whether it is to be given up. `seconds` have passed since the last look; who looks late
        may have been stopped together with the worker, so that longer than usual does not count."""
        count = self.pulse.count
        if count != self._seen:
            self._seen, self._silent_seconds = count, 0.0
            return False
        self._silent_seconds += min(seconds, look_seconds(self._seconds_max))
        return self._silent_seconds >= (self._seconds_max if count else self._starting_seconds)

    @property
    def _starting_seconds(self) -> float:
        """One that has never beaten is still loading."""
        return max(self._seconds_max, limits.WORKER_START_SECONDS_MAX)


def look_seconds(seconds_max: float) -> float:
    """How often to look, and to beat twice as often, if so much silence is too much."""
    return min(1.0, seconds_max / _LOOKS)
