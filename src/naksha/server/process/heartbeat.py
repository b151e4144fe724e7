"""Heartbeats of workers: the event loop increments a counter, which the supervisor polls.

A worker that hangs still exists and holds connections but answers no request. Only its event loop
can show that it serves; a thread would go on beating while the loop is blocked.
"""

from __future__ import annotations

import asyncio
from multiprocessing.context import SpawnContext
from typing import Final

from naksha.model import limits

_LOOKS: Final = 4
"""Polls within the limit, so that a single late poll does not condemn a worker."""


class Heartbeat:
    """Heartbeat counter in shared memory; can be pickled for a process that is being spawned."""

    def __init__(self, processes: SpawnContext) -> None:
        self._count = processes.RawValue("Q", 0)

    @property
    def count(self) -> int:
        """The number of heartbeats so far."""
        return int(self._count.value)

    def beat(self) -> None:
        """Record a heartbeat."""
        self._count.value += 1

    async def keep_beating(self, seconds: float) -> None:
        """Beat periodically, until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(seconds)


class WorkerWatch:
    """The supervisor's view of one worker."""

    def __init__(self, heartbeat: Heartbeat, seconds_max: float) -> None:
        self.heartbeat = heartbeat
        self._seconds_max = seconds_max
        self._seen = 0
        self._silent_seconds = 0.0

    def look(self, seconds: float) -> bool:
        """Return whether the worker hangs. `seconds` is the time since the last call.

        A long gap counts as one polling interval only: the supervisor may have been suspended
        together with the worker.
        """
        count = self.heartbeat.count
        if count != self._seen:
            self._seen, self._silent_seconds = count, 0.0
            return False
        self._silent_seconds += min(seconds, look_seconds(self._seconds_max))
        return self._silent_seconds >= (self._seconds_max if count else self._starting_seconds)

    @property
    def _starting_seconds(self) -> float:
        """The limit for a worker that has never beaten: it is still starting."""
        return max(self._seconds_max, limits.WORKER_START_SECONDS_MAX)


def look_seconds(seconds_max: float) -> float:
    """Return the polling interval for a limit of silence; workers beat twice as often."""
    return min(1.0, seconds_max / _LOOKS)
