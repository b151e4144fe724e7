"""Sweeping: scan everything once, and delete what was not marked.

A row is deleted only as the scan saw it, so a row that was rewritten in between remains. Rows are
identified by id and part: each part of a large object is deleted separately.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from naksha.catalog.maintenance.mark_set import MarkSet
from naksha.catalog.maintenance.realm_reader import batches
from naksha.catalog.maintenance.retained_ids import ClaimedRealm
from naksha.catalog.maintenance.runs import RealmOutcome, RealmReport, TypeCounts
from naksha.catalog.objects import known_type
from naksha.model import limits
from naksha.spi.catalog import CatalogBackend, Scanned, ScannedObject, ScannedPointer


class Pace:
    """Limits the average rate per second."""

    def __init__(
        self,
        per_second: float | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at = 0.0

    async def take(self, count: int) -> None:
        """Wait until earlier items have had their time."""
        if self._per_second is None:
            return
        now = self._monotonic()
        wait = self._free_at - now
        self._free_at = max(self._free_at, now) + count / self._per_second
        if wait > 0:
            await self._sleep(wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Parameters of a sweep."""

    cutoff_us: int
    is_dry: bool
    marks: MarkSet
    claimed: Mapping[str, ClaimedRealm]
    """The realms that were marked."""
    reports: dict[str, RealmReport]
    """Reports of all listed realms, to be updated with the counts."""
    is_still_purging: Callable[[str], Awaitable[bool]]
    """Returns whether a realm is the same as when the run began."""
    beat: Callable[[int, int], Awaitable[None]]
    """Receives the numbers of scanned and purged rows; raises if the sweep must stop."""
    scan_pace: Pace
    delete_pace: Pace


class Sweep:
    """One sweep."""

    def __init__(self, backend: CatalogBackend, plan: SweepPlan) -> None:
        self.scanned = 0
        self.purged = 0
        """Rows that were deleted, or would be in a dry run.

        Rows that were rewritten since they were scanned are not deleted.
        """
        self._backend = backend
        self._plan = plan

    async def run(self) -> None:
        async for page in self._backend.scan():
            await self._plan.scan_pace.take(len(page))
            self.scanned += len(page)
            for realm, rows in _by_realm(page).items():
                await self._sweep(realm, rows)
            await self._plan.beat(self.scanned, self.purged)

    async def _sweep(self, realm: str, rows: Sequence[Scanned]) -> None:
        report = self._plan.reports.get(realm)
        if report is None:
            report = self._plan.reports[realm] = RealmReport(outcome=RealmOutcome.UNLISTED)
        for row in rows:
            _counts(report, row).scanned += 1
        if report.outcome is RealmOutcome.PURGING:
            await self._purge(realm, report, rows)
        elif report.outcome is RealmOutcome.SWEPT:
            garbage = self._garbage(realm, report, rows)
            for batch in batches(garbage, limits.MAINTENANCE_DELETE_BATCH):
                doomed = await self._unconditional(realm, report, batch)
                await self._delete(report, doomed)
        else:
            for row in rows:
                _counts(report, row).retained += 1

    async def _purge(self, realm: str, report: RealmReport, rows: Sequence[Scanned]) -> None:
        """Delete all rows of a realm, unless its name has been reused.

        The rows were scanned before that is checked, so they belong to the purged realm.
        """
        for batch in batches(rows, limits.MAINTENANCE_DELETE_BATCH):
            if not await self._plan.is_still_purging(realm):
                report.outcome = RealmOutcome.CHANGED
                return
            await self._delete(report, batch)

    def _garbage(
        self, realm: str, report: RealmReport, rows: Sequence[Scanned]
    ) -> list[ScannedObject]:
        """Return the objects that are unmarked, old enough and of a known type.

        Pointers stay: those to be deleted are already gone.
        """
        old: list[ScannedObject] = []
        for row in rows:
            counts = _counts(report, row)
            if isinstance(row, ScannedPointer) or known_type(row.type) is None:
                counts.retained += 1
            elif row.created_us > self._plan.cutoff_us:
                counts.newer += 1
            else:
                old.append(row)
        marked = self._plan.marks.has(realm, [row.key.id for row in old])
        garbage = []
        for row, is_marked in zip(old, marked.tolist(), strict=True):
            if is_marked:
                report.counts(row.type).retained += 1
            else:
                garbage.append(row)
        return garbage

    async def _unconditional(
        self, realm: str, report: RealmReport, rows: Sequence[ScannedObject]
    ) -> list[ScannedObject]:
        """Return the rows that were not written conditionally.

        Conditional rows are kept although nothing refers to them.
        """
        claimed = self._plan.claimed[realm]
        doubtful = {row.key for row in rows if claimed.keeps_conditional(row.type)}
        found = await self._backend.fetch(realm, doubtful) if doubtful else {}
        kept = {key for key, row in found.items() if row.token is not None}
        for row in rows:
            if row.key in kept:
                report.counts(row.type).retained += 1
        return [row for row in rows if row.key not in kept]

    async def _delete(self, report: RealmReport, rows: Sequence[Scanned]) -> None:
        for row in rows:
            _counts(report, row).purged += 1
        if self._plan.is_dry:
            self.purged += len(rows)
        elif rows:
            await self._plan.delete_pace.take(len(rows))
            self.purged += await self._backend.delete_scanned(rows)
            await self._plan.beat(self.scanned, self.purged)


def _counts(report: RealmReport, row: Scanned) -> TypeCounts:
    return report.pointers if isinstance(row, ScannedPointer) else report.counts(row.type)


def _by_realm(rows: Iterable[Scanned]) -> dict[str, list[Scanned]]:
    found: dict[str, list[Scanned]] = defaultdict(list)
    for row in rows:
        found[row.realm].append(row)
    return found
