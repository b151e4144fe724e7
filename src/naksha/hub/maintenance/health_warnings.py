"""Warnings of the detailed health check: what needs an operator before it becomes a failure."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from naksha.catalog.system_objects import MAINTENANCE_ID
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.maintenance.schedule import MaintenanceSchedule
from naksha.hub.maintenance.state import MaintenanceState, MaintenanceTable, state_id
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.spi.locations import FILE, STORAGES, path_of
from naksha.spi.storage import Storage

_DAY_MS: Final = 86_400_000


class HealthWarning(msgspec.Struct, frozen=True):
    """Something that needs attention; `code` never changes its meaning."""

    code: str
    subject: str
    message: str


async def catalog_warnings(
    hub: Hub, schedule: MaintenanceSchedule, directories: Mapping[str, Path]
) -> list[HealthWarning]:
    """Return the warnings about the catalog, the instances' clocks, and directories by name."""
    found = []
    for name, directory in directories.items():
        found += await _disk(name, directory)
    table = MaintenanceTable(hub.catalog.system)
    kept = await table.get(MAINTENANCE_ID)
    if kept is not None and schedule.is_on:
        found += _overdue("catalog", kept.value, table.now_ms, schedule.catalog_seconds)
    for lease in await hub.catalog.node.living():
        skew_ms = lease.skew_ms or 0
        if abs(skew_ms) > limits.CLOCK_SKEW_SECONDS_MAX * 1_000:
            message = (
                f"The clock of this instance is {abs(skew_ms) / 1_000:,.1f} s "
                f"{'ahead of' if skew_ms > 0 else 'behind'} the catalog's database, so the catalog "
                "is not swept; synchronize it"
            )
            found.append(HealthWarning("clock_differs", f"instance/{lease.holder}", message))
    return found


async def storage_warnings(
    hub: Hub, realm: RealmHub, things: Sequence[StorageObject], schedule: MaintenanceSchedule
) -> list[HealthWarning]:
    """Return the warnings about storages of a realm that respond."""
    table = MaintenanceTable(realm.opened.persistence)
    found: list[HealthWarning] = []
    for start in range(0, len(things), limits.CATALOG_BATCH_MAX):
        some = things[start : start + limits.CATALOG_BATCH_MAX]
        async with asyncio.timeout(limits.HEALTH_SECONDS_MAX):
            known = await table.read([state_id(thing.id) for thing in some])
        for thing in some:
            name, kept = f"storage/{thing.id}", known.get(state_id(thing.id))
            if kept is not None and schedule.is_on:
                found += _overdue(name, kept.value, table.now_ms, schedule.interval_seconds)
            if kept is not None:
                found += _aging(name, kept.value, table.now_ms)
        checks = [_measured(hub, realm, thing, table.now_ms) for thing in some]
        for warnings in await asyncio.gather(*checks):
            found += warnings
    return found


async def _measured(
    hub: Hub, realm: RealmHub, thing: StorageObject, now_ms: int
) -> list[HealthWarning]:
    """Return the warnings about a storage that need the storage; it may be slow."""
    name = f"storage/{thing.id}"
    found: list[HealthWarning] = []
    with suppress(NakshaError, TimeoutError):  # reported as a failed check
        async with asyncio.timeout(limits.HEALTH_SECONDS_MAX):
            location, _ = hub.storages.located(thing)
            if STORAGES.scheme_of(location) == FILE:
                found += await _disk(name, Path(path_of(location)).parent)
            found += await _held(name, await realm.storage(thing.id), now_ms)
    return found


def _overdue(
    name: str, state: MaintenanceState, now_ms: int, seconds: float
) -> list[HealthWarning]:
    if not state.is_overdue(now_ms, seconds):
        return []
    hours = (now_ms - state.due_ms) / 3_600_000
    message = (
        f"Its maintenance round is {hours:,.1f} hours late; GET /hub/maintenance shows the last one"
    )
    return [HealthWarning("maintenance_overdue", name, message)]


def _aging(name: str, state: MaintenanceState, now_ms: int) -> list[HealthWarning]:
    """Return the warnings about what the last round has measured."""
    rounds = [one for one in (state.last, state.last_dry) if one is not None]
    if not rounds:
        return []
    vitals, found = max(rounds, key=lambda one: one.ended_ms).vitals, []
    if vitals.partitions is not None and vitals.partitions > limits.PARTITIONS_WARNED:
        message = (
            f"The history of collection {vitals.partitioned!r} has {vitals.partitions} partitions; "
            "their merge is blocked or put off"
        )
        found.append(HealthWarning("many_partitions", name, message))
    since_ms = vitals.oldest_pin_ms
    if since_ms is not None and now_ms - since_ms > limits.PIN_WARNED_DAYS * _DAY_MS:
        days = (now_ms - since_ms) // _DAY_MS
        message = (
            f"The pin {vitals.oldest_pin!r} keeps history for {days} days; remove what it belongs "
            "to (a tag, a branch, a subscription) if it is not needed"
        )
        found.append(HealthWarning("old_pin", name, message))
    return found


async def _held(name: str, storage: Storage, now_ms: int) -> list[HealthWarning]:
    status = await storage.publication()
    since_ms = status.held_back_since_ms
    if status.held_back_by is None or since_ms is None:
        return []
    seconds = (now_ms - since_ms) / 1_000
    if seconds <= limits.PUBLICATION_HELD_SECONDS:
        return []
    message = (
        f"{status.unpublished} transactions have waited for {seconds:,.0f} s to be published; "
        f"they are held back by {status.held_back_by}"
    )
    return [HealthWarning("publication_held", name, message)]


async def _disk(name: str, directory: Path) -> list[HealthWarning]:
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, directory)
    except OSError:
        return []  # the check of the storage or catalog itself reports it
    is_low = usage.free * 100 < usage.total * limits.DISK_FREE_PERCENT_MIN
    if not is_low or usage.free >= limits.DISK_FREE_BYTES_MIN:
        return []
    message = f"The disk of {str(directory)!r} has only {usage.free // limits.MIB:,} MiB left"
    return [HealthWarning("disk_nearly_full", name, message)]
