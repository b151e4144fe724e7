"""Maintenance in the background: a round every so often, whatever the last one came to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from naksha.psql.connection.background import Background

JITTER: Final = 0.2
"""Part of the interval that is left to chance, so that many storages do not work in step."""
_random = random.SystemRandom()


class Maintainer(Background):
    """Calls `work` every `interval_s` seconds, the first time after a random part of that."""

    title = "Maintenance"

    def __init__(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        super().__init__()
        self._work = work
        self._interval_s = interval_s

    async def _loop(self) -> None:
        await asyncio.sleep(self._interval_s * _random.random())
        while True:
            await self._attempt(self._work)
            await asyncio.sleep(self._interval_s * (1 + JITTER * (_random.random() - 0.5)))
