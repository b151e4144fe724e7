"""What every job has: a specification that is plain data, a way to tell how far it is, a report.

    def export(spark: SparkSession, spec: Export, progress: Progress) -> Exported: ...

A specification is a `Spec` with the name of the job as its tag, so that it can be read from JSON;
whoever runs a job (a script, the command line, a process of the hub) brings the progress.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from naksha.spark.options import Place


class Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
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


class Silent:
    """Nobody wants to know."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Nothing is told."""

    def advance(self, count: int = 1) -> None:
        """Nothing is told."""

    def say(self, text: str) -> None:
        """Nothing is told."""
