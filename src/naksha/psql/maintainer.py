"""Maintenance in the background: a round every so often, whatever the last one came to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from naksha.model.errors import NakshaError

JITTER: Final = 0.2
"""Part of the interval that is left to chance, so that many storages do not work in step."""
_log = logging.getLogger(__name__)
_random = random.SystemRandom()


class Maintainer:
    """Calls `work` every `interval_s` seconds, the first time after a random part of that."""

    def __init__(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        self._work = work
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._loop(), name="naksha-maintainer")

    async def close(self) -> None:
        """Stop, also in the middle of a round; the next one goes on where it was."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _loop(self) -> None:
        await asyncio.sleep(self._interval_s * _random.random())
        while True:
            try:
                await self._work()
            except NakshaError as error:
                _log.warning("Maintenance failed and will be tried again: %s", error)
            except Exception:  # noqa: BLE001
                _log.exception("Maintenance failed and will be tried again")
            await asyncio.sleep(self._interval_s * (1 + JITTER * (_random.random() - 0.5)))
