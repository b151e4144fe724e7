"""Daily partitions of the transaction log and of histories, created ahead of their use.

A transaction that creates a partition blocks every other writer that needs it until it ends. So the
library creates partitions in short transactions of their own: when a storage is opened, before a
write needs them, and every hour for the following day. A failure here never fails the writer: the
log has a partition for all later days, and a history gets its day from the transaction that needs
it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from naksha.model.errors import NakshaError
from naksha.psql.connection.background_task import BackgroundTask
from naksha.psql.connection.driver import Connection, Connections, Direct, acquired
from naksha.psql.connection.errors import DRIVER_ERRORS, translated
from naksha.psql.sql import queries
from naksha.spi.clock import Clock

AHEAD_S: Final = 3600.0
"""Interval between two rounds that create tomorrow's partitions."""
RETRY_S: Final = 60.0
"""Pause after the log's partitions could not be created."""
_HISTORIES_MAX: Final = 10_000
"""Number of collections that are remembered to have today's history partition."""
_DAY_MS: Final = 86_400_000
_log = logging.getLogger(__name__)
_random = random.SystemRandom()


class DailyPartitions:
    """Cache of the partitions that one open storage knows to exist."""

    def __init__(
        self,
        connections: Connections,
        connect: Callable[[], Awaitable[Direct]],
        clock: Clock | None,
    ) -> None:
        self._connections = connections
        self._connect = connect
        self._clock = clock
        self._log_day: int | None = None
        self._log_retry_at = 0.0
        self._log_turn = asyncio.Lock()
        self._histories: dict[tuple[str, int], int] = {}

    def now_ms(self) -> int | None:
        """Return the injected time; None stands for the database's own clock."""
        return None if self._clock is None else self._clock.now_ms()

    async def prepare_log(self, now_ms: int | None) -> None:
        """Create the log's partitions for the day of `now_ms` and the next one, once a day."""
        day = _day(now_ms)
        if self._log_day == day or time.monotonic() < self._log_retry_at:
            return
        async with self._log_turn:
            if self._log_day == day:
                return
            try:
                with translated():
                    async with acquired(self._connections, leaves_nothing=True) as connection:
                        await connection.fetchval(queries()["prepare_log"], now_ms)
            except NakshaError as error:
                self._log_retry_at = time.monotonic() + RETRY_S
                _log.info(
                    "Could not create partitions of the transaction log; will retry: %s", error
                )
            else:
                self._log_day = day

    def has_history(self, collection: str, overlay: int, now_ms: int | None) -> bool:
        """Whether the partition of the day was created or looked up before."""
        return self._histories.get((collection, overlay)) == _day(now_ms)

    async def prepare_history(
        self, connection: Connection, collection: str, overlay: int, now_ms: int | None
    ) -> None:
        """Create a history's partition of the day.

        `connection` is in the transaction that needs it. The partition is created on another
        connection, outside of the pool, whose connections may all wait for this transaction.
        """
        values = (collection, overlay, now_ms)
        ready: bool | None = await connection.fetchval(queries()["history_ready"], *values)
        if ready is None:
            return
        if not ready:
            try:
                other = await self._connect()
                try:
                    await other.execute(queries()["prepare_history"], *values)
                finally:
                    await other.close()
            except DRIVER_ERRORS as error:
                _log.info(
                    "Could not create today's history partition of %s ahead of the write: %s",
                    collection,
                    error,
                )
        if len(self._histories) >= _HISTORIES_MAX:
            self._histories.clear()
        self._histories[collection, overlay] = _day(now_ms)

    async def prepare_ahead(self) -> None:
        """Create tomorrow's partitions: of the log, and of each history in use today."""
        async with acquired(self._connections, leaves_nothing=True) as connection:
            now_ms = await connection.fetchval(queries()["maintain_now"], self.now_ms())
            rows: list[Any] = await connection.fetch(queries()["histories_in_use"])
            for parent in ["naksha_tx", *(row["parent"] for row in rows)]:
                try:
                    await connection.fetchval(queries()["prepare_tomorrow"], parent, now_ms)
                except DRIVER_ERRORS as error:
                    if connection.is_closed():
                        raise
                    _log.info(
                        "Could not create tomorrow's partition of %s; will retry: %s", parent, error
                    )


class DailyPartitionTask(BackgroundTask):
    """Background task that calls `DailyPartitions.prepare_ahead` every hour, if `is_ours` holds."""

    title = "Creating tomorrow's partitions"

    def __init__(self, days: DailyPartitions, is_ours: Callable[[], bool]) -> None:
        super().__init__()
        self._days = days
        self._is_ours = is_ours

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(AHEAD_S * (0.5 + _random.random() / 2))
            if self._is_ours():
                await self._attempt(self._days.prepare_ahead)


def _day(now_ms: int | None) -> int:
    return (int(time.time() * 1000) if now_ms is None else now_ms) // _DAY_MS
