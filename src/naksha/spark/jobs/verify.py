"""Job `verify`: check the invariants of a collection and report violations.

All states at the last published version are read, including those that were never visible, so it
can run concurrently with writers. Of branches only changed features are read. Violations are
reported, not raised; `naksha job verify` then has an exit code other than 0.
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
from naksha.model.status_codes import status_codes_of
from naksha.model.transaction import MAIN, LogFilter, Signal, Transaction
from naksha.model.version import AtSeq, Version
from naksha.spark.jobs import invariants
from naksha.spark.jobs.collection_tables import fixed_position, oldest_version, table_by_batch
from naksha.spark.jobs.frame import Job, JobProgress, JobSpec, OutputFile
from naksha.spark.jobs.invariants import CheckedLine, Invariant
from naksha.spark.jobs.publish_directory import (
    check_output,
    earlier_report,
    published,
    write_report,
)
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import HEAD
from naksha.spi.storage import Split, Storage
from naksha.versioning.lines import line_of_branch
from naksha.versioning.records import Branch, BranchEpoch, all_records

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
"""Log entries of a collection. A row is about its features, or a change of the collection itself.
"""
_NOWHERE: Final = (None,) * 4
_FOUND: Final = (
    "branch string, feature string, uuid string, txn bigint, invariant string, message string"
)
_WRITTEN: Final = "MODIFY_FEATURES"
_CHANGED: Final = "MODIFY_COLLECTION"


class Verify(JobSpec, frozen=True, kw_only=True, tag="verify"):
    """Check a collection, on main and on all branches."""

    collection: str
    output: OutputFile | None = None
    """Directory for all violations as Parquet files; the report only has the first ones."""
    overwrite: bool = False
    job_id: str = ""
    """Id of the job; an output directory that the same job has written is its result."""


class InvariantViolation(msgspec.Struct, frozen=True, rename="camel"):
    """Violation of an invariant.

    `branch` is None on main, and `feature` if the log does not identify one.
    """

    invariant: str
    branch: str | None
    feature: str | None
    uuid: str | None
    txn: str | None
    message: str


class Verified(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of the job `verify`."""

    collection: str
    seq_number: int
    complete_since: int
    """Version from which history is complete; earlier history is not expected."""
    branches: int
    """Number of branches; a rebased branch counts once per base."""
    states: int
    transactions: int
    violations: dict[str, int]
    """Number of violations by invariant; empty if there are none."""
    found: list[InvariantViolation]
    """The first violations."""
    output: str | None


class _CheckPlan(NamedTuple):
    """Plan of a check: splits, and the line of each."""

    storage: StorageIdentity
    version: Version
    complete_since: Version
    lines: list[CheckedLine]
    splits: list[Split]
    owners: list[CheckedLine]
    log_first: Version
    """First version that the log still has; 0 if it is complete."""
    has_history: bool


def verify(spark: SparkSession, spec: Verify, progress: JobProgress) -> Verified:
    """Run the job; see `Verify`."""
    target = None
    if spec.output is not None:
        if (made := earlier_report(spec.output, spec.job_id, Verified)) is not None:
            return made
        target = check_output(spec.output, overwrite=spec.overwrite)
    for _ in range(limits.VERIFY_RUNS_MAX):
        # The log may expire while it is read, as history may.
        with suppress(Expired):
            report = _verified(spark, spec, target, progress)
            if report is not None:
                return report
        progress.say(
            "History expired during the check and could be taken for a gap; checking again"
        )
    raise Retryable(
        f"Maintenance expired history of {spec.collection!r} during each of "
        f"{limits.VERIFY_RUNS_MAX} checks; verify again when no maintenance runs",
        collection_id=spec.collection,
    )


def _verified(
    spark: SparkSession, spec: Verify, target: Path | None, progress: JobProgress
) -> Verified | None:
    """Check the collection once; None if history expired in the meantime."""
    progress.phase("reading branches")
    storage = existing_storage(spec.place)
    read = storage.call(lambda it: _plan(it, spec.collection))
    states, log = _states(spark, spec, read).persist(), _log(spark, spec, read).persist()
    try:
        (seen,) = watched(
            spark, progress, "reading", states.agg(f.count("*"), f.min("txn")).collect
        )
        counted = watched(spark, progress, "reading the log", lambda: _counted(log, seen[1]))
        found = invariants.violations(states, counted, read.log_first.txn)
        found = found.union(_storage_violations(spark, spec, read, progress))
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
            found=_first_violations(found) if counts else [],
            output=None if target is None else str(target),
        )
        if read.has_history:
            since = storage.call(lambda it: oldest_version(it, spec.collection))
            if since != read.complete_since:
                return None
        if target is not None:
            with published(target, overwrite=spec.overwrite) as work:
                found.write.mode("append").parquet(str(work))
                write_report(work, spec.job_id, report)
    finally:
        states.unpersist()
        log.unpersist()
    return report


def _storage_violations(
    spark: SparkSession, spec: Verify, read: _CheckPlan, progress: JobProgress
) -> DataFrame:
    """Return inconsistencies of redundant data, which only the storage itself can check."""
    progress.phase("checking indexes")
    most = limits.MISMATCHES_MAX
    found = existing_storage(spec.place).call(lambda it: it.mismatches(spec.collection, most))
    branches = {line.overlay: line.branch for line in read.lines}
    rows = [
        (
            *(branches[each.overlay], each.id, None, each.txn),
            *(Invariant.LOG.value if each.is_of_log else Invariant.INDEX.value, each.message),
        )
        for each in found
        if each.overlay in branches  # a deleted branch cannot be read
    ]
    return spark.createDataFrame(rows, _FOUND)


