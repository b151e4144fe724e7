"""The job `verify`: recomputes what must be true of a collection, and tells what is not.

All states are read, those that nobody ever saw too, as of the last published version; so it can
run while others write. Branches are read as far as they changed something. What it finds is
reported, never raised; `naksha job verify` ends with another exit code then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Expired, Retryable, StorageCorrupt
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.model.query import Query, States
from naksha.model.status_codes import outward
from naksha.model.transaction import MAIN, LogFilter, Signal, Transaction
from naksha.model.version import AtSeq, Version
from naksha.spark.jobs import invariants
from naksha.spark.jobs.collection_tables import changed, fixed, oldest_version
from naksha.spark.jobs.frame import Job, OutputFile, Progress, Spec
from naksha.spark.jobs.invariants import Invariant, Line
from naksha.spark.jobs.publish_directory import check_output, made_before, published, tell
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.storage_cache import existing
from naksha.spark.source.options import HEAD
from naksha.spi.storage import Split, Storage
from naksha.versioning.lines import line_of_branch
from naksha.versioning.records import Branch, Epoch, everywhere

_LOG: Final = pa.schema(
    [
        pa.field("branch", pa.string()),
        pa.field("overlay", pa.int64()),
        pa.field("txn", pa.int64()),
        pa.field("created", pa.int64()),
        pa.field("updated", pa.int64()),
        pa.field("deleted", pa.int64()),
        pa.field("purged", pa.int64()),
        *(pa.field(edge, pa.float64()) for edge in ("west", "south", "east", "north")),
        pa.field("is_change", pa.bool_()),
    ]
)
"""What the log tells of a collection. A row is about features, or a change of the collection."""
_NOWHERE: Final = (None,) * 4
_FOUND: Final = (
    "branch string, feature string, uuid string, txn bigint, invariant string, message string"
)
_WRITTEN: Final = "MODIFY_FEATURES"
_CHANGED: Final = "MODIFY_COLLECTION"


class Verify(Spec, frozen=True, kw_only=True, tag="verify"):
    """Check a collection, on main and on all branches."""

    collection: str
    output: OutputFile | None = None
    """A directory of Parquet files for all that is found; the report has some of it."""
    overwrite: bool = False
    job_id: str = ""
    """A directory that this very job has made is its result."""


class Violation(msgspec.Struct, frozen=True, rename="camel"):
    """Something that must not be. `branch` is None on main, `feature` where the log does not say
    which one it is."""

    invariant: str
    branch: str | None
    feature: str | None
    uuid: str | None
    txn: str | None
    message: str


class Verified(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was looked at, and what is wrong with it."""

    collection: str
    seq_number: int
    complete_since: int
    """The version from which on history is complete; what came before is not missed."""
    branches: int
    """How many there are; one that was rebased counts for each base."""
    states: int
    transactions: int
    violations: dict[str, int]
    """How many there are, by invariant; empty when all is well."""
    found: list[Violation]
    """The first ones."""
    output: str | None


class _Read(NamedTuple):
    """What is to be read of a storage: splits, and the line that each is of."""

    storage: StorageIdentity
    version: Version
    complete_since: Version
    lines: list[Line]
    splits: list[Split]
    owners: list[Line]
    log_first: Version
    """The first version that the log still has; 0 when it has all of them."""
    has_history: bool


def verify(spark: SparkSession, spec: Verify, progress: Progress) -> Verified:
    """See `Verify`."""
    target = None
    if spec.output is not None:
        if (made := made_before(spec.output, spec.job_id, Verified)) is not None:
            return made
        target = check_output(spec.output, overwrite=spec.overwrite)
    for _ in range(limits.VERIFY_RUNS_MAX):
        # So may the log, in the midst of being read.
        with suppress(Expired):
            report = _verified(spark, spec, target, progress)
            if report is not None:
                return report
        progress.say("History expired meanwhile, which must not be taken for a gap: once more")
    raise Retryable("History expires faster than it is checked", collection_id=spec.collection)


