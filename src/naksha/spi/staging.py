"""Staging: many processes upload features for one write, which a single transaction applies.

A staging process may die or be repeated, and the applying one may run twice or never (Spark
guarantees no more). Therefore each attempt to stage has a table of its own with a random name,
which belongs to the job; applying takes exactly the given tables, opens its own transaction and
allocates the number there; the same transaction records the job as applied, so that applying it
again does nothing. Staged features that are not applied in time are swept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from naksha.model.feature_columns import check_columns
from naksha.model.features import PreparedFeatures
from naksha.model.identity.names import check_app_id, check_author, check_collection_id, check_text
from naksha.model.state import XYZ
from naksha.model.write_checks import check_points
from naksha.spi.arrow import as_input

JOB: Final = "job"
"""Kind of the object that records an applied job, and the id of the message that identifies the job
of a transaction in the log."""
MESSAGE: Final = "message"
"""Id of the message that describes the transaction."""
_PROPERTIES: Final = "properties"
_GEOMETRY: Final = "geometry"


class WriteMode(StrEnum):
    """Treatment of existing features."""

    CREATE = "create"
    """An existing feature is FeatureExists."""
    UPSERT = "upsert"
    """An existing feature is replaced, or left alone if equal."""
    REPLACE = "replace"
    """As UPSERT; and features that share the value at `key` with a staged one, but are not staged
    themselves, are deleted. Absent and null values do not count; a key leads through objects
    only."""
    MIRROR = "mirror"
    """As UPSERT; and all features that are not staged are deleted."""


class StagedPart(msgspec.Struct, frozen=True):
    """Result of one attempt to stage, in a table of its own: small and picklable."""

    job: str
    table: str
    features: int


class StagedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Write of the staged features of a job.

    `info` is the collection, which is created if it does not exist (and otherwise keeps its
    settings). `key` is the path of the property for WriteMode.REPLACE, for example `("properties",
    "source")`.
    """

    job: str
    info: CollectionInfo
    mode: WriteMode
    app_id: str
    author: str | None = None
    message: str | None = None
    key: tuple[str, ...] | None = None


class AppliedWrite(msgspec.Struct, frozen=True):
    """Result of a staged write: its transaction (None when it changed nothing) and its counts.

    `repeated` means that it had been applied before; the other fields are those of the first time.
    """

    txn: int | None
    created: int
    updated: int
    deleted: int
    retained: int
    repeated: bool = False


class StagingAttempt(Protocol):
    """One attempt to stage features, which must end with `close` or `abort` or is swept."""

    async def add(self, features: pa.RecordBatch | PreparedFeatures) -> None:
        """Stage features (schema: `naksha.spi.arrow.INPUT`; missing columns are null).

        Invalid ones raise InvalidArgument with the feature, the problem, and as `position` the row
        among all added ones; after that only `abort` is allowed. Features that were `checked` for
        the collection are not checked again.
        """

    async def close(self) -> StagedPart:
        """Finish the attempt; its features are kept until applied or until the lease expires."""

    async def abort(self) -> None:
        """Discard the attempt, unless closed. May be called at any time, and repeatedly."""


class StagingStorage(Protocol):
    """Storage interface for jobs that write from many processes."""

    async def stage(self, job: str, info: CollectionInfo) -> StagingAttempt:
        """Begin an attempt.

        It renews the lease of everything that the job has staged (`limits.STAGING_LEASE_SECONDS`),
        and so does each late `add`. Features are checked against the existing collection, else
        against `info`.
        """

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> AppliedWrite:
        """Apply the given parts of a job as one transaction and drop all that the job has staged.

        Other parts of the job are ignored. A new or empty collection is filled by the bulk path. On
        a branch the collection must exist. After a failure nothing has changed, the staged features
        still exist, and may be applied again, also in another mode.

        Raises:
            InvalidArgument: An id is staged twice, so that its content is ambiguous (it is
                named); a part belongs to another job or another collection.
            NotFound: A part does not exist any more.
            Conflict: The collection does not accept what was staged for it (another prefix of ids,
                or points only); a `uuid` in the namespace of a feature is not HEAD's; the job was
                applied to another collection, or on another branch.
            OutcomeUnknown: The response was lost, and the storage cannot be asked for the outcome.
        """

    async def drop_staged(self, job: str) -> None:
        """Drop everything that a job has staged, including attempts that are not closed."""


# ---- Checks for every storage --------------------------------------------------------------------


def checked(batch: pa.RecordBatch, info: CollectionInfo, first_row: int = 0) -> PreparedFeatures:
    """Check features as `StagingAttempt.add` does; errors count rows from `first_row`."""
    prepared = check_columns(as_input(batch), id_prefix=info.id_prefix, first_row=first_row)
    check_points(prepared, info)
    return prepared


