"""Maintenance service of one instance of the hub.

It scans for storages whose round is due, and for the catalog, takes the lease of one, and runs the
round while it holds the lease. So one instance at a time works on a storage; when that instance
dies, another one continues with its next round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple

from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.objects import Object
from naksha.catalog.system_objects import MAINTENANCE_ID
from naksha.hub.config.objects import StorageObject
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.leases import TIMES, ExpiryDetector, HeldLease, LeaseLost, take
from naksha.hub.maintenance.partitionings import PartitioningWatch
from naksha.hub.maintenance.rounds import catalog_round, storage_round
from naksha.hub.maintenance.schedule import MaintenanceSchedule
from naksha.hub.maintenance.state import (
    CATALOG,
    MaintenanceState,
    MaintenanceTable,
    RoundRecord,
    state_id,
)
from naksha.hub.scheduler import RealmScanner
from naksha.model import limits
from naksha.model.errors import NakshaError
from naksha.spi.clock import boot_seconds
from naksha.spi.maintenance import RoundMemory, StorageRound
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)
_JITTER: Final = 0.1
_SYSTEM: Final = ""
"""Stands for the realm of the catalog's rounds."""
Kept = Object[MaintenanceState]
ObserveRound = Callable[[str, RoundRecord], None]
"""Receives the name of a storage (its realm and id), or `catalog`, and each round that ended."""


class RoundSubject(NamedTuple):
    """The storage that a round maintains, or the catalog."""

    name: str
    realm_id: str
    id: int
    run: Callable[[StorageRound], Awaitable[None]]
    interval_seconds: float


class _RunningRound(NamedTuple):
    task: asyncio.Task[None]
    since: float


def _ignore_round(name: str, record: RoundRecord) -> None:
    """Ignore a round that ended."""


