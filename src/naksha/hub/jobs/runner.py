"""Run of one job while this instance holds its lease.

The runner starts the job's process, reads its output, and ends it when the job is cancelled or the
lease is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

import msgspec

from naksha.hub.config.space_collections import SpaceCollection, collection_missing
from naksha.hub.hub import RealmHub
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.job_targets import WRITE, JobStorage, process_spec, target_of
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import JobObject, JobState, JobStatus, LogLine, add_to_log
from naksha.hub.leases import HeldLease
from naksha.model import limits
from naksha.model.errors import Cancelled, CollectionNotFound, NakshaError, OutcomeUnknown
from naksha.spi.jobs.messages import (
    DoneMessage,
    FailedMessage,
    JobMessage,
    LogMessage,
    PhaseMessage,
    ProgressMessage,
)
from naksha.spi.jobs.process import JobProcess
from naksha.spi.jobs.reports import fitting
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)
_UNFORESEEN: Final = "Internal error; the hub's log has the details"


class JobRunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an instance for running jobs."""

    kinds: JobKinds
    files: JobFiles
    master: str = ""
    settings: dict[str, str] = {}


class JobRunner:
    """One run of a job."""

    def __init__(
        self, realm: RealmHub, job: JobObject, holding: HeldLease[JobState], how: JobRunnerSettings
    ) -> None:
        self._realm = realm
        self._job = job
        self._holding = holding
        self._how = how
        self._name = f"{realm.realm_id}/{job.id}"
        self._process: JobProcess | None = None
        self._phase = PhaseMessage("")
        self._done = 0
        self._unsaved_lines: list[LogLine] = []
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the job until it ends or its lease is lost."""
        saving = asyncio.create_task(self._keep_saving())
        running = asyncio.create_task(self._outcome())
        try:
            await asyncio.wait({saving, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                saving.cancel()
                await asyncio.gather(saving, return_exceptions=True)
                await self._kept(await running)
        except asyncio.CancelledError:
            if not await self._was_done(running):
                raise
        finally:
            tasks = [saving, running, *filter(None, [self._ending])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._process is not None:
                # Do not clean up: another instance may own the job by now.
                await self._process.close()
        if not saving.cancelled() and (error := saving.exception()) is not None:
            raise error

    async def _was_done(self, running: asyncio.Task[DoneMessage | FailedMessage]) -> bool:
        """Whether the job ended when the instance is stopped: before, or during the stop."""
        if not running.done():
            if self._process is None:
                return False
            await self._process.stop(limits.JOB_STOP_SECONDS_MAX)
            await asyncio.wait([running])
            if isinstance(running.result(), FailedMessage):
                return False
        await self._kept(running.result())
        return True

    async def _kept(self, end: DoneMessage | FailedMessage) -> None:
        """Save the outcome exactly once.

        A caller that is cancelled meanwhile cannot know whether it was saved, so a later call
        waits for the same task.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(end))
        await asyncio.shield(self._ending)

    # ---- Process -----------------------------------------------------------------------------

    async def _outcome(self) -> DoneMessage | FailedMessage:
        """Return the outcome of the process; errors become a failure."""
        try:
            return await self._run_process()
        except NakshaError as error:
            return FailedMessage.of(error)
        except Exception:  # noqa: BLE001 - reported to the client as the job's failure
            _log.exception("Job %s failed unexpectedly", self._name)
            return FailedMessage(NakshaError.code, _UNFORESEEN)

    async def _run_process(self) -> DoneMessage | FailedMessage:
        self._add_line(f"started by the instance {self._holding.value.holder}")
        process = self._process = await JobProcess.start(
            await self._spec(),
            master=self._how.master,
            settings=self._how.settings,
            until=self._holding.valid_until,
        )
        _log.info("Job %s runs as process %d", self._name, process.pid)
        end: JobMessage | None = None
        async for line in process.lines():
            self._handle_message(line)
            end = line
        assert isinstance(end, DoneMessage | FailedMessage)
        if isinstance(end, FailedMessage) and self._holding.value.cancelled_by:
            # If it is unknown whether a write was committed, do not report it as cancelled.
            is_known = end.code in (Cancelled.code, OutcomeUnknown.code)
            return end if is_known else FailedMessage.of(Cancelled("The job was cancelled"))
        if isinstance(end, FailedMessage) and end.code == NakshaError.code:
            _log.error("Job %s failed: %s\n%s", self._name, end.message, "\n".join(process.errors))
        return end

    async def _spec(self) -> dict[str, Any]:
        """Build the specification again, since the configuration may have changed."""
        job, how = self._job, self._how
        kind = await how.kinds.get(job.job)
        target = await target_of(await self._realm.registry.snapshot_now(), job, kind)
        if kind.access == WRITE and target.stored is not None and not target.stored.auto_create:
            await self._check_made(target.stored)
        await self._realm.storage(target.storage.id)  # created by the hub, with its registered id
        job_storage = JobStorage(*self._realm.located(target.storage))
        realm_id = self._realm.realm_id
        # In a thread, because it accesses files.
        return await asyncio.to_thread(
            process_spec, job, kind, target, job_storage, how.files, realm_id
        )

    async def _check_made(self, stored: SpaceCollection) -> None:
        """Raise CollectionNotFound if the job would create a collection that it must not."""
        storage = await self._realm.storage(stored.storage_id)
        try:
            await storage.collection(stored.collection.id)
        except CollectionNotFound as error:
            raise collection_missing(stored.collection.id) from error

    def _handle_message(self, line: JobMessage) -> None:
        if isinstance(line, PhaseMessage):
            if line.name != self._phase.name:
                self._add_line(line.name)  # a repeated phase only updates the total
            self._phase, self._done = line, 0
        elif isinstance(line, ProgressMessage):
            self._done = line.done
        elif isinstance(line, LogMessage):
            self._add_line(line.text)

    def _add_line(self, text: str) -> None:
        self._unsaved_lines.append(LogLine(_now_ms(), text[: limits.JOB_SAID_LENGTH_MAX]))
        del self._unsaved_lines[: -limits.JOB_LOG_LINES_MAX]

    # ---- Persistence -------------------------------------------------------------------------

    async def _keep_saving(self) -> None:
        """Save the progress and check for cancellation until the lease is lost."""
        while True:
            try:
                # An unavailable catalog must not extend the lease beyond its end.
                async with asyncio.timeout(self._holding.seconds_left):
                    await self._save()
            except (NakshaError, TimeoutError) as error:
                check_cancelled()
                _log.warning(
                    "Progress of the job %s was not saved, will retry: %s", self._name, error
                )
                self._holding.check()
            if self._process is not None:
                self._process.prolong(self._holding.valid_until)
                if self._holding.value.cancelled_by:
                    self._process.cancel()
            await asyncio.sleep(limits.JOB_SAVE_SECONDS)

    async def _save(self) -> None:
        phase, done = self._phase, self._done

        def changed(old: JobState) -> JobState:
            return msgspec.structs.replace(old, phase=phase.name, done=done, total=phase.total)

        await self._holding.save(changed)
        await self._save_log()

    async def _save_log(self) -> None:
        lines, self._unsaved_lines = self._unsaved_lines, []
        if not lines:
            return
        try:
            await add_to_log(self._realm.opened.persistence, self._job.own.log_id, lines)
        except (NakshaError, asyncio.CancelledError):
            # The end of a job interrupts a save in progress; the final save repeats these lines.
            self._unsaved_lines = lines + self._unsaved_lines
            raise

    async def _end(self, end: DoneMessage | FailedMessage) -> None:
        """Save the outcome, with retries until the lease is lost."""
        if isinstance(end, FailedMessage):
            self._holding.check()  # the process ends silently when the lease is lost
        state = JobStatus.DONE if isinstance(end, DoneMessage) else JobStatus.FAILED
        if isinstance(end, FailedMessage) and end.code == Cancelled.code:
            state = JobStatus.CANCELLED
        self._add_line(state.value if isinstance(end, DoneMessage) else f"{state}: {end.error()}")
        phase, done = self._phase, self._done
        report = None
        if isinstance(end, DoneMessage):
            report = fitting(end.report, limits.JOB_REPORT_BYTES_MAX)

        def changed(old: JobState) -> JobState:
            return msgspec.structs.replace(
                old,
                state=state,
                phase=phase.name,
                done=done,
                total=phase.total,
                report=report,
                error=end if state is JobStatus.FAILED and isinstance(end, FailedMessage) else None,
                ended_ms=_now_ms(),
            )

        while True:
            with contextlib.suppress(NakshaError):
                await self._save_log()
            try:
                await self._holding.save(changed)
            except NakshaError as error:
                check_cancelled()
                _log.warning(
                    "Job %s ended, but saving its outcome failed, will retry: %s", self._name, error
                )
                self._holding.check()
                await asyncio.sleep(limits.JOB_SAVE_SECONDS)
            else:
                _log.info("Job %s ended: %s", self._name, state.value)
                return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
