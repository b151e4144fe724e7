"""One round: of a storage, or of the catalog.

A round records what it did in a `StorageRound`; the storage and the catalog decide what is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from naksha.catalog.maintenance import Maintenance, MaintenanceRun, RealmOutcome
from naksha.catalog.maintenance.store_check import RealmCheck
from naksha.catalog.maintenance.verification import Consistency
from naksha.catalog.realms import RealmStatus
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import Hub
from naksha.hub.maintenance.realm_purge import HubRealms
from naksha.model import limits
from naksha.model.errors import NotSupported, ReadOnly, StorageCorrupt
from naksha.spi.maintenance import StepPostponed, StorageRound
from naksha.versioning import maintain_storage

_SWEEP: Final = "mark and sweep"
_BEATS_MISSED: Final = 3
"""Heartbeats after which the run of an instance that lost the lease counts as dead."""
_LOOKS_MAX: Final = 2 * _BEATS_MISSED
_WELL: Final = frozenset({RealmOutcome.SWEPT, RealmOutcome.PURGING, RealmOutcome.PURGED})


async def storage_round(
    hub: Hub, realm_id: str, thing: StorageObject, record: StorageRound
) -> None:
    """Run a round of a storage, which is opened for it if no request uses it."""
    # The first use creates a storage and records its identity.
    if thing.identity is None and not await asyncio.to_thread(hub.storages.exists, thing):
        record.skip("maintenance", "the storage has not been used yet")
        return
    async with hub.storages.borrowed(realm_id, thing) as storage:
        try:
            await maintain_storage(storage, record)
        except (NotSupported, ReadOnly) as error:
            record.postpone("maintenance", error.message)


async def catalog_round(hub: Hub, record: StorageRound) -> None:
    """Run a round of the catalog: purge realms, sweep what nothing refers to, and verify."""
    maintenance = Maintenance(hub.catalog, [HubRealms(hub)])
    await maintenance.setup()
    work = _CatalogRound(hub, maintenance, record)
    await record.attempt(_SWEEP, work.sweep, is_heavy=True)
    if not record.is_dry:
        await record.attempt("verification", work.verify, is_heavy=True)


class _CatalogRound:
    def __init__(self, hub: Hub, maintenance: Maintenance, record: StorageRound) -> None:
        self._clock = hub.catalog.clock
        self._realms = hub.catalog.realms
        self._maintenance = maintenance
        self._record = record

    async def sweep(self) -> None:
        realms = await self._realms.list()
        purging = {realm.id for realm in realms if realm.status is RealmStatus.PURGING}
        run = await self._maintenance.run(is_dry=self._record.is_dry, supersede=await self._dead())
        if run.purged:
            self._record.did("sweep of %d of %d rows", run.purged, run.scanned)
        await self._report(run, purging)
        if run.note:
            raise StepPostponed(run.note)

    async def _report(self, run: MaintenanceRun, purging: Collection[str]) -> None:
        """Record the purges, and the realms that were left alone."""
        report = await self._maintenance.runs.report(run.id)
        is_purge = {RealmOutcome.PURGED: True, RealmOutcome.PURGING: run.is_dry}
        for id, realm in report.realms.items():
            if id in purging and is_purge.get(realm.outcome, False):
                self._record.did("purge of the realm %s", id)
            if realm.outcome not in _WELL:
                note = f"{realm.outcome}: {realm.note}" if realm.note else str(realm.outcome)
                self._record.postpone(f"sweep of the realm {id}", note)

    async def _dead(self) -> int | None:
        """Return the id of a run that its instance did not finish; wait until it counts as dead.

        The caller holds the lease, so no other instance of the hub executes a run now.

        Raises:
            StepPostponed: A program that uses the catalog without a hub executes a run.
        """
        silent_us = _BEATS_MISSED * limits.MAINTENANCE_BEAT_SECONDS * 1_000_000
        for _ in range(_LOOKS_MAX):
            runs = await self._maintenance.runs.list()
            running = next((run for run in reversed(runs) if not run.phase.is_over), None)
            if running is None:
                return None
            if running.seen_us < self._clock.now_us() - silent_us:
                return running.id
            await asyncio.sleep(limits.MAINTENANCE_BEAT_SECONDS)
        raise StepPostponed("another program maintains the catalog")

    async def verify(self) -> None:
        checks = await self._maintenance.check()
        damaged = [check for check in checks if check.consistency is not Consistency.CONSISTENT]
        if damaged:
            shown = ", ".join(map(_shown, damaged))
            raise StorageCorrupt(f"Parts of the catalog are missing: {shown}; restore a backup")


def _shown(check: RealmCheck) -> str:
    return f"{check.realm} ({check.consistency})"