class MaintenanceService:
    """The maintenance of one instance."""

    def __init__(
        self,
        hub: Hub,
        schedule: MaintenanceSchedule | None = None,
        *,
        release: str = "",
        times: LeaseTimes = TIMES,
        observe: ObserveRound = _ignore_round,
    ) -> None:
        """`release` is the version of the program: its first round of a storage is dry."""
        self.schedule: Final = schedule or MaintenanceSchedule()
        self._hub = hub
        self._release = release
        self._times = times
        self._observe = observe
        self._watch = ExpiryDetector[MaintenanceState]()
        self._running: dict[tuple[str, int], _RunningRound] = {}
        self._memories: dict[tuple[str, int], RoundMemory] = {}
        self._read_at_ms: dict[tuple[str, int], int] = {}
        """When the state of an idle subject is read again: the instance that receives a request
        for a round looks at once, and others only change the time of the next round."""
        self._waiting: set[tuple[str, int]] = set()
        """Subjects whose round is due, for which no slot was free."""
        self._is_requested = False
        self._is_thorough = False
        """Whether the current scan reads all states, because a round was requested before it."""
        self._scanner = RealmScanner(
            hub,
            "maintenance",
            limits.MAINTENANCE_LOOK_SECONDS,
            serving=self._visit_catalog,
            visit=self._visit,
        )
        self._partitionings = PartitioningWatch(hub)

    def start(self) -> None:
        """Start looking for rounds that are due."""
        self._scanner.start()
        if self.schedule.is_on:
            self._partitionings.start()

    def wake(self) -> None:
        """Look for rounds soon, since one was requested."""
        self._is_requested = True
        self._scanner.wake()

    async def close(self) -> None:
        """Stop all rounds and release their leases; another instance runs them again."""
        await self._scanner.close()
        await self._partitionings.close()
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- Rounds that are due -----------------------------------------------------------------

    async def _visit_catalog(self, serving: Collection[str]) -> None:
        """Begin a scan, with the catalog."""
        self._is_thorough, self._is_requested = self._is_requested, False
        for known_keys in (self._memories, self._read_at_ms):
            for key in [key for key in known_keys if key[0] not in (_SYSTEM, *serving)]:
                del known_keys[key]
        self._waiting = {key for key in self._waiting if key[0] in (_SYSTEM, *serving)}
        try:
            table = MaintenanceTable(self._hub.catalog.system)
            subject = self.catalog_subject()
            if not self._is_readable(table, (_SYSTEM, subject.id)):
                return
            known = await table.read([subject.id])
            await self._consider(table, subject, known.get(subject.id), CATALOG)
        except NakshaError as error:
            check_cancelled()
            _log.warning("The scan for maintenance of the catalog will be retried: %s", error)

    def catalog_subject(self) -> RoundSubject:
        """Return the catalog as a subject of rounds."""
        seconds = self.schedule.catalog_seconds

        async def run(record: StorageRound) -> None:
            await catalog_round(self._hub, record)

        return RoundSubject("catalog", _SYSTEM, MAINTENANCE_ID, run, seconds)

    async def _visit(self, realm: RealmHub) -> None:
        table = MaintenanceTable(realm.opened.persistence)
        things = [
            thing
            for thing in await realm.registry.list(StorageObject)
            if thing.active and self._is_readable(table, (realm.realm_id, state_id(thing.id)))
        ]
        things = self._without_waiting(realm.realm_id, things)
        for start in range(0, len(things), limits.CATALOG_BATCH_MAX):
            some = things[start : start + limits.CATALOG_BATCH_MAX]
            known = await table.read([state_id(thing.id) for thing in some])
            # In random order, so that concurrent instances rarely compete.
            for thing in random.sample(some, len(some)):
                await self._visit_storage(realm, table, thing.id, known)

    def _without_waiting(self, realm_id: str, things: list[StorageObject]) -> list[StorageObject]:
        """Leave out storages that wait for a slot, except for as many as there are free slots."""
        if self._is_thorough:
            return things
        waiting = [one for one in things if (realm_id, state_id(one.id)) in self._waiting]
        random.shuffle(waiting)
        left_out = {one.id for one in waiting[self._free_slots() :]}
        return [one for one in things if one.id not in left_out]

    def _is_readable(self, table: MaintenanceTable, key: tuple[str, int]) -> bool:
        if key in self._running:
            return False
        if self._is_thorough or key in self._waiting:
            return True
        return table.now_ms >= self._read_at_ms.get(key, 0)

    async def _visit_storage(
        self, realm: RealmHub, table: MaintenanceTable, id: str, known: Mapping[int, Kept]
    ) -> None:
        async def run(record: StorageRound) -> None:
            thing = await realm.registry.get(StorageObject, id)
            await storage_round(self._hub, realm.realm_id, thing, record)

        subject = RoundSubject(
            f"{realm.realm_id}/{id}",
            realm.realm_id,
            state_id(id),
            run,
            self.schedule.interval_seconds,
        )
        await self._consider(table, subject, known.get(subject.id), id)

    async def _consider(
        self, table: MaintenanceTable, subject: RoundSubject, kept: Kept | None, name: str
    ) -> None:
        """Run a round if it is due and no other instance runs it."""
        key = subject.realm_id, subject.id
        if key in self._running:
            return
        self._waiting.discard(key)
        if kept is None:
            most = min(subject.interval_seconds, limits.MAINTENANCE_FIRST_SECONDS_MAX)
            due_ms = table.now_ms + int(random.uniform(0, most) * 1_000)  # noqa: S311 - jitter
            await table.create(subject.id, MaintenanceState(subject=name, due_ms=due_ms))
            return
        is_due = self.schedule.is_on and table.now_ms >= kept.value.due_ms
        if not (is_due or kept.value.is_requested):
            later_ms = table.now_ms + limits.MAINTENANCE_READ_SECONDS * 1_000
            due_ms = kept.value.due_ms if self.schedule.is_on else later_ms
            self._read_at_ms[key] = min(later_ms, due_ms)
            return
        if not self._free_slots():
            self._waiting.add(key)
            return
        if not self._watch.is_free(kept, table.now_ms, self._times.drift_seconds):
            return
        now_ms = table.now_ms
        instance = self._hub.catalog.node.instance
        holding = await take(table, kept, instance, self._times, started_ms=now_ms)
        if holding is None:
            return
        task = asyncio.create_task(
            self._hold(table, subject, holding), name=f"naksha-maintenance {subject.name}"
        )
        self._running[key] = _RunningRound(task, boot_seconds())
        task.add_done_callback(lambda _: self._free_slot(key))

    def _free_slots(self) -> int:
        """Return how many rounds may start; one that takes too long does not occupy a slot."""
        since = boot_seconds() - self.schedule.budget_seconds
        young = [running for running in self._running.values() if running.since > since]
        return max(limits.MAINTENANCE_PARALLEL_MAX - len(young), 0)

    def _free_slot(self, key: tuple[str, int]) -> None:
        """Free the slot of a round that ended, for a round that waits for one."""
        self._running.pop(key, None)
        if self._waiting:
            self._scanner.wake()

    # ---- One round ---------------------------------------------------------------------------

    async def _hold(
        self, table: MaintenanceTable, subject: RoundSubject, holding: HeldLease[MaintenanceState]
    ) -> None:
        """Run a round while the lease is held."""
        work = asyncio.create_task(self._round(table, subject, holding))
        renewing = asyncio.create_task(holding.keep())
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                _log.warning(
                    "Maintenance of %s stopped on this instance: %s",
                    subject.name,
                    _failure_of(renewing) or "the lease was lost",
                )
        except asyncio.CancelledError:
            await _end(work, renewing)
            await holding.release()
            raise
        await _end(work, renewing)
        error = _failure_of(work)
        if isinstance(error, LeaseLost):
            _log.warning("Maintenance of %s stopped on this instance: %s", subject.name, error)
        elif error is not None:
            _log.error("Maintenance of %s failed unexpectedly", subject.name, exc_info=error)

    async def _round(
        self, table: MaintenanceTable, subject: RoundSubject, holding: HeldLease[MaintenanceState]
    ) -> None:
        state = holding.value
        is_new = state.release != self._release
        record = StorageRound(
            is_dry=state.requested_dry if state.is_requested else is_new,
            is_heavy=state.is_requested or self.schedule.is_heavy_at(table.now_ms),
            seconds=self.schedule.budget_seconds,
            memory=self._memories.setdefault((subject.realm_id, subject.id), RoundMemory()),
            check=holding.check,
        )
        began, problem = boot_seconds(), ""
        try:
            await subject.run(record)
        except NakshaError as error:
            check_cancelled()
            problem = error.message
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - recorded and retried, whatever it is
            check_cancelled()
            _log.exception(
                "Maintenance of %s failed unexpectedly and will be retried", subject.name
            )
            problem = f"Internal error: {type(error).__name__}"
        ended_ms = state.started_ms + int((boot_seconds() - began) * 1_000)
        done = RoundRecord.of(record, state.started_ms, ended_ms, state.holder, problem)
        self._log_round(subject, done, is_first=is_new and not state.is_requested)
        await holding.release(**self._changes(table.now_ms, subject, state, record, done))
        self._observe(subject.name, done)

    def _changes(
        self,
        now_ms: int,
        subject: RoundSubject,
        state: MaintenanceState,
        record: StorageRound,
        done: RoundRecord,
    ) -> dict[str, object]:
        """Return the changes of the state at the end of a round."""
        changes: dict[str, object] = {
            "fulfilled_ms": state.requested_ms,
            "last_dry" if done.is_dry else "last": done,
        }
        if not (state.is_requested and done.is_dry):
            # What a dry round did not examine would otherwise be removed without a report.
            if not done.error and record.is_complete:
                changes["release"] = self._release
            changes["failures"] = failures = state.failures + 1 if done.error else 0
            changes["due_ms"] = self._next_ms(now_ms, subject, record, failures)
        return changes

    def _next_ms(
        self, now_ms: int, subject: RoundSubject, record: StorageRound, failures: int
    ) -> int:
        """Return when the next round is due, after so many failed rounds in a row."""
        pause = subject.interval_seconds
        if failures:
            longest = max(pause, limits.MAINTENANCE_FAILED_SECONDS_MAX)
            pause = min(pause * 2 ** min(failures, 20), longest)
        elif record.memory.late:
            pause = min(pause, limits.MAINTENANCE_LATE_SECONDS)
        pause *= random.uniform(1 - _JITTER, 1)  # noqa: S311 - jitter
        due_ms = now_ms + int(pause * 1_000)
        if record.waits_for_window and self.schedule.window is not None:
            due_ms = min(due_ms, self.schedule.window.opens_ms(now_ms))
        return due_ms

    def _log_round(self, subject: RoundSubject, done: RoundRecord, *, is_first: bool) -> None:
        if is_first and done.done_count:
            _log.warning(
                "The first maintenance round of %s with this release only reports; the next one "
                "will do the following: %s",
                subject.name,
                "; ".join(done.done),
            )
        _log.log(
            logging.WARNING if done.outcome != "done" else logging.INFO,
            "Maintenance of %s: %s%s in %.1f s, %d done, %d put off, %d failed%s",
            subject.name,
            "dry run, " if done.is_dry else "",
            done.outcome,
            done.seconds,
            done.done_count,
            done.postponed_count,
            done.failed_count,
            f": {done.error}" if done.error else "",
        )


def _failure_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if not task.done() or task.cancelled() else task.exception()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def maintaining(
    hub: Hub,
    schedule: MaintenanceSchedule,
    *,
    release: str = "",
    times: LeaseTimes = TIMES,
    observe: ObserveRound = _ignore_round,
) -> AsyncIterator[MaintenanceService]:
    """Maintain a hub within the block."""
    service = MaintenanceService(hub, schedule, release=release, times=times, observe=observe)
    service.start()
    try:
        yield service
    finally:
        await service.close()
