"""Background tasks of an open storage: started, repeated after errors, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from naksha.model.errors import NakshaError
from naksha.spi.support.cancellation import check_cancelled


class BackgroundTask(ABC):
    """Base class of a background task; a subclass implements its loop.

    `title` names the work in log messages.
    """

    title: str

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            name = f"naksha-{type(self).__name__.lower()}"
            self._task = asyncio.create_task(self._loop(), name=name)

    async def close(self) -> None:
        """Stop the task, also in the middle of a round; a later round resumes the work."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @abstractmethod
    async def _loop(self) -> None: ...

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run one round; log an error instead of raising it."""
        logger = logging.getLogger(type(self).__module__)
        try:
            await work()
        except NakshaError as error:
            check_cancelled()
            logger.warning("%s failed and will be retried: %s", self.title, error)
        except Exception:
            check_cancelled()
            logger.exception("%s failed and will be retried", self.title)