def check_job(job: str) -> str:
    """Check the id of a job: any text that is not too long."""
    return check_text(job, limits.JOB_ID_BYTES_MAX, field="job")


def check_write(write: StagedWrite, parts: Sequence[StagedPart]) -> None:
    """Check a staged write and its parts."""
    check_job(write.job)
    check_collection_id(write.info.id, field="id")
    check_app_id(write.app_id)
    check_author(write.author)
    if write.message is not None:
        check_text(write.message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
    if write.mode is WriteMode.REPLACE and not write.key:
        raise InvalidArgument(
            "The mode 'replace' requires a key; give the path of a property, such as "
            "properties.source",
            field="key",
        )
    if write.mode is not WriteMode.REPLACE and write.key:
        raise InvalidArgument(
            f"The mode {write.mode.value!r} supports no key; omit the key {'.'.join(write.key)!r}, "
            "or use the mode 'replace'",
            field="key",
        )
    if write.key is not None:
        check_key(write.key)
    if len(parts) > limits.STAGED_PARTS_MAX:
        raise LimitExceeded(
            f"The staged write of job {write.job!r} has {len(parts)} parts, but at most "
            f"{limits.STAGED_PARTS_MAX} are allowed; stage with fewer tasks",
            field="parts",
        )
    for part in parts:
        if part.job != write.job:
            raise InvalidArgument(
                f"The staged part {part.table!r} belongs to job {part.job!r}, not to "
                f"{write.job!r}; pass the parts of one job only",
                field="parts",
            )
    tables = [part.table for part in parts]
    if len(set(tables)) < len(tables):
        raise InvalidArgument(
            f"The staged part {max(tables, key=tables.count)!r} is given more than once; "
            "pass each part once",
            field="parts",
        )


def check_key(key: Sequence[str]) -> None:
    """Refuse a key of WriteMode.REPLACE for which no feature would ever be deleted.

    The storage adds the namespace to `properties`, and stores geometries separately.
    """
    start = tuple(key[:2])
    if start in ((_PROPERTIES,), (_PROPERTIES, XYZ)) or start[:1] == (_GEOMETRY,):
        raise InvalidArgument(
            f"The key must be the path of one property, such as properties.source, not "
            f"{'.'.join(key)!r:.200}",
            field="key",
        )


def check_settings(staged: CollectionInfo, info: CollectionInfo) -> None:
    """Refuse features that were checked against other settings than those of the collection."""
    if (staged.id_prefix, staged.points_only) != (info.id_prefix, info.points_only):
        raise Conflict(
            f"The features were staged for another id prefix or geometry type than collection "
            f"{info.id!r} has; stage them again",
            collection_id=info.id,
        )


def not_staged(part: StagedPart) -> NotFound:
    """Build the error for a missing part."""
    return NotFound(
        f"The staged part {part.table!r} of job {part.job!r} does not exist: it was applied, or "
        "deleted by maintenance because it was too old; stage it again"
    )


class _WriteTarget(msgspec.Struct):
    """Target of an applied job: a collection, on main or on a branch, which its overlay identifies.

    Records of earlier releases do not contain it.
    """

    collection: str | None = None
    overlay: int | None = None


def record_of(
    collection: str, overlay: int, applied: AppliedWrite, at_ms: int
) -> dict[str, object]:
    """Build the record of an applied job, with target and time. A txn is a string in JSON."""
    txn = None if applied.txn is None else str(applied.txn)
    where = msgspec.to_builtins(_WriteTarget(collection, overlay))
    return {**msgspec.to_builtins(applied), **where, "txn": txn, "at": at_ms}


def applied_before(record: object) -> AppliedWrite:
    """Return the result of a repeated call from the record of the first one."""
    first = msgspec.convert(record, AppliedWrite, strict=False)
    return msgspec.structs.replace(first, repeated=True)


def applied_there(record: object, job: str, collection: str, *overlays: int) -> AppliedWrite:
    """Return the result of a repeated call, if the job was applied to the same target.

    Raises:
        Conflict: Another write used the same id, and this one would count as applied although
            nothing was written.
    """
    known = msgspec.convert(record, _WriteTarget)
    place = None
    if known.collection not in (None, collection):
        place = f"to collection {known.collection!r}"
    elif known.overlay not in (None, *overlays):
        place = "on another branch"
    if place is not None:
        raise Conflict(
            f"Job {job!r:.100} was already applied {place}; use another job id",
            field="job",
            collection_id=collection,
        )
    return applied_before(record)


def key_of(feature: Mapping[str, Any], key: Sequence[str]) -> bytes | None:
    """Return the value of a feature at a key in canonical form; None for no value."""
    value: Any = feature
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else _canonical.encode(_plain(value))


def _plain(value: Any) -> Any:
    """Convert floats like 1.0 to integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


_canonical: Final = msgspec.json.Encoder(order="sorted")
