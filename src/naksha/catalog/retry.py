"""Retries with random, exponentially growing pauses that end at a deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from naksha.model import limits


class Retries:
    """Attempts of one group of commits."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.count = 0
        self.slept_s = 0.0
        self._monotonic = monotonic
        self._sleep = sleep
        self._uniform = uniform
        self._upper_s = limits.COMMIT_DELAY_MS_MIN / 1000
        self._began = monotonic()

    def begin(self) -> None:
        """Start an attempt; its duration counts towards the pause that follows it."""
        self._began = self._monotonic()

    async def pause(self, deadline: float) -> None:
        """Wait before the next attempt, never past the deadline."""
        self.count += 1
        now = self._monotonic()
        wanted = self._uniform(0.0, self._upper_s) - (now - self._began)
        self._upper_s = min(2 * self._upper_s, limits.COMMIT_DELAY_MS_MAX / 1000)
        pause = min(wanted, deadline - now)
        if pause > 0:
            self.slept_s += pause
            await self._sleep(pause)
