"""Interface of jobs: a specification that is plain data, progress reporting, a report.

    class Export(JobSpec, frozen=True, kw_only=True, tag="export"):
        collection: str
        output: OutputFile

    def export(spark: SparkSession, spec: Export, progress: JobProgress) -> Exported: ...

    JOB = Job(Export, export, "Write a collection to GeoParquet files.")

A specification is a `JobSpec` whose tag is the name of the job, so that it can be decoded from
JSON. The caller (a script, the command line, a process of the hub) provides the progress. A job
that is registered as an entry point of the group `naksha.jobs` can be run by all of them
(`registry.py`).

Some fields have the same meaning in all specifications, because the caller fills them in:

- `collection`, the collection to process (or None if the job can process all of them);
- `info`, the settings of that collection in case the job creates it (or None);
- `app_id` and `author`, on whose behalf it writes;
- `job_id`, the id of its staged data: a repeated run has the same one, so that it writes only once.
  If it is empty, the job has never been run before and gets an id.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from pyspark.sql import SparkSession

from naksha.model.errors import Cancelled
from naksha.spark.source.options import StorageRef

FILE: Final = "naksha-file"
"""Key in the JSON schema of a field that names a file or directory to read or write."""

InputFile: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={FILE: "read"})]
"""File, directory or pattern to read. Over REST only paths below a configured directory of the
server are allowed, so fields of any other type must not name files."""

OutputFile: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={FILE: "write"})]
"""File or directory to write, with the same restriction."""


class JobSpec(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="job", forbid_unknown_fields=True
):
    """Specification of a job; `place` is the location of its storage."""

    place: StorageRef


class JobProgress(Protocol):
    """Receiver of the progress of a job.

    All calls may raise `Cancelled`, so that a job ends soon after it was cancelled.
    """

    def phase(self, name: str, total: int | None = None) -> None:
        """Report the start of a phase with `total` items (features, parts), if known."""

    def advance(self, count: int = 1) -> None:
        """Report that more items are done."""

    def say(self, text: str) -> None:
        """Report a text for the user."""

    def disable_cancellation(self) -> None:
        """Report that the job cannot be cancelled any more, because its next step is final."""


class SilentProgress:
    """Progress that ignores all reports."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Ignore the report."""

    def advance(self, count: int = 1) -> None:
        """Ignore the report."""

    def say(self, text: str) -> None:
        """Ignore the report."""

    def disable_cancellation(self) -> None:
        """Ignore the report."""


class UncancellableProgress:
    """Progress of a step that cannot be cancelled.

    The constructor raises `Cancelled` if the job was cancelled before.
    """

    def __init__(self, progress: JobProgress) -> None:
        progress.disable_cancellation()
        self._progress = progress

    def phase(self, name: str, total: int | None = None) -> None:
        """Forward the report, and ignore a cancellation."""
        with suppress(Cancelled):
            self._progress.phase(name, total)

    def advance(self, count: int = 1) -> None:
        """Forward the report, and ignore a cancellation."""
        with suppress(Cancelled):
            self._progress.advance(count)

    def say(self, text: str) -> None:
        """Forward the report, and ignore a cancellation."""
        with suppress(Cancelled):
            self._progress.say(text)

    def disable_cancellation(self) -> None:
        """Do nothing: it was reported by the constructor."""


class JobAccess(StrEnum):
    """Kind of access of a job, which determines the rights that it requires."""

    READ = "read"
    WRITE = "write"
    """It creates and updates features, and deletes them depending on its field `mode`. If its field
    `history` is true it dates its transactions, which requires the right to manage the storage."""
    MANAGE = "manage"
    """It drops data that cannot be restored."""


S = TypeVar("S", bound=JobSpec)
R = TypeVar("R", bound=msgspec.Struct)


class Job(NamedTuple, Generic[S, R]):
    """Job that can be run by its name."""

    spec: type[S]
    run: Callable[[SparkSession, S, JobProgress], R]
    about: str
    """Purpose of the job, in one sentence."""
    access: JobAccess = JobAccess.READ
    is_repeatable: bool = True
    """Whether it may be run again after its process has died."""
    exit_code: Callable[[R], int] | None = None
    """Exit code of its process for a report, if it is not always 0: a job that checks something
    signals the result this way."""
    needs_spark: bool | Callable[[S], bool] = True
    """Whether it needs a Spark session, which may depend on the specification. Otherwise it gets
    None instead of a session, and starts faster."""

    @property
    def name(self) -> str:
        """Name of the job: the tag of its specification."""
        return str(self.spec.__struct_config__.tag)

    def takes_spark(self, spec: S) -> bool:
        """Whether a run with a specification needs a session."""
        return self.needs_spark if isinstance(self.needs_spark, bool) else self.needs_spark(spec)


AnyJob: TypeAlias = Job[Any, Any]
