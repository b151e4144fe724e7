"""Background refresh of optimal partitionings after new versions, by one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from naksha.model.errors import NakshaError
from naksha.psql.connection.background_task import BackgroundTask
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.errors import translated
from naksha.psql.maintenance.partitioning import PartitioningStore
from naksha.psql.sql import queries

PARTITIONER: Final = 6
"""Number of the advisory lock; see naksha_lock_class in the schema."""
PAUSE_S: Final = 1.0
"""Pause between two rounds, which batches the versions published meanwhile."""
_log = logging.getLogger(__name__)


async def refresh_outdated(
    partitionings: PartitioningStore, connect: Callable[[], Awaitable[Direct]]
) -> list[str]:
    """Refresh collections with `optimalPartitioning` that were written to; return their names.

    The result is empty while another process is refreshing. A failure of one collection does not
    affect the others.
    """
    with translated():
        connection = await connect()
    try:
        with translated():
            if not await connection.fetchval(queries()["try_lock"], PARTITIONER):
                return []
            rows = await connection.fetch(queries()["partitioned_collections"])
        names = [row["id"] for row in rows]
        return [name for name in names if await _refresh(partitionings, name)]
    finally:
        # Closing the connection releases the lock.
        with contextlib.suppress(Exception):
            await connection.close(timeout=PAUSE_S)


async def _refresh(partitionings: PartitioningStore, collection: str) -> bool:
    try:
        if await partitionings.stored(collection) is not None:
            return False
        await partitionings.refresh(collection)
    except NakshaError as error:
        _log.warning("Could not compute the partitioning of collection %s: %s", collection, error)
        return False
    return True


class PartitioningTask(BackgroundTask):
    """Background task that refreshes the outdated partitionings of collections.

    It checks the collections with `optimalPartitioning` at the start, and whenever
    `wait_for_version` returns.
    """

    title = "Partitioning"

    def __init__(
        self,
        partitionings: PartitioningStore,
        connect: Callable[[], Awaitable[Direct]],
        wait_for_version: Callable[[float], Awaitable[object]],
        interval_s: float,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__()
        self._partitionings = partitionings
        self._connect = connect
        self._wait_for_version = wait_for_version
        self._interval_s = interval_s
        self._pause_s = pause_s

    async def round(self) -> list[str]:
        """Run one round; see `refresh_outdated`."""
        return await refresh_outdated(self._partitionings, self._connect)

    async def _loop(self) -> None:
        while True:
            # Start to listen before checking: a version published meanwhile ends the wait at
            # once.
            wait_for_version = asyncio.ensure_future(self._wait_for_version(self._interval_s))
            try:
                await self._attempt(self.round)
                await asyncio.sleep(self._pause_s)
                await wait_for_version
            finally:
                wait_for_version.cancel()
