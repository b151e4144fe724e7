"""Runs of maintenance: entities behind the pointer `maintenance` of the realm `::system::`.

A run that has not ended prevents others from starting. A dead run is superseded by its id; should
it still be alive, it stops at its next heartbeat.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from naksha.catalog.entities import Entities, EntityEdit, EntitySnapshot
from naksha.catalog.objects import object_type
from naksha.catalog.persistence import Persistence
from naksha.model import limits
from naksha.model.errors import Conflict, NotFound

POINTER: Final = "maintenance"
_RUN: Final = "run/"
_REPORT: Final = "report/"


class RunPhase(StrEnum):
    """Progress of a run."""

    MARK = "MARK"
    SWEEP = "SWEEP"
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"

    @property
    def is_over(self) -> bool:
        return self not in (RunPhase.MARK, RunPhase.SWEEP)


@object_type("maintenance-run")
class MaintenanceRun(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one run."""

    id: int
    phase: RunPhase = RunPhase.MARK
    is_dry: bool = False
    """Whether it only counts what it would delete."""
    started_us: int = 0
    cutoff_us: int = 0
    seen_us: int = 0
    """Time of its last heartbeat."""
    ended_us: int = 0
    marked: int = 0
    is_exact: bool = True
    rate: float = 0.0
    """Share of the garbage that is retained by mistake."""
    scanned: int = 0
    purged: int = 0
    note: str = ""
    skew_ms: int = 0
    """Offset of the clock that differs most from the database's; negative if it is behind."""


class RealmOutcome(StrEnum):
    """Result of a run for one realm."""

    SWEPT = "SWEPT"
    UNCLAIMED = "UNCLAIMED"
    """No identifier claims it."""
    UNLISTED = "UNLISTED"
    """It is not among the realms."""
    IN_THE_MAKING = "IN_THE_MAKING"
    """It is created, loading or initializing."""
    DAMAGED = "DAMAGED"
    """Something that it needs is missing, so nothing of it is deleted."""
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    """It has objects of a type whose references are unknown."""
    CHANGED = "CHANGED"
    """Its state changed during the run."""
    POSTPONED = "POSTPONED"
    """It is to be purged, but what it holds elsewhere could not be released."""
    PURGING = "PURGING"
    PURGED = "PURGED"


class TypeCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Numbers of rows of one type."""

    scanned: int = 0
    retained: int = 0
    """Rows that are or may be needed.

    These include conditional rows, rows of an unknown type, and rows in a realm that is left alone.
    """
    newer: int = 0
    """Rows that are too young to be judged."""
    purged: int = 0
    """Rows selected for deletion.

    In a dry run they are not deleted, and neither are rows that were rewritten just then.
    """


class RealmReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Result of a run for one realm."""

    outcome: RealmOutcome
    note: str = ""
    pointers: TypeCounts = msgspec.field(default_factory=TypeCounts)
    types: dict[str, TypeCounts] = {}

    def counts(self, kind: str) -> TypeCounts:
        found = self.types.get(kind)
        if found is None:
            found = self.types[kind] = TypeCounts()
        return found


@object_type("maintenance-report")
class RunReport(msgspec.Struct, frozen=True):
    """Result of a run, realm by realm."""

    realms: dict[str, RealmReport]


class MaintenanceRuns:
    """The last runs."""

    def __init__(self, system: Persistence) -> None:
        self._system = system
        self._entities = Entities(system, POINTER)

    async def setup(self) -> None:
        """Create the pointer."""
        await self._system.ensure_pointers([POINTER])

    async def list(self) -> list[MaintenanceRun]:
        """Return the last runs, oldest first."""
        return await _runs(await self._entities.now())

    async def report(self, id: int) -> RunReport:
        """Return the report of a run that has ended."""
        snapshot = await self._entities.now()
        found = await snapshot.get(_key(_REPORT, id), RunReport)
        if found is None:
            raise NotFound(
                f"Maintenance run {id} has no report: it does not exist, or has not ended; correct "
                "its id, or wait until it ends",
                field="run",
            )
        return found.value

    async def begin(self, cutoff_us: int, *, is_dry: bool, supersede: int | None) -> MaintenanceRun:
        """Start a run, unless another one than the superseded run has not ended."""
        now_us = self._system.clock.now_us()

        async def change(edit: EntityEdit) -> MaintenanceRun:
            runs = await _runs(edit)
            running = next((run for run in runs if not run.phase.is_over), None)
            _check_supersede(running, supersede)
            id = self._system.new_id()
            if running is not None:
                note = f"superseded by {id}"
                over = msgspec.structs.replace(
                    running, phase=RunPhase.SUPERSEDED, ended_us=now_us, note=note
                )
                edit.put(_key(_RUN, over.id), over)
            for run in runs[: max(0, len(runs) + 1 - limits.MAINTENANCE_RUNS_KEPT)]:
                edit.remove(_key(_RUN, run.id))
                edit.remove(_key(_REPORT, run.id))
            run = MaintenanceRun(
                id=id, is_dry=is_dry, started_us=now_us, seen_us=now_us, cutoff_us=cutoff_us
            )
            edit.put(_key(_RUN, id), run)
            return run

        return await self._entities.commit(change, message="maintenance begins")

    async def put(self, run: MaintenanceRun, report: RunReport | None = None) -> MaintenanceRun:
        """Record the progress of a run.

        Raises:
            Conflict: It was superseded.
        """
        run = msgspec.structs.replace(run, seen_us=self._system.clock.now_us())

        async def change(edit: EntityEdit) -> None:
            found = await edit.get(_key(_RUN, run.id), MaintenanceRun)
            if found is None or found.value.phase.is_over:
                raise Conflict(
                    f"Maintenance run {run.id} ended, because another run superseded it; wait for "
                    "the other run",
                    field="run",
                )
            edit.put(_key(_RUN, run.id), run)
            if report is not None:
                edit.put(_key(_REPORT, run.id), report)

        await self._entities.commit(change, message=f"maintenance: {run.phase}")
        return run


async def _runs(snapshot: EntitySnapshot) -> list[MaintenanceRun]:
    return [found.value async for _, found in snapshot.list(_RUN, MaintenanceRun)]


def _check_supersede(running: MaintenanceRun | None, supersede: int | None) -> None:
    if running is not None and supersede == running.id:
        return
    if supersede is not None:
        raise Conflict(
            f"Maintenance run {supersede} cannot be superseded, because it is not running; start a "
            "run without superseding one",
            field="supersede",
        )
    if running is not None:
        raise Conflict(
            f"Maintenance run {running.id} has not ended; wait for it, or, if its process is dead, "
            f"start a run that supersedes {running.id}",
            field="supersede",
        )


def _key(kind: str, id: int) -> str:
    return f"{kind}{id:016x}"