def _verified(
    spark: SparkSession, spec: Verify, target: Path | None, progress: Progress
) -> Verified | None:
    """None when what was read is not all that should have been there."""
    progress.phase("looking at branches")
    storage = existing(spec.place)
    read = storage.call(lambda it: _plan(it, spec.collection))
    states, log = _states(spark, spec, read).persist(), _log(spark, spec, read).persist()
    try:
        (seen,) = watched(
            spark, progress, "reading", states.agg(f.count("*"), f.min("txn")).collect
        )
        counted = watched(spark, progress, "reading the log", lambda: _counted(log, seen[1]))
        found = invariants.violations(states, counted, read.log_first.txn)
        found = found.union(_twice(spark, spec, read, progress))
        by_invariant = found.groupBy("invariant").count()
        counts = watched(spark, progress, "checking", by_invariant.collect)
        report = Verified(
            collection=spec.collection,
            seq_number=read.version.seq_number,
            complete_since=read.complete_since.seq_number,
            branches=len(read.lines) - 1,
            states=seen[0],
            transactions=counted.count(),
            violations={row["invariant"]: row["count"] for row in sorted(counts)},
            found=_told(found) if counts else [],
            output=None if target is None else str(target),
        )
        if read.has_history:
            since = storage.call(lambda it: oldest_version(it, spec.collection))
            if since != read.complete_since:
                return None
        if target is not None:
            with published(target, overwrite=spec.overwrite) as work:
                found.write.mode("append").parquet(str(work))
                tell(work, spec.job_id, report)
    finally:
        states.unpersist()
        log.unpersist()
    return report


def _twice(spark: SparkSession, spec: Verify, read: _Read, progress: Progress) -> DataFrame:
    """What the storage keeps twice, and not the same; that can only be looked at where it is."""
    progress.phase("looking at indices")
    most = limits.MISMATCHES_MAX
    found = existing(spec.place).call(lambda it: it.mismatches(spec.collection, most))
    branches = {line.overlay: line.branch for line in read.lines}
    rows = [
        (
            *(branches[each.overlay], each.id, None, each.txn),
            *(Invariant.LOG.value if each.is_of_log else Invariant.INDEX.value, each.message),
        )
        for each in found
        if each.overlay in branches  # of a branch that is gone nobody reads anything
    ]
    return spark.createDataFrame(rows, _FOUND)


def _told(found: DataFrame) -> list[Violation]:
    """The first ones, always in the same order."""
    rows = found.orderBy("branch", "feature", "txn", "invariant", "uuid", "message")
    return [
        Violation(
            row.invariant,
            row.branch,
            row.feature,
            row.uuid,
            None if row.txn is None else str(row.txn),
            row.message,
        )
        for row in rows.limit(limits.VIOLATIONS_TOLD_MAX).collect()
    ]


# ---- What is read --------------------------------------------------------------------------------


async def _plan(storage: Storage, collection: str) -> _Read:
    at = await fixed(storage, HEAD)
    has_history = (await storage.collection(collection)).history_enabled
    # Without history whatever is written next takes the version with it. What is left of it then is
    # still as it must be, but nothing is missing that is gone.
    floor = await oldest_version(storage, collection) if has_history else at.version
    main = Line(None, MAIN, 0, floor.txn)
    splits = await storage.plan(collection, Query(states=States.ALL), at.at, hidden=True)
    read = _Read(
        *(storage.identity, at.version, floor),
        *([main], splits, [main] * len(splits)),
        await _log_first(storage),
        has_history,
    )
    for known in await everywhere(storage):
        if isinstance(known.record, Branch) and known.record.scope.covers(collection):
            for epoch in known.record.epochs:
                await _add_branch(read, storage, collection, known.record, epoch)
    return read


async def _add_branch(
    read: _Read, storage: Storage, collection: str, branch: Branch, epoch: Epoch
) -> None:
    """What a branch has changed on one of its bases, and what was there before it."""
    base = epoch.below[0].txn or 0
    if base >= read.version.txn:
        return
    on_branch = line_of_branch(storage, branch, epoch).storage
    at = AtSeq(read.version.seq_number)
    try:
        ids = await _changed_ids(on_branch, collection, base, at)
    except CollectionNotFound:
        return  # It was not there when the branch was made.
    whole = Query(states=States.ALL, ids=ids)
    splits = await on_branch.plan(collection, whole, at, hidden=True)
    line = Line(branch.name, epoch.overlay, base, base)
    read.lines.append(line)
    read.splits.extend(splits)
    read.owners.extend([line] * len(splits))


