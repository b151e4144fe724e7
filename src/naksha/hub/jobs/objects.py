"""Persistent objects of a job: its immutable specification, its changing state, and its log.

The jobs of a realm have a pointer of their own, so that they do not conflict with configuration
changes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from naksha.catalog.objects import Object, object_type
from naksha.catalog.persistence import Persistence
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Right
from naksha.hub.config.objects import HubObject, check_object_id
from naksha.hub.leases import Leased, LeasedTable, read_objects
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.identity.names import check_collection_id
from naksha.spi.jobs.messages import FailedMessage

JOBS: Final = "jobs"
"""Name of the pointer of jobs."""
_COMPUTED: Final = frozenset({"type", "status"})


class OwnIds(msgspec.Struct, frozen=True, rename="camel"):
    """Internal ids of a job: of its state, its log, and its writes, never used by another job."""

    state_id: int = 0
    log_id: int = 0
    run_id: str = ""


@object_type("hub-job")
class JobObject(HubObject, frozen=True, kw_only=True, rename="camel"):
    """Specification of a job: what it does, and on which data."""

    kind: ClassVar[str] = "job"
    use_right: ClassVar[Right] = Right.USE_JOBS
    manage_right: ClassVar[Right] = Right.MANAGE_JOBS
    computed: ClassVar[frozenset[str]] = _COMPUTED

    job: str
    """Kind of the job."""
    space_id: str | None = None
    storage_id: str | None = None
    """The space or the storage that the job works on."""
    collection: str | None = None
    """The collection of the storage, None for all; for a space, the hub determines it."""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields of the specification."""
    own: OwnIds = OwnIds()

    def check(self) -> None:
        super().check()
        if (self.space_id is None) == (self.storage_id is None):
            raise InvalidArgument(
                "A job needs exactly one target, a spaceId or a storageId", field="spaceId"
            )
        if self.space_id is not None:
            check_object_id(self.space_id, "space")
            if self.collection is not None:
                raise InvalidArgument(
                    "A job can name a collection of a storage only: with a spaceId, omit "
                    "collection, as a space has its own",
                    field="collection",
                )
        if self.storage_id is not None:
            check_object_id(self.storage_id, "storage")
        if self.collection is not None:
            check_collection_id(self.collection, field="collection")
        if len(msgspec.json.encode(self.spec)) > limits.JOB_SPEC_BYTES_MAX:
            raise LimitExceeded(
                f"The spec of the job has more than {limits.JOB_SPEC_BYTES_MAX} bytes; shorten it",
                field="spec",
            )

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON without internal ids."""
        return {name: value for name, value in self.whole_json().items() if name != "own"}

    def resource(self) -> Resource:
        return resources.job(
            self.id,
            job=self.job,
            space_id=self.space_id,
            storage_id=self.storage_id,
            owner=self.owner,
            tags=self.tags,
            app_id=self.app_id,
            author=self.author,
        )


class JobStatus(StrEnum):
    """State of a job."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The instance of the job died, and the job must not restart automatically."""

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self not in (JobStatus.SUBMITTED, JobStatus.RUNNING)


@object_type("job-state", is_cached=False)
class JobState(Leased, frozen=True, kw_only=True):
    """Frequently changing state of a job."""

    state: JobStatus = JobStatus.SUBMITTED
    submitted_ms: int
    started_ms: int = 0
    ended_ms: int = 0
    attempt: int = 0
    """How often the job was started."""
    phase: str = ""
    done: int = 0
    total: int | None = None
    cancelled_by: str = ""
    """The actor who requested the cancellation, if any."""
    report: dict[str, Any] | None = None
    error: FailedMessage | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON for clients."""
        status: dict[str, Any] = {
            "state": self.state.value,
            "submittedAt": self.submitted_ms,
            "startedAt": self.started_ms or None,
            "endedAt": self.ended_ms or None,
            "attempt": self.attempt,
            "instance": self.holder or None,
            "phase": self.phase or None,
            "done": self.done if self.phase else None,
            "total": self.total,
            "cancelledBy": self.cancelled_by or None,
            "report": self.report,
            "error": None if self.error is None else _error_json(self.error),
        }
        return {name: value for name, value in status.items() if value is not None}


def _error_json(failed: FailedMessage) -> dict[str, Any]:
    status = {
        "code": failed.code,
        "message": failed.message,
        "field": failed.field,
        "featureId": failed.feature_id,
        "collectionId": failed.collection_id,
    }
    return {name: value for name, value in status.items() if value is not None}


class JobTable(LeasedTable[JobState]):
    """The states of all jobs of a realm."""

    def __init__(self, persistence: Persistence) -> None:
        super().__init__(persistence, JobState)


class LogLine(msgspec.Struct, frozen=True):
    """A line of a job's log."""

    at: int
    """Epoch milliseconds."""
    text: str


@object_type("job-log", is_cached=False)
class JobLog(msgspec.Struct, frozen=True):
    """The newest lines of a job's log."""

    lines: tuple[LogLine, ...] = ()
    dropped: int = 0
    """Number of older lines that were dropped."""

    def with_lines(self, more: list[LogLine]) -> JobLog:
        """Return the log with more lines, and without the oldest ones if it becomes too large."""
        lines = [*self.lines, *more]
        size = sum(_bytes(line) for line in lines)
        first = max(0, len(lines) - limits.JOB_LOG_LINES_MAX)
        size -= sum(_bytes(line) for line in lines[:first])
        while size > limits.JOB_LOG_BYTES_MAX:
            size -= _bytes(lines[first])
            first += 1
        return JobLog(tuple(lines[first:]), self.dropped + first)


_LINE_BYTES: Final = 24
"""Estimated size of a line besides its text."""


def _bytes(line: LogLine) -> int:
    return len(line.text.encode(errors="replace")) + _LINE_BYTES


async def read_log(persistence: Persistence, id: int) -> Object[JobLog] | None:
    """Return the log of a job."""
    return (await read_objects(persistence, JobLog, [id])).get(id)


async def add_to_log(persistence: Persistence, id: int, more: list[LogLine]) -> None:
    """Add lines to a log, with retries on concurrent changes.

    Lines already in the log are skipped: an earlier attempt may have been interrupted after it
    wrote them.
    """
    while (old := await read_log(persistence, id)) is not None:
        known = set(old.value.lines)
        new = [line for line in more if line not in known]
        if not new or await persistence.replace(old, old.value.with_lines(new)) is not None:
            return
