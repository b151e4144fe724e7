"""The maintenance service: the garbage collector of a catalog.

    maintenance = Maintenance(catalog, [AllRealms()])
    await maintenance.setup()
    run = await maintenance.run()

A run *marks* what each realm needs, then *sweeps*: it scans the whole database and deletes what is
neither marked nor younger than the grace period. What a commit writes stays younger than that until
the pointer has moved, so commits and runs need no coordination. A damaged realm is left alone, and
the report gives the reason.

Ages are judged by the clock of the database, which all instances follow. While the machine of an
instance differs from it by more than `CLOCK_SKEW_SECONDS_MAX`, a run deletes nothing, and its note
names the instance.

A run may be killed at any moment: everything it has deleted was garbage, and the next run deletes
the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from naksha.catalog.cluster.nodes import Node
from naksha.catalog.maintenance.log_horizon import LogHorizons, LogHorizonState, read_log_horizons
from naksha.catalog.maintenance.mark import MarkTimes, RealmMarker
from naksha.catalog.maintenance.mark_set import MarkLimits, MarkSet
from naksha.catalog.maintenance.realm_reader import RealmReader
from naksha.catalog.maintenance.retained_ids import (
    ClaimedRealm,
    Identifiers,
    RealmIdentifier,
    TypeIdentifier,
)
from naksha.catalog.maintenance.runs import (
    MaintenanceRun,
    MaintenanceRuns,
    RealmOutcome,
    RealmReport,
    RunPhase,
    RunReport,
)
from naksha.catalog.maintenance.store_check import RealmCheck, check_store
from naksha.catalog.maintenance.sweep import Pace, Sweep, SweepPlan
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import Realm, Realms, RealmStatus
from naksha.catalog.system_objects import SYSTEM_REALM
from naksha.model import limits
from naksha.model.errors import (
    Conflict,
    InvalidArgument,
    NakshaError,
    NotSupported,
    RealmChanged,
    RealmInactive,
    RealmNotFound,
    StorageCorrupt,
)
from naksha.spi.catalog import ScannedPointer

logger = logging.getLogger(__name__)

_MAINTAINED: Final = (RealmStatus.ACTIVE, RealmStatus.INACTIVE)
_GROWTH: Final = 1.1
"""Expected number of ids relative to the last run."""


class MaintainedCatalog(Protocol):
    """The part of a catalog that maintenance needs."""

    system: Persistence
    realms: Realms
    node: Node

    async def persistence_of(self, realm: Realm) -> Persistence:
        """Return a realm in the given state.

        Raises:
            RealmChanged, RealmInactive: Its state has changed.
        """


class MaintenanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of runs."""

    grace_seconds: float = limits.MAINTENANCE_GRACE_SECONDS
    scan_rows_per_second: float | None = None
    delete_rows_per_second: float | None = None
    marks_exact_max: int = limits.MARKS_EXACT_MAX


class Maintenance:
    """The garbage collector and verifier of one catalog."""

    def __init__(
        self,
        catalog: MaintainedCatalog,
        identifiers: Iterable[RealmIdentifier] = (),
        types: Iterable[TypeIdentifier] = (),
        settings: MaintenanceSettings | None = None,
    ) -> None:
        self.runs = MaintenanceRuns(catalog.system)
        self._catalog = catalog
        self._system = catalog.system
        self._realms = catalog.realms
        self._identifiers = Identifiers(identifiers, types)
        self._settings = settings or MaintenanceSettings()

    async def setup(self) -> None:
        """Create the pointer that runs need."""
        await self.runs.setup()

    async def run(self, *, is_dry: bool = False, supersede: int | None = None) -> MaintenanceRun:
        """Execute one run and return its record.

        Raises:
            Conflict: Another run has not ended, or this one was superseded.
        """
        grace = max(self._settings.grace_seconds, limits.MAINTENANCE_GRACE_SECONDS_MIN)
        # The local clock is ahead if it was set back while this process runs.
        now_us = min(self._system.clock.now_us(), await self._system.backend.now_us())
        cutoff_us = now_us - int(grace * 1_000_000)
        last = await self._last_marked()
        run = await self.runs.begin(cutoff_us, is_dry=is_dry, supersede=supersede)
        bounds = MarkLimits(exact_max=self._settings.marks_exact_max, expected=int(last * _GROWTH))
        work = _RunInProgress(
            self._catalog,
            self.runs,
            self._identifiers,
            self._settings,
            run,
            MarkSet(bounds),
            MarkTimes(now_us, cutoff_us),
        )
        try:
            return await work.execute()
        except NakshaError as error:
            await work.fail(error)
            raise

    async def check(self) -> list[RealmCheck]:
        """Verify the system realm and all realms that serve or may serve again; count orphans."""
        realms = [realm.id for realm in await self._realms.list() if realm.status in _MAINTAINED]
        return await check_store(
            self._system.backend,
            [SYSTEM_REALM, *realms],
            self._system.clock.now_us(),
            self._identifiers.types.values(),
        )

    async def _last_marked(self) -> int:
        """Return the number of ids marked by the last run that completed marking."""
        return next((run.marked for run in reversed(await self.runs.list()) if run.marked), 0)


