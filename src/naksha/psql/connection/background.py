"""Work in the background of an open storage: begun, repeated whatever it comes to, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from naksha.model.errors import NakshaError
from naksha.spi.support.cancellation import check_cancelled


class Background(ABC):
    """One task, in which a subclass goes in a loop. `title` is what the log calls its work."""

    title: str

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            name = f"naksha-{type(self).__name__.lower()}"
            self._task = asyncio.create_task(self._loop(), name=name)

    async def close(self) -> None:
        """Stop, also in the middle of a round; the next one goes on where it was."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @abstractmethod
    async def _loop(self) -> None: ...

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> None:
        """One round; an error is logged and ends nothing."""
        logger = logging.getLogger(type(self).__module__)
        try:
            await work()
        except NakshaError as error:
            check_cancelled()
            logger.warning("%s failed and will be tried again: %s", self.title, error)
        except Exception:
            check_cancelled()
            logger.exception("%s failed and will be tried again", self.title)
