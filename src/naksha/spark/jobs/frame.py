"""What every job has: a specification that is plain data, a way to tell how far it is, a report.

    class Export(Spec, frozen=True, kw_only=True, tag="export"):
        collection: str
        output: OutputFile

    def export(spark: SparkSession, spec: Export, progress: Progress) -> Exported: ...

    JOB = Job(Export, export, "Write a collection to GeoParquet files.")

A specification is a `Spec` with the name of the job as its tag, so that it can be read from JSON;
whoever runs a job (a script, the command line, a process of the hub) brings the progress. With a
line in the group `naksha.jobs` of entry points, all of them can run it (`registry.py`).

Some fields mean the same wherever they are, because whoever runs a job fills them in:

- `collection`, the collection that it is about (or None, when the job can be about all of them);
- `info`, that collection with the settings that it gets if the job has to make it (or None);
- `app_id` and `author`, in whose name it writes;
- `job_id`, what its staging is called: a job that is run again has the same one, so that what was
  written stays written once. Empty: it has never been run before, and gets one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from pyspark.sql import SparkSession

from naksha.model.errors import Cancelled
from naksha.spark.source.options import Place

FILE: Final = "naksha-file"
"""In the schema of a field: it is the name of a file or a directory, which is read or written."""

InputFile: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={FILE: "read"})]
"""A file, a directory or a pattern that is read. Over REST only what is below a directory of the
server's choice can be named, hence a field that is none of these two must name no file."""

OutputFile: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={FILE: "write"})]
"""The same for what is written."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="job", forbid_unknown_fields=True):
    """What a job is to do; `place` is the storage that it is about."""

    place: Place


class Progress(Protocol):
    """Whoever wants to know how far a job is. All calls may raise `Cancelled`, so that a job ends
    soon after somebody wishes it to."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Something new begins; `total` things (features, parts) are to be done, if known."""

    def advance(self, count: int = 1) -> None:
        """So many more of them are done."""

    def say(self, text: str) -> None:
        """Something that a person wants to read."""

    def too_late(self) -> None:
        """What follows cannot be undone: who wishes the job to end later than this gets its
        report."""


class Silent:
    """Nobody wants to know."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Nothing is told."""

    def advance(self, count: int = 1) -> None:
        """Nothing is told."""

    def say(self, text: str) -> None:
        """Nothing is told."""

    def too_late(self) -> None:
        """Nobody would cancel it."""


class Unstoppable:
    """The progress of what goes on to its end, whatever somebody wishes; begins with Cancelled if
    he wished it before."""

    def __init__(self, progress: Progress) -> None:
        progress.too_late()
        self._progress = progress

    def phase(self, name: str, total: int | None = None) -> None:
        """It is told, and nothing else."""
        with suppress(Cancelled):
            self._progress.phase(name, total)

    def advance(self, count: int = 1) -> None:
        """It is told, and nothing else."""
        with suppress(Cancelled):
            self._progress.advance(count)

    def say(self, text: str) -> None:
        """It is told, and nothing else."""
        with suppress(Cancelled):
            self._progress.say(text)

    def too_late(self) -> None:
        """It is so already."""


class Access(StrEnum):
    """What a job does with the features that it is about, hence the rights that it takes."""

    READ = "read"
    WRITE = "write"
    """It creates and updates them; and deletes them if its field `mode` says so. With a field
    `history` that is true it dates its transactions, and takes the right to manage the storage."""
    MANAGE = "manage"
    """It drops what cannot be brought back."""


S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=msgspec.Struct)


class Job(NamedTuple, Generic[S, R]):
    """A job that can be run by its name."""

    spec: type[S]
    run: Callable[[SparkSession, S, Progress], R]
    about: str
    """What it is for: one sentence."""
    access: Access = Access.READ
    is_repeatable: bool = True
    """Whether it may begin again after its process has died in the middle."""
    exit_code: Callable[[R], int] | None = None
    """What its process ends with, by its report, where that is not always 0: a job that looks for
    something tells so whether it found it."""
    needs_spark: bool | Callable[[S], bool] = True
    """Whether it needs a session, which may depend on what is asked for; one that does all by
    itself gets None, and begins sooner."""

    @property
    def name(self) -> str:
        """What it is called: the tag of its specification."""
        return str(self.spec.__struct_config__.tag)

    def takes_spark(self, spec: S) -> bool:
        """Whether a run of it needs a session."""
        return self.needs_spark if isinstance(self.needs_spark, bool) else self.needs_spark(spec)


AnyJob: TypeAlias = Job[Any, Any]
