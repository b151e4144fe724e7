"""Periodic maintenance in the background; a failed round does not stop the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from naksha.psql.connection.background_task import BackgroundTask

_JITTER: Final = 0.2
"""Random part of the interval, so that many storages do not run in lockstep."""
_random = random.SystemRandom()


class MaintenanceTask(BackgroundTask):
    """Background task that calls `work` every `interval_s` seconds.

    The first call follows after a random part of the interval.
    """

    title = "Maintenance"

    def __init__(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        super().__init__()
        self._work = work
        self._interval_s = interval_s

    async def _loop(self) -> None:
        await asyncio.sleep(self._interval_s * _random.random())
        while True:
            await self._attempt(self._work)
            await asyncio.sleep(self._interval_s * (1 + _JITTER * (_random.random() - 0.5)))
