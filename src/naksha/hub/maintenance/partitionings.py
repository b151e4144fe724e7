"""Refresh of optimal partitionings soon after new versions.

Every instance watches the storages that it has open; a storage lets one of them compute at a time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from naksha.hub.hub import Hub
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.spi.storage import Storage
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 600.0


class PartitioningWatch:
    """Tasks that keep the partitionings of open storages up to date."""

    def __init__(self, hub: Hub, pause_seconds: float = limits.PARTITIONING_PAUSE_SECONDS) -> None:
        self._hub = hub
        self._pause_seconds = pause_seconds
        self._tasks: dict[Storage, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching."""
        self._task = asyncio.create_task(self._watch_all(), name="naksha-partitionings")

    async def close(self) -> None:
        """Stop all tasks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stop(list(self._tasks))

    async def _watch_all(self) -> None:
        while True:
            opened = {storage for _, storage in self._hub.storages.opened()}
            await self._stop([storage for storage in self._tasks if storage not in opened])
            for storage in opened - self._tasks.keys():
                name = f"naksha-partitionings {storage.id}"
                self._tasks[storage] = asyncio.create_task(self._watch(storage), name=name)
            await asyncio.sleep(limits.MAINTENANCE_LOOK_SECONDS)

    async def _stop(self, storages: list[Storage]) -> None:
        tasks = [self._tasks.pop(storage) for storage in storages]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, storage: Storage) -> None:
        seen, is_needed = -1, False
        while True:
            try:
                known = await storage.wait_beyond(-1, 0)
                if known != seen:  # settings change with a version, too
                    is_needed = await _has_partitionings(storage)
                    seen = known
                if is_needed:
                    await storage.refresh_partitionings()
                await asyncio.sleep(self._pause_seconds)
                if is_needed:  # a storage may poll at short intervals
                    await storage.wait_beyond(known, _WAIT_SECONDS)
            except NakshaError as error:
                check_cancelled()
                _log.info(
                    "The partitionings of storage %s will be checked later: %s", storage.id, error
                )
                await asyncio.sleep(self._pause_seconds)
            except Exception:  # noqa: BLE001 - retried, whatever it is
                check_cancelled()
                _log.exception("The partitionings of storage %s will be checked later", storage.id)
                await asyncio.sleep(self._pause_seconds)


async def _has_partitionings(storage: Storage) -> bool:
    return any(info.optimal_partitioning for info in await storage.collections())
