"""Diagnosis of lock timeouts: name the sessions that hold the lock.

The error of a lock timeout does not say which session holds the lock, and the server cannot tell
once the statement has failed. So shortly before the timeout the holders are queried on a separate
connection.
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
"""How long before the timeout the server is queried."""


class LockWatch:
    """Context manager that watches one statement of a backend for a lock timeout."""

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
        # The schema's functions name the holder of their own locks, and set a detail.
        if isinstance(error, asyncpg.LockNotAvailableError) and not getattr(error, "detail", None):
            raise LockTimeout(
                f"Waited longer than {limits.LOCK_WAIT_SECONDS_MAX} s for a lock held by "
                f"{self._holders or 'a session that has ended since'}; retry later"
            ) from error

    def _start(self) -> None:
        self._task = asyncio.create_task(self._find_holders(), name="naksha-lock-watch")

    async def _find_holders(self) -> None:
        with suppress(*DRIVER_ERRORS):
            connection = await self._connect()
            try:
                self._holders = await connection.fetchval(queries()["lock_holders"], self._pid)
            finally:
                await connection.close()
