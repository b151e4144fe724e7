"""Staging: features that many processes bring for one write, which is applied by one transaction.

Whoever brings features may die or be repeated, and whoever applies them may do so twice or never
(Spark promises no more). So each attempt to stage has a table of its own, which belongs to the job
and is named at random; applying takes exactly the tables that it is told, opens its own
transaction and draws the number there; a job that was applied is kept in the storage by the same
transaction, so that applying it again does nothing. What nobody applied in time is swept.
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
from naksha.spi.arrow import as_given

JOB: Final = "job"
"""The kind of the object that is kept for a job that was applied, and the id of the message by
which the log tells the job of a transaction."""
MESSAGE: Final = "message"
"""The id of the message that a transaction is told by."""
_PROPERTIES: Final = "properties"
_GEOMETRY: Final = "geometry"


class WriteMode(StrEnum):
    """What becomes of the features that are there already."""

    CREATE = "create"
    """A feature that is there is FeatureExists."""
    UPSERT = "upsert"
    """It is replaced; one that is the same is left alone."""
    REPLACE = "replace"
    """As UPSERT; and features whose `key` has a value that a staged one has, too, but that are
    not staged themselves, are deleted. Nothing and null are no values; a key leads through objects
    only."""
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

    async def add(self, features: pa.RecordBatch | PreparedFeatures) -> None:
        """Stage features (schema: `naksha.spi.arrow.GIVEN`; columns that are not there are null).
        Bad ones are InvalidArgument, which names the feature, what is wrong with it, and as
        `position` its row among all that were added; then only `abort` is left. What was
        `checked` for the collection is not checked again."""

    async def close(self) -> StagedPart:
        """All of it is staged, and stays until the job is applied or its lease is over."""

    async def abort(self) -> None:
        """Forget it, if it is not closed. May be called at any time, and again."""


class Staging(Protocol):
    """What a storage offers to jobs that write from many processes."""

    async def stage(self, job: str, info: CollectionInfo) -> Stage:
        """Begin an attempt. It renews the lease of all that the job has staged
        (`limits.STAGING_LEASE_SECONDS`), and so does each `add` that comes late. Features are
        checked against the collection that is there, else against `info`."""

    async def apply_staged(self, write: StagedWrite, parts: Sequence[StagedPart]) -> Applied:
        """Do it, as one transaction; nothing else of the job's staging counts, and all of that is
        dropped. A collection that is new or empty is filled by the bulk path. When it fails nothing
        has changed, what was staged is still there, and it may be applied again, in another way
        too.

        InvalidArgument: an id is staged twice, and nobody could say which one counts (it is named);
        a part is of another job or another collection. NotFound: some part is not there any more.
        Conflict: the collection does not take what was staged for it (another prefix of ids, or
        points only); a `uuid` in the namespace of a feature is not HEAD's; the job was applied to
        another collection, or on another branch.
        OutcomeUnknown: the answer got lost, and the storage cannot be asked whether it was done.
        On a branch the collection must be there already."""

    async def drop_staged(self, job: str) -> None:
        """Forget all that a job has staged, attempts that are not closed included."""


# ---- What every storage looks at first -----------------------------------------------------------


def checked(batch: pa.RecordBatch, info: CollectionInfo, first_row: int = 0) -> PreparedFeatures:
    """Check features as `Stage.add` does; `first_row` is what the first one is called in errors."""
    prepared = check_columns(as_given(batch), id_prefix=info.id_prefix, first_row=first_row)
    check_points(prepared, info)
    return prepared


def check_job(job: str) -> str:
    """The id of a job: any text that is not too long."""
    return check_text(job, limits.JOB_ID_BYTES_MAX, field="job")


def check_write(write: StagedWrite, parts: Sequence[StagedPart]) -> None:
    """Refuse what cannot be meant."""
    check_job(write.job)
    check_collection_id(write.info.id, field="id")
    check_app_id(write.app_id)
    check_author(write.author)
    if write.message is not None:
        check_text(write.message, limits.MESSAGE_TEXT_BYTES_MAX, field="message")
    if (write.mode is WriteMode.REPLACE) != bool(write.key):
        raise InvalidArgument("A key is needed by the mode `replace`, and by no other", field="key")
    if write.key is not None:
        check_key(write.key)
    if len(parts) > limits.STAGED_PARTS_MAX:
        raise LimitExceeded(
            f"{len(parts)} parts, more than {limits.STAGED_PARTS_MAX}", field="parts"
        )
    for part in parts:
        if part.job != write.job:
            raise InvalidArgument(f"A part is of the job {part.job!r}", field="parts")
    if len({part.table for part in parts}) < len(parts):
        raise InvalidArgument("A part is there twice", field="parts")


def check_key(key: Sequence[str]) -> None:
    """Refuse the key of WriteMode.REPLACE for which nothing would ever be deleted: the storage adds
    the namespace to `properties`, and has geometries elsewhere."""
    start = tuple(key[:2])
    if start in ((_PROPERTIES,), (_PROPERTIES, XYZ)) or start[:1] == (_GEOMETRY,):
        raise InvalidArgument(
            f"A key is a property of the features that are written, not {'.'.join(key)!r:.200}",
            field="key",
        )


def check_settings(staged: CollectionInfo, info: CollectionInfo) -> None:
    """Refuse features that were checked against other settings than those of the collection."""
    if (staged.id_prefix, staged.points_only) != (info.id_prefix, info.points_only):
        raise Conflict(
            "The collection takes other ids or geometries than those that were staged for it; "
            "stage them again",
            collection_id=info.id,
        )


def not_staged(part: StagedPart) -> NotFound:
    """The error about a part that is not there."""
    return NotFound(
        f"There is no part {part.table!r} of the job {part.job!r}; it was swept or applied"
    )


class _Target(msgspec.Struct):
    """Where a job was applied: to a collection, on main or on a branch, which is known by its
    overlay. Records of former versions do not say it."""

    collection: str | None = None
    overlay: int | None = None


def record_of(collection: str, overlay: int, applied: Applied, at_ms: int) -> dict[str, object]:
    """What is kept of a job that was applied, where, and when it was. A txn is a text in JSON."""
    txn = None if applied.txn is None else str(applied.txn)
    where = msgspec.to_builtins(_Target(collection, overlay))
    return {**msgspec.to_builtins(applied), **where, "txn": txn, "at": at_ms}


def applied_before(record: object) -> Applied:
    """What a repeated call answers, from what is kept of the first one."""
    first = msgspec.convert(record, Applied, strict=False)
    return msgspec.structs.replace(first, repeated=True)


def applied_there(record: object, job: str, collection: str, *overlays: int) -> Applied:
    """The same for whoever would apply the job to a collection, on main or on a branch.

    Raises:
        Conflict: Another write has had that id. It would count as done although nothing was.
    """
    known = msgspec.convert(record, _Target)
    place = None
    if known.collection not in (None, collection):
        place = f"to the collection {known.collection!r}"
    elif known.overlay not in (None, *overlays):
        place = "on another branch"
    if place is not None:
        raise Conflict(
            f"The job {job!r:.100} was applied before, {place}; another write needs another id",
            field="job",
            collection_id=collection,
        )
    return applied_before(record)


def key_of(feature: Mapping[str, Any], key: Sequence[str]) -> bytes | None:
    """What a feature has at a key, so that equal values are the same; None for no value."""
    value: Any = feature
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else _canonical.encode(_plain(value))


def _plain(value: Any) -> Any:
    """1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


_canonical: Final = msgspec.json.Encoder(order="sorted")