def _first_violations(found: DataFrame) -> list[InvariantViolation]:
    """Return the first violations in a stable order."""
    rows = found.orderBy("branch", "feature", "txn", "invariant", "uuid", "message")
    return [
        InvariantViolation(
            row.invariant,
            row.branch,
            row.feature,
            row.uuid,
            None if row.txn is None else str(row.txn),
            row.message,
        )
        for row in rows.limit(limits.VIOLATIONS_REPORTED_MAX).collect()
    ]


# ---- Planning ------------------------------------------------------------------------------------


async def _plan(storage: Storage, collection: str) -> _CheckPlan:
    at = await fixed_position(storage, HEAD)
    has_history = (await storage.collection(collection)).history_enabled
    # Without history the next write drops the version that is read. The remaining states must still
    # be valid, but missing states are not violations.
    floor = await oldest_version(storage, collection) if has_history else at.version
    main = CheckedLine(None, MAIN, 0, floor.txn)
    splits = await storage.plan(collection, Query(states=States.ALL), at.at, hidden=True)
    read = _CheckPlan(
        *(storage.identity, at.version, floor),
        *([main], splits, [main] * len(splits)),
        await _log_first(storage),
        has_history,
    )
    for known in await all_records(storage):
        if isinstance(known.record, Branch) and known.record.scope.covers(collection):
            for epoch in known.record.epochs:
                await _add_branch(read, storage, collection, known.record, epoch)
    return read


async def _add_branch(
    read: _CheckPlan, storage: Storage, collection: str, branch: Branch, epoch: BranchEpoch
) -> None:
    """Add the features that a branch has changed on one of its bases, with earlier states."""
    base = epoch.below[0].txn or 0
    if base >= read.version.txn:
        return
    on_branch = line_of_branch(storage, branch, epoch).storage
    at = AtSeq(read.version.seq_number)
    try:
        ids = await _changed_ids(on_branch, collection, base, at)
    except CollectionNotFound:
        return  # the collection did not exist when the branch was created
    whole = Query(states=States.ALL, ids=ids)
    splits = await on_branch.plan(collection, whole, at, hidden=True)
    line = CheckedLine(branch.name, epoch.overlay, base, base)
    read.lines.append(line)
    read.splits.extend(splits)
    read.owners.extend([line] * len(splits))


async def _changed_ids(
    on_branch: Storage, collection: str, base: int, at: AtSeq
) -> tuple[str, ...] | None:
    """Return the ids of features with states of the branch; None if there are too many."""
    query = Query(states=States.ALL, txn_from=base + 1)
    ids: set[str] = set()
    for split in await on_branch.plan(collection, query, at, hidden=True):
        async for batch in on_branch.read(split, ["id"]):
            ids.update(batch.column(0).to_pylist())
            if len(ids) > limits.VERIFY_BRANCH_IDS_MAX:
                return None
    return tuple(sorted(ids))


def _states(spark: SparkSession, spec: Verify, read: _CheckPlan) -> DataFrame:
    splits, owners = read.splits, read.owners

    def looked_at(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return invariants.checked_batch(owners[number], splits[number], batch)

    seen = table_by_batch(spark, spec.place, splits, invariants.READ, invariants.CHECKED, looked_at)
    alone = invariants.check_states(seen, read.storage, spec.collection)
    # Spark does not coalesce the partitions of persisted data, so their number must be suitable.
    together = alone.repartition(max(len(splits), 1), "overlay", "id")
    return invariants.check_chains(together)


# ---- The log -------------------------------------------------------------------------------------


async def _log_first(storage: Storage) -> Version:
    try:
        await storage.transactions(0, 1)
    except Expired as error:
        return await storage.resolve(AtSeq(error.oldest or 1))
    return await storage.resolve(AtSeq(0))


def _log(spark: SparkSession, spec: Verify, read: _CheckPlan) -> DataFrame:
    """Read the log of the collection where history is complete; each task reads a part by pages."""
    first, last = max(read.log_first.seq_number, 1), read.version.seq_number
    lines = {line.overlay: line for line in read.lines}
    place, collection = spec.place, spec.collection

    def pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for begin in batch.column(0).to_pylist():
                end = min(begin + limits.VERIFY_LOG_PART, last + 1)
                part = partial(_log_part, lines, collection, begin, end)
                yield from existing_storage(place).iterate(part)

    parts = max(-(-(last + 1 - first) // limits.VERIFY_LOG_PART), 1)
    begins = spark.range(first, last + 1, limits.VERIFY_LOG_PART, parts)
    return begins.mapInArrow(pages, from_arrow_schema(_LOG))


async def _log_part(
    lines: Mapping[int, CheckedLine], collection: str, begin: int, end: int, storage: Storage
) -> AsyncIterator[pa.RecordBatch]:
    """Read the log entries of versions from `begin` to before `end`."""
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
    lines: Mapping[int, CheckedLine], transaction: Transaction, signal: Signal
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
    """Return the log entries with counts, without those of an earlier collection of the same name.

    The collection was created by the last change of the collection up to its first state.
    """
    changes = log.where("is_change")
    if first is not None:
        changes = changes.where(f"txn <= {first}")
    (created,) = changes.agg(f.max("txn")).collect()
    return log.where(f"NOT is_change AND txn >= {created[0] or 0}").drop("is_change")


def _exit_code(report: Verified) -> int:
    return status_codes_of(StorageCorrupt).exit_code if report.violations else 0


JOB = Job(
    Verify,
    verify,
    "Check the invariants of a collection's stored data.",
    exit_code=_exit_code,
)
