"""Job service of one instance of the hub: it takes waiting jobs and runs some of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

import msgspec

from naksha.catalog.cluster.nodes import LeaseTimes
from naksha.catalog.objects import Object
from naksha.hub.hub import Hub, RealmHub
from naksha.hub.jobs.changes import drop_job, snapshot_of
from naksha.hub.jobs.job_targets import WRITE, target_of
from naksha.hub.jobs.objects import JobObject, JobState, JobStatus, JobTable, LogLine, add_to_log
from naksha.hub.jobs.runner import JobRunner, JobRunnerSettings
from naksha.hub.leases import TIMES, ExpiryDetector, HeldLease, LeaseLost, take
from naksha.hub.scheduler import RealmScanner
from naksha.model import limits
from naksha.model.errors import Cancelled, InvalidArgument, NakshaError, OutcomeUnknown
from naksha.spi.jobs.messages import DoneMessage, FailedMessage
from naksha.spi.staging import JOB, AppliedWrite, applied_before
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)
_DAY_MS: Final = 24 * 3_600 * 1_000
_LOST: Final = "lost"
_STATES: Final = {_LOST: JobStatus.LOST, Cancelled.code: JobStatus.CANCELLED}
Kept = Object[JobState]


class JobService:
    """The jobs of one instance: up to `count_max` at once, none if that is 0."""

    def __init__(
        self,
        hub: Hub,
        how: JobRunnerSettings,
        *,
        count_max: int = limits.JOBS_RUNNING_MAX,
        times: LeaseTimes = TIMES,
    ) -> None:
        self.kinds = how.kinds
        self.files = how.files
        self._hub = hub
        self._how = how
        self._count_max = count_max
        self._times = times
        self._watch = ExpiryDetector[JobState]()
        self._ended: dict[str, set[int]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._looker = RealmScanner(
            hub,
            "jobs",
            limits.JOB_LOOK_SECONDS,
            serving=self._forget_others,
            visit=self._visit_realm,
        )

    def start(self) -> None:
        """Start looking for jobs."""
        if self._count_max:
            self._looker.start()

    def wake(self) -> None:
        """Look for jobs soon, since one was submitted."""
        self._looker.wake()

    def running(self) -> int:
        """Return the number of jobs that run now."""
        return len(self._running)

    async def close(self) -> None:
        """End the processes, and release their jobs to other instances, which restart them."""
        await self._looker.close()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forget_others(self, serving: Collection[str]) -> None:
        for realm_id in self._ended.keys() - set(serving):
            del self._ended[realm_id]

    async def _visit_realm(self, realm: RealmHub) -> None:
        """Run free jobs, the oldest first, and remove jobs that ended long ago."""
        snapshot = await snapshot_of(realm)
        if snapshot is None:
            return
        listed = snapshot.list(f"{JobObject.kind}/", JobObject)
        jobs = [found.value async for _, found in listed]
        ended = self._ended.setdefault(realm.realm_id, set())
        ended &= {job.own.state_id for job in jobs}
        table = JobTable(realm.opened.persistence)
        await self._clear(realm, table, [job for job in jobs if job.own.state_id in ended])
        open_ = [
            job
            for job in sorted(jobs, key=lambda job: job.created_at)
            if job.own.state_id not in ended and job.own.state_id not in self._running
        ]
        known = await table.read([job.own.state_id for job in open_])
        for job in open_:
            kept = known.get(job.own.state_id)
            if kept is not None and kept.value.state.is_final:
                ended.add(kept.id)
            elif kept is not None and self._is_free(kept, table.now_ms):
                await self._take(realm, table, job, kept)

    def _is_free(self, kept: Kept, now_ms: int) -> bool:
        return self._watch.is_free(kept, now_ms, self._times.drift_seconds)

    async def _clear(self, realm: RealmHub, table: JobTable, ended: Sequence[JobObject]) -> None:
        """Remove jobs that ended long ago; recently created jobs are skipped."""
        before_ms = table.now_ms - limits.JOB_KEEP_DAYS * _DAY_MS
        old = [job for job in ended if job.created_at < before_ms]
        known = await table.read([job.own.state_id for job in old])
        for job in old:
            kept = known.get(job.own.state_id)
            if kept is None or kept.value.ended_ms < before_ms:
                await drop_job(realm, job, "naksha", None)

    async def _take(self, realm: RealmHub, table: JobTable, job: JobObject, kept: Kept) -> None:
        """Run a free job, or record its outcome if it must not start again."""
        if (end := await self._end_of(realm, job, kept.value)) is not None:
            await self._end_without(realm, table, job, kept, end)
            return
        if len(self._running) >= self._count_max or not await self._can_run(job):
            return
        former = kept.value.holder
        holding = await take(
            table,
            kept,
            self._hub.catalog.node.instance,
            self._times,
            state=JobStatus.RUNNING,
            attempt=kept.value.attempt + 1,
            started_ms=kept.value.started_ms or table.now_ms,
        )
        if holding is None:
            return
        if former:
            await _log_line(
                realm, job, table, f"the instance {former} is gone; the job starts again"
            )
        task = asyncio.create_task(
            self._run(realm, job, holding), name=f"naksha-job {realm.realm_id}/{job.id}"
        )
        self._running[kept.id] = task
        task.add_done_callback(lambda _: self._forget_run(kept.id))

    async def _end_of(
        self, realm: RealmHub, job: JobObject, state: JobState
    ) -> DoneMessage | FailedMessage | None:
        """Return the outcome of a job without an instance, or None if it is to be started."""
        reason = await self._reason_not_to_start(job, state)
        if not state.started_ms:
            return reason
        # It may have written before its instance died: then it is done, even if it was cancelled.
        try:
            async with asyncio.timeout(limits.JOB_SETTLE_SECONDS_MAX):
                applied = await self._applied(realm, job)
        except (NakshaError, TimeoutError) as error:
            check_cancelled()
            if reason is None or reason.code == _LOST:
                return reason
            unsure = "the storage did not confirm whether the job wrote its result"
            return FailedMessage.of(OutcomeUnknown(f"{reason.message}; {unsure}: {error}"))
        return reason if applied is None else DoneMessage(msgspec.to_builtins(applied))

    async def _applied(self, realm: RealmHub, job: JobObject) -> AppliedWrite | None:
        """Return what the storage recorded about the job's write, or None if it has not written."""
        try:
            kind = await self._how.kinds.get(job.job)
        except InvalidArgument:
            return None  # unknown here; left to an instance that knows the job
        if kind.access != WRITE:
            return None
        target = await target_of(await realm.registry.snapshot_now(), job, kind)
        found = await (await realm.storage(target.storage.id)).stored_object(JOB, job.own.run_id)
        return None if found is None else applied_before(found.value)

    async def _reason_not_to_start(self, job: JobObject, state: JobState) -> FailedMessage | None:
        """Return why a job must not start (again), or None."""
        if state.cancelled_by:
            return FailedMessage.of(Cancelled("The job was cancelled"))
        if state.attempt == 0:
            return None
        lost = f"The instance {state.holder or 'that ran it'} is gone"
        if state.attempt >= limits.JOB_ATTEMPTS_MAX:
            return FailedMessage(
                _LOST,
                f"{lost}, and the job was already started {state.attempt} times; submit it "
                "again under a new id",
            )
        if not await self._is_repeatable(job):
            return FailedMessage(
                _LOST,
                f"{lost}, and a job of this kind must not be started a second time; check its "
                "result and submit it again under a new id",
            )
        return None

    async def _is_repeatable(self, job: JobObject) -> bool:
        try:
            return (await self._how.kinds.get(job.job)).is_repeatable
        except InvalidArgument:
            return True  # unknown here; left to an instance that knows the job

    async def _end_without(
        self,
        realm: RealmHub,
        table: JobTable,
        job: JobObject,
        kept: Kept,
        end: DoneMessage | FailedMessage,
    ) -> None:
        state, text = JobStatus.DONE, "the job had written before its instance was gone"
        if isinstance(end, FailedMessage):
            state, text = _STATES.get(end.code, JobStatus.FAILED), end.message
        ended = msgspec.structs.replace(
            kept.value,
            state=state,
            report=end.report if isinstance(end, DoneMessage) else None,
            error=end
            if isinstance(end, FailedMessage) and state is not JobStatus.CANCELLED
            else None,
            ended_ms=table.now_ms,
        )
        if await table.swap(kept, ended) is not None:
            await _log_line(realm, job, table, f"{state}: {text}")

    async def _can_run(self, job: JobObject) -> bool:
        """Whether the job can be run here; otherwise another instance may be able to."""
        try:
            await self._how.kinds.get(job.job)
        except InvalidArgument as error:
            _log.warning(
                "Job %s cannot run on this instance and waits for another one: %s", job.id, error
            )
            return False
        return True

    async def _run(self, realm: RealmHub, job: JobObject, holding: HeldLease[JobState]) -> None:
        try:
            await JobRunner(realm, job, holding, self._how).run()
        except LeaseLost as lost:
            _log.warning("Job %s/%s stopped on this instance: %s", realm.realm_id, job.id, lost)
        except asyncio.CancelledError:
            await self._give_back(realm, job, holding)
            raise
        except Exception:  # noqa: BLE001 - nothing else would report it
            _log.exception("Job %s/%s failed unexpectedly", realm.realm_id, job.id)

    async def _give_back(
        self, realm: RealmHub, job: JobObject, holding: HeldLease[JobState]
    ) -> None:
        """Release a job when the instance stops, so that the next one starts without waiting."""
        if holding.value.state.is_final:
            return  # the outcome was saved, only the cleanup was interrupted
        table = JobTable(realm.opened.persistence)
        await _log_line(realm, job, table, "the instance was stopped")
        if await self._is_repeatable(job):
            attempt = holding.value.attempt - 1
            await holding.release(
                state=JobStatus.SUBMITTED, attempt=attempt, phase="", done=0, total=None
            )
        else:
            await holding.release()

    def _forget_run(self, state_id: int) -> None:
        self._running.pop(state_id, None)
        self.wake()


async def _log_line(realm: RealmHub, job: JobObject, table: JobTable, text: str) -> None:
    with contextlib.suppress(NakshaError):
        line = LogLine(table.now_ms, text)
        await add_to_log(realm.opened.persistence, job.own.log_id, [line])


@contextlib.asynccontextmanager
async def running_jobs(
    hub: Hub,
    how: JobRunnerSettings,
    *,
    count_max: int = limits.JOBS_RUNNING_MAX,
    times: LeaseTimes = TIMES,
) -> AsyncIterator[JobService]:
    """Run jobs of a hub within the block."""
    service = JobService(hub, how, count_max=count_max, times=times)
    service.start()
    try:
        yield service
    finally:
        await service.close()