async def _changed_ids(
    on_branch: Storage, collection: str, base: int, at: AtSeq
) -> tuple[str, ...] | None:
    """The features that a branch has own states of; None for too many to be named."""
    query = Query(states=States.ALL, txn_from=base + 1)
    ids: set[str] = set()
    for split in await on_branch.plan(collection, query, at, hidden=True):
        async for batch in on_branch.read(split, ["id"]):
            ids.update(batch.column(0).to_pylist())
            if len(ids) > limits.VERIFY_BRANCH_IDS_MAX:
                return None
    return tuple(sorted(ids))


def _states(spark: SparkSession, spec: Verify, read: _Read) -> DataFrame:
    splits, owners = read.splits, read.owners

    def looked_at(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return invariants.looked_at(owners[number], splits[number], batch)

    seen = changed(spark, spec.place, splits, invariants.READ, invariants.SEEN, looked_at)
    alone = invariants.alone(seen, read.storage, spec.collection)
    # What is kept by Spark keeps its number of parts, however few states there are.
    together = alone.repartition(max(len(splits), 1), "overlay", "id")
    return invariants.chained(together)


# ---- The log -------------------------------------------------------------------------------------


async def _log_first(storage: Storage) -> Version:
    try:
        await storage.transactions(0, 1)
    except Expired as error:
        return await storage.resolve(AtSeq(error.oldest or 1))
    return await storage.resolve(AtSeq(0))


def _log(spark: SparkSession, spec: Verify, read: _Read) -> DataFrame:
    """What the log tells of the collection, where history is complete: each task reads a part of
    it, a page at a time."""
    first, last = max(read.log_first.seq_number, 1), read.version.seq_number
    lines = {line.overlay: line for line in read.lines}
    place, collection = spec.place, spec.collection

    def pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for begin in batch.column(0).to_pylist():
                end = min(begin + limits.VERIFY_LOG_PART, last + 1)
                part = partial(_log_part, lines, collection, begin, end)
                yield from existing(place).iterate(part)

    parts = max(-(-(last + 1 - first) // limits.VERIFY_LOG_PART), 1)
    begins = spark.range(first, last + 1, limits.VERIFY_LOG_PART, parts)
    return begins.mapInArrow(pages, from_arrow_schema(_LOG))


async def _log_part(
    lines: Mapping[int, Line], collection: str, begin: int, end: int, storage: Storage
) -> AsyncIterator[pa.RecordBatch]:
    """The versions from one on, before another one."""
    where = LogFilter(collections=(collection,), overlays=None)
    after = begin - 1
    while page := await storage.transactions(after, limits.VERIFY_LOG_PAGE, where):
        after = page[-1].seq_number or end
        rows = [
            row
            for each in page
            if each.seq_number is not None and each.seq_number < end
            for signal in each.signals
            if signal.id == collection
            for row in _log_rows(lines, each, signal)
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(_LOG)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _LOG, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_LOG)
        if after >= end - 1:
            return


def _log_rows(
    lines: Mapping[int, Line], transaction: Transaction, signal: Signal
) -> list[tuple[object, ...]]:
    overlay, txn = transaction.overlay, transaction.txn
    if signal.action == _CHANGED:
        return [(None, overlay, txn, 0, 0, 0, 0, *_NOWHERE, True)]
    line = lines.get(overlay)
    if signal.action != _WRITTEN or line is None or txn <= line.floor:
        return []
    counts = (signal.created, signal.updated, signal.deleted, signal.purged)
    return [(line.branch, overlay, txn, *counts, *(signal.bbox or _NOWHERE), False)]


def _counted(log: DataFrame, first: int | None) -> DataFrame:
    """What the log counts. What was there under the same name before is left out: the collection is
    not older than the last change of it until its first state."""
    changes = log.where("is_change")
    if first is not None:
        changes = changes.where(f"txn <= {first}")
    (created,) = changes.agg(f.max("txn")).collect()
    return log.where(f"NOT is_change AND txn >= {created[0] or 0}").drop("is_change")


def _exit_code(report: Verified) -> int:
    return outward(StorageCorrupt).exit_code if report.violations else 0


JOB = Job(
    Verify,
    verify,
    "Check that what is stored of a collection is as it must be.",
    exit_code=_exit_code,
)
