"""Staging: features that many processes bring for one write, which is applied by one transaction.

Whoever brings features may die or be repeated, and whoever applies them may do so twice or never
(Spark promises no more). So each attempt to stage has a table of its own, which belongs to the job
and is named at random; applying takes exactly the tables that it is told, opens its own
transaction and draws the number there; the id of the job is unique in the log, so that applying it
again does nothing. What nobody applied in time is swept.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from naksha.model.collection import CollectionInfo


class WriteMode(StrEnum):
    """What becomes of the features that are there already."""

    CREATE = "create"
    """A feature that is there is FeatureExists."""
    UPSERT = "upsert"
    """It is replaced; one that is the same is left alone."""
    REPLACE = "replace"
    """As UPSERT; and features whose `key` has a value that a staged one has, too, but that are
    not staged themselves, are deleted."""
    MIRROR = "mirror"
    """As UPSERT; and whatever is not staged is deleted."""


class StagedPart(msgspec.Struct, frozen=True):
    """What one attempt has staged, in a table of its own: small and picklable."""

    job: str
    table: str
    features: int


class StagedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with the staged features of a job.

    `info` is the collection, which is made when it is not there (and keeps its settings when it
    is). `key` is the path of the property that WriteMode.REPLACE is about, for example
    `("properties", "source")`.
    """

    job: str
    info: CollectionInfo
    mode: WriteMode
    app_id: str
    author: str | None = None
    message: str | None = None
    key: tuple[str, ...] | None = None


class Applied(msgspec.Struct, frozen=True):
    """What a staged write became: its transaction (None when it changed nothing) and its counts.
    `repeated` when it had been applied before; the rest is as it was then."""

    txn: int | None
    created: int
    updated: int
    deleted: int
    retained: int
    repeated: bool = False


class Stage(Protocol):
    """One attempt to stage features. It ends with `close` or `abort`, and is swept otherwise."""

    async def add(self, batch: pa.RecordBatch) -> None:
        """Stage features (schema: `naksha.spi.arrow.GIVEN`). Bad ones are InvalidArgument, which
        names the feature and what is wrong with it; then only `abort` is left."""

    async def close(self) -> StagedPart:
        """All of it is staged, and stays until the job is applied or its lease is over."""

    async def abort(self) -> None:
        """Forget it."""


@runtime_checkable
class Staging(Protocol):
    """What a storage offers to jobs that write from many processes."""

    async def stage(self, job: str, info: CollectionInfo) -> Stage:
        """Begin an attempt. It renews the lease of all that the job has staged."""

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> Applied:
        """Do it, as one transaction; nothing else of the job's staging counts, and all of that is
        dropped. A collection that is new or empty is filled by the bulk path. An id that is staged
        twice is InvalidArgument: nobody could say which one counts. NotFound when something of it
        was swept."""

    async def drop_staged(self, job: str) -> None:
        """Forget all that a job has staged."""
