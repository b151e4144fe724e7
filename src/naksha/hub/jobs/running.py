"""Running one job, as long as this instance has it: its process is started, listened to, and ended
when it was cancelled or is somebody else's by now."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

import msgspec

from naksha.hub.hub import RealmHub
from naksha.hub.jobs.files import JobFiles
from naksha.hub.jobs.kinds import JobKinds
from naksha.hub.jobs.objects import JobObject, JobState, LogLine, State, add_to_log
from naksha.hub.jobs.targets import WRITE, Placed, Target, target_of, whole_spec
from naksha.hub.leasing import Holding
from naksha.model import limits
from naksha.model.errors import Cancelled, CollectionNotFound, NakshaError
from naksha.spi.job_process import JobProcess
from naksha.spi.jobs import Done, Failed, Line, Moved, Phase, Said

_log: Final = logging.getLogger(__name__)
_UNFORESEEN: Final = "Something failed that should not; the log of the hub has the reason"


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs are run by an instance."""

    kinds: JobKinds
    files: JobFiles
    master: str = ""
    settings: dict[str, str] = {}


class Runner:
    """One run."""

    def __init__(
        self, realm: RealmHub, job: JobObject, holding: Holding[JobState], how: Running
    ) -> None:
        self._realm = realm
        self._job = job
        self._holding = holding
        self._how = how
        self._name = f"{realm.realm_id}/{job.id}"
        self._process: JobProcess | None = None
        self._phase = Phase("")
        self._done = 0
        self._said: list[LogLine] = []

    async def run(self) -> None:
        """Until it has ended, or is Lost."""
        saving = asyncio.create_task(self._keep_saving())
        running = asyncio.create_task(self._outcome())
        try:
            await asyncio.wait({saving, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                saving.cancel()
                await asyncio.gather(saving, return_exceptions=True)
                await self._end(await running)
        finally:
            for task in (saving, running):
                task.cancel()
            await asyncio.gather(saving, running, return_exceptions=True)
            if self._process is not None:
                await self._process.close()
        if not saving.cancelled() and (error := saving.exception()) is not None:
            raise error

    # ---- Its process -------------------------------------------------------------------------

    async def _outcome(self) -> Done | Failed:
        """How it ended; whatever goes wrong is told."""
        try:
            return await self._listened()
        except NakshaError as error:
            return Failed.of(error)
        except Exception:  # noqa: BLE001 - whoever submitted it must hear of it
            _log.exception("job %s", self._name)
            return Failed(NakshaError.code, _UNFORESEEN)

    async def _listened(self) -> Done | Failed:
        self._say(f"begun by the instance {self._holding.value.holder}")
        process = self._process = await JobProcess.start(
            await self._spec(), master=self._how.master, settings=self._how.settings
        )
        _log.info("job %s runs as process %d", self._name, process.pid)
        end: Line | None = None
        async for line in process.lines():
            self._note(line)
            end = line
        assert isinstance(end, Done | Failed)
        if isinstance(end, Failed) and self._holding.value.cancelled_by:
            return Failed.of(Cancelled("The job was cancelled"))
        if isinstance(end, Failed) and end.code == NakshaError.code:
            _log.error("job %s: %s\n%s", self._name, end.message, "\n".join(process.errors))
        return end

    async def _spec(self) -> dict[str, Any]:
        """What its process is told; the configuration may have changed since it was submitted."""
        job, how = self._job, self._how
        kind = await how.kinds.get(job.job)
        target = await target_of(await self._realm.registry.snapshot_now(), job, kind)
        if kind.access == WRITE:
            await self._make_collection(target)
        placed = Placed(*self._realm.located(target.storage))
        return whole_spec(job, kind, target, placed, how.files, self._realm.realm_id)

    async def _make_collection(self, target: Target) -> None:
        """The collection of a space has the settings that the space says."""
        if target.stored is None or not target.stored.auto_create:
            return
        storage = await self._realm.storage(target.storage.id)
        info = target.stored.collection
        try:
            await storage.collection(info.id)
        except CollectionNotFound:
            async with storage.write(self._job.app_id, self._job.author) as session:
                await session.create_collection(info)

    def _note(self, line: Line) -> None:
        if isinstance(line, Phase):
            self._phase, self._done = line, 0
            self._say(line.name)
        elif isinstance(line, Moved):
            self._done = line.done
        elif isinstance(line, Said):
            self._say(line.text)

    def _say(self, text: str) -> None:
        self._said.append(LogLine(_now_ms(), text[: limits.JOB_SAID_LENGTH_MAX]))
        del self._said[: -limits.JOB_LOG_LINES_MAX]

    # ---- What is kept of it ------------------------------------------------------------------

    async def _keep_saving(self) -> None:
        """Keep how far it is, and look whether it shall end; ends with Lost."""
        while True:
            try:
                await self._save()
            except NakshaError as error:
                _log.warning("job %s: %s", self._name, error)
                self._holding.check()
            if self._holding.value.cancelled_by and self._process is not None:
                self._process.cancel()
            await asyncio.sleep(limits.JOB_SAVE_SECONDS)

    async def _save(self) -> None:
        phase, done = self._phase, self._done

        def changed(old: JobState) -> JobState:
            return msgspec.structs.replace(old, phase=phase.name, done=done, total=phase.total)

        await self._holding.save(changed)
        await self._save_log()

    async def _save_log(self) -> None:
        said, self._said = self._said, []
        if not said:
            return
        try:
            await add_to_log(self._realm.opened.persistence, self._job.own.log_id, said)
        except NakshaError:
            self._said = said + self._said
            raise

    async def _end(self, end: Done | Failed) -> None:
        """Keep how it ended, and try until that is done or it is somebody else's."""
        state = State.DONE if isinstance(end, Done) else State.FAILED
        if isinstance(end, Failed) and end.code == Cancelled.code:
            state = State.CANCELLED
        self._say(state.value if isinstance(end, Done) else f"{state}: {end.error()}")
        phase, done = self._phase, self._done

        def changed(old: JobState) -> JobState:
            return msgspec.structs.replace(
                old,
                state=state,
                phase=phase.name,
                done=done,
                total=phase.total,
                report=_bounded(end.report) if isinstance(end, Done) else None,
                error=end if state is State.FAILED and isinstance(end, Failed) else None,
                ended_ms=_now_ms(),
            )

        while True:
            with contextlib.suppress(NakshaError):
                await self._save_log()
            try:
                await self._holding.save(changed)
            except NakshaError as error:
                _log.warning("job %s has ended: %s", self._name, error)
                self._holding.check()
                await asyncio.sleep(limits.JOB_SAVE_SECONDS)
            else:
                _log.info("job %s: %s", self._name, state.value)
                return


def _bounded(report: dict[str, Any]) -> dict[str, Any]:
    """A report that can be kept: what is too large is left out, and that is told."""
    size = len(msgspec.json.encode(report))
    if size <= limits.JOB_REPORT_BYTES_MAX:
        return report
    small = {name: value for name, value in report.items() if isinstance(value, int | float | str)}
    kept = {name: value for name, value in small.items() if len(str(value)) < 1_000}
    return {**kept, "truncated": f"the whole report has {size} bytes"}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
