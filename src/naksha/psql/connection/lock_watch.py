"""Name the sessions that hold a lock which a statement waits for in vain.

The error of a lock time-out does not say who holds the lock, and after it nobody knows any more. So
shortly before the time-out the server is asked, on a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import asyncpg

from naksha.model import limits
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import DRIVER_ERRORS, LockTimeout
from naksha.psql.sql import queries

AHEAD_S: Final = 2.0
"""How long before the time-out the server is asked."""


class LockWatch:
    """Watches one statement of a backend; a context manager around it."""

    def __init__(self, connect: Callable[[], Awaitable[Direct]], pid: int) -> None:
        self._connect = connect
        self._pid = pid
        self._holders: str | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        delay = max(limits.LOCK_WAIT_SECONDS_MAX - AHEAD_S, 0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._start)

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, *__: object
    ) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        # The schema's own waits name the holder in their message, and have a detail.
        if isinstance(error, asyncpg.LockNotAvailableError) and not getattr(error, "detail", None):
            raise LockTimeout(
                f"Waited longer than {limits.LOCK_WAIT_SECONDS_MAX} s for a lock held by "
                f"{self._holders or 'a session that has ended since'}"
            ) from error

    def _start(self) -> None:
        self._task = asyncio.create_task(self._ask(), name="naksha-lock-watch")

    async def _ask(self) -> None:
        with suppress(*DRIVER_ERRORS):
            connection = await self._connect()
            try:
                self._holders = await connection.fetchval(queries()["lock_holders"], self._pid)
            finally:
                await connection.close()