class _RunInProgress:
    """A run in progress."""

    def __init__(
        self,
        catalog: MaintainedCatalog,
        runs: MaintenanceRuns,
        identifiers: Identifiers,
        settings: MaintenanceSettings,
        run: MaintenanceRun,
        marks: MarkSet,
        times: MarkTimes,
    ) -> None:
        self._catalog = catalog
        self._backend = catalog.system.backend
        self._runs = runs
        self._identifiers = identifiers
        self._settings = settings
        self._run = run
        self._marks = marks
        self._times = times
        self._purging: dict[str, Realm] = {}
        self._claimed: dict[str, ClaimedRealm] = {}
        self._condemned: list[ScannedPointer] = []
        self._reports: dict[str, RealmReport] = {}
        self._beat_at = time.monotonic() + limits.MAINTENANCE_BEAT_SECONDS

    async def execute(self) -> MaintenanceRun:
        if note := await self._clock_problem():
            logger.warning("Maintenance of the catalog: %s", note)
            return await self._end(RunPhase.DONE, note)
        await self._mark()
        await self._note(
            phase=RunPhase.SWEEP,
            marked=self._marks.count,
            is_exact=self._marks.is_exact,
            rate=self._marks.rate,
        )
        if not self._marks.is_good:
            note = (
                f"{self._marks.count:,} ids were too many for the filter, whose error rate is "
                f"{self._marks.rate:.2g}; nothing was deleted, and the next run will use a larger "
                "filter"
            )
            return await self._end(RunPhase.DONE, note)
        await self._delete_pointers()
        await self._delete_realms()
        await self._sweep()
        await self._finish_purges()
        return await self._end(RunPhase.DONE)

    async def fail(self, error: NakshaError) -> None:
        """Record that the run failed, if possible."""
        try:
            await self._end(RunPhase.FAILED, str(error))
        except NakshaError:
            return  # It was superseded, or the catalog is unavailable; the first error counts.

    async def _clock_problem(self) -> str:
        """Return why ages cannot be judged; empty if they can."""
        leases = await self._catalog.node.living()
        unknown = [lease.holder for lease in leases if lease.skew_ms is None]
        if unknown:
            return (
                f"Nothing was deleted: the clocks of {', '.join(unknown)} are unknown. Update "
                "these instances to this release"
            )
        worst = max(leases, key=lambda lease: abs(lease.skew_ms or 0), default=None)
        skew_ms = worst.skew_ms or 0 if worst else 0
        self._run = msgspec.structs.replace(self._run, skew_ms=skew_ms)
        if worst is None or abs(skew_ms) <= limits.CLOCK_SKEW_SECONDS_MAX * 1_000:
            return ""
        return (
            f"Nothing was deleted: the clock of instance {worst.holder} (node {worst.node}) is "
            f"{abs(skew_ms) / 1_000:,.1f} s {'ahead of' if skew_ms > 0 else 'behind'} the clock of "
            f"the database. At most {limits.CLOCK_SKEW_SECONDS_MAX} s are accepted; synchronize "
            "the clock of that machine"
        )

    # ---- Marking -----------------------------------------------------------------------------

    async def _mark(self) -> None:
        system = Realm(id=SYSTEM_REALM, status=RealmStatus.ACTIVE)
        for realm in [system, *await self._catalog.realms.list()]:
            self._reports[realm.id] = await self._mark_realm(realm)
            await self._beat(0, 0)

    async def _mark_realm(self, realm: Realm) -> RealmReport:
        if realm.status in (RealmStatus.PURGING, RealmStatus.PURGED):
            return await self._mark_purged(realm)
        if realm.status not in _MAINTAINED:
            return RealmReport(outcome=RealmOutcome.IN_THE_MAKING, note=realm.status)
        claimed = self._identifiers.of(realm.id)
        if claimed is None:
            return RealmReport(outcome=RealmOutcome.UNCLAIMED)
        try:
            condemned = await self._mark_claimed(realm, claimed)
        except (StorageCorrupt, InvalidArgument) as error:
            is_unknown = isinstance(error, NotSupported)
            outcome = RealmOutcome.NOT_UNDERSTOOD if is_unknown else RealmOutcome.DAMAGED
            return RealmReport(outcome=outcome, note=str(error))
        except (RealmChanged, RealmInactive, RealmNotFound) as error:
            return RealmReport(outcome=RealmOutcome.CHANGED, note=str(error))
        self._claimed[realm.id] = claimed
        self._condemned += condemned
        return RealmReport(outcome=RealmOutcome.SWEPT)

    async def _mark_purged(self, realm: Realm) -> RealmReport:
        """Purge a realm that holds nothing outside of the catalog any more."""
        if realm.status is RealmStatus.PURGING and not realm.is_released and not self._run.is_dry:
            try:
                realm = await self._released(realm)
            except (RealmChanged, RealmInactive, RealmNotFound) as error:
                return RealmReport(outcome=RealmOutcome.CHANGED, note=str(error))
            except NakshaError as error:
                return RealmReport(outcome=RealmOutcome.POSTPONED, note=str(error))
        self._purging[realm.id] = realm
        return RealmReport(outcome=RealmOutcome.PURGING)

    async def _released(self, realm: Realm) -> Realm:
        claimed = self._identifiers.of(realm.id)
        if claimed is None:
            return realm
        persistence = await self._catalog.persistence_of(realm)
        try:
            await claimed.release(realm, persistence)
        except NakshaError as error:
            waited_s = (self._times.now_us - realm.status_us) / 1_000_000
            if waited_s < limits.REALM_RELEASE_SECONDS_MAX:
                raise
            logger.warning(
                "The realm %s is purged although it may still hold resources outside of the"
                " catalog: %s",
                realm.id,
                error,
            )
        return await self._catalog.realms.note_released(realm)

    async def _mark_claimed(self, realm: Realm, claimed: ClaimedRealm) -> list[ScannedPointer]:
        """Mark what a realm needs, and move its horizons before anything is deleted.

        A pin may be added while the logs are walked. The cut stops at such a pin, and `extend` then
        marks the commits that it holds.
        """
        is_system = realm.id == SYSTEM_REALM
        persistence = (
            self._catalog.system if is_system else await self._catalog.persistence_of(realm)
        )
        reader = RealmReader(self._backend, realm.id)
        marker = RealmMarker(
            reader,
            claimed,
            self._identifiers.types,
            self._marks,
            self._times,
        )
        state = await read_log_horizons(reader)
        await marker.mark(state)
        is_cut = any(horizon.seq > 1 for horizon in marker.horizons.values())
        if not self._run.is_dry and (is_cut or state != LogHorizonState()):
            await marker.extend(await LogHorizons(persistence).cut(marker.horizons))
        return marker.condemned

    # ---- Sweeping ----------------------------------------------------------------------------

    async def _delete_pointers(self) -> None:
        """Delete condemned pointers, before the objects that they lead to."""
        for pointer in self._condemned:
            self._reports[pointer.realm].pointers.purged += 1
        if self._condemned and not self._run.is_dry:
            await self._backend.delete_scanned(self._condemned)

    async def _delete_realms(self) -> None:
        if self._run.is_dry or not self._backend.deletes_realms:
            return
        # The name of a purged realm may be reused at any moment; such a realm only loses rows that
        # were scanned.
        purging = [
            realm.id
            for realm in self._purging.values()
            if realm.status is RealmStatus.PURGING and await self._is_still_purging(realm.id)
        ]
        if purging:
            await self._backend.delete_realms(purging)

    async def _sweep(self) -> None:
        plan = SweepPlan(
            cutoff_us=self._times.cutoff_us,
            is_dry=self._run.is_dry,
            marks=self._marks,
            claimed=self._claimed,
            reports=self._reports,
            is_still_purging=self._is_still_purging,
            beat=self._beat,
            scan_pace=Pace(self._settings.scan_rows_per_second),
            delete_pace=Pace(self._settings.delete_rows_per_second),
        )
        sweep = Sweep(self._backend, plan)
        await sweep.run()
        self._run = msgspec.structs.replace(
            self._run, scanned=sweep.scanned, purged=sweep.purged + len(self._condemned)
        )

    async def _is_still_purging(self, id: str) -> bool:
        try:
            now = await self._catalog.realms.get(id)
        except RealmNotFound:
            return False
        return now.epoch == self._purging[id].epoch

    async def _finish_purges(self) -> None:
        """Set realms to PURGED of which the scan has found no rows."""
        for id, realm in self._purging.items():
            report = self._reports[id]
            has_rows = report.pointers.scanned or report.types
            if report.outcome is not RealmOutcome.PURGING or has_rows:
                continue
            report.outcome = RealmOutcome.PURGED
            if realm.status is RealmStatus.PURGING and not self._run.is_dry:
                try:
                    await self._catalog.realms.update(realm, RealmStatus.PURGED)
                except (Conflict, RealmChanged, RealmNotFound) as error:
                    report.outcome, report.note = RealmOutcome.CHANGED, str(error)

    # ---- The record --------------------------------------------------------------------------

    async def _beat(self, scanned: int, purged: int) -> None:
        if time.monotonic() >= self._beat_at:
            await self._note(scanned=scanned, purged=purged)

    async def _note(self, **what: object) -> None:
        self._run = await self._runs.put(msgspec.structs.replace(self._run, **what))
        self._beat_at = time.monotonic() + limits.MAINTENANCE_BEAT_SECONDS

    async def _end(self, phase: RunPhase, note: str = "") -> MaintenanceRun:
        run = msgspec.structs.replace(
            self._run, phase=phase, note=note, ended_us=self._catalog.system.clock.now_us()
        )
        self._run = await self._runs.put(run, RunReport(self._reports))
        return self._run
