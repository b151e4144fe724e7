"""A hub whose days pass at the test's command, with its maintenance service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from naksha.catalog.backends import open_backend
from naksha.catalog.catalog import Tuning
from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.system_objects import MAINTENANCE_ID
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.hub import Hub
from naksha.hub.maintenance.schedule import MaintenanceSchedule
from naksha.hub.maintenance.service import MaintenanceService
from naksha.hub.maintenance.state import MaintenanceState, MaintenanceTable, state_id
from naksha.spi.storage import Storage
from tests.catalog.maintenance.support import YEAR, ManualTime, ScanHooks

DAY = 86_400.0
WAIT_SECONDS = 120.0


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait in real time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not await is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


class AgingHub:
    """A hub with a clock that is put forward."""

    def __init__(self, hub: Hub, time: ManualTime, service: MaintenanceService) -> None:
        self.hub = hub
        self.time = time
        self.service = service

    async def storage(self) -> Storage:
        return await (await self.hub.realm("default")).storage("default")

    async def state(self, storage_id: str = "default") -> MaintenanceState:
        """The state of a storage's maintenance."""
        realm = await self.hub.realm("default")
        kept = await MaintenanceTable(realm.opened.persistence).get(state_id(storage_id))
        return MaintenanceState(subject=storage_id) if kept is None else kept.value

    async def catalog_state(self) -> MaintenanceState:
        """The state of the catalog's maintenance."""
        kept = await MaintenanceTable(self.hub.catalog.system).get(MAINTENANCE_ID)
        return MaintenanceState(subject="") if kept is None else kept.value

    async def day_passes(self, days: float = 1) -> None:
        """Put the clock forward, and wait until all rounds that are due have ended."""
        self.time.passes(days * DAY)
        await self.settled()

    async def settled(self) -> None:
        """Wait until no round is due."""

        async def is_settled() -> bool:
            self.service.wake()
            states = [await self.state(), await self.catalog_state()]
            now_ms = self.hub.catalog.clock.now_ms()
            return all(not state.holder and state.due_ms > now_ms for state in states)

        await until(is_settled)


@asynccontextmanager
async def aging_hub(
    location: str,
    catalog: str,
    patch: pytest.MonkeyPatch,
    *,
    release: str = "1",
    schedule: MaintenanceSchedule | None = None,
    behind_seconds: float = 0,
) -> AsyncIterator[AgingHub]:
    """Open a hub; the time of the catalog's database passes as that of the hub.

    `behind_seconds` is how much the clock of the hub's machine is behind.
    """
    passing = ManualTime()

    async def opened(location: str, **options: Any) -> ScanHooks:
        return ScanHooks(await open_backend(location, **options), passing)

    patch.setattr("naksha.hub.hub.open_backend", opened)
    tuning = Tuning(lease=LeaseTimes(lease_seconds=10 * YEAR))
    storage = DefaultStorage(location=location)
    clock = passing.clock_behind(behind_seconds)
    hub = await Hub.open(catalog, storage, tuning=tuning, clock=clock)
    service = MaintenanceService(hub, schedule, release=release)
    service.start()
    try:
        yield AgingHub(hub, passing, service)
    finally:
        await service.close()
        await hub.close()


def catalog_in(directory: Path) -> str:
    """The location of a catalog in a file."""
    return f"file:{directory}/hub.catalog"
