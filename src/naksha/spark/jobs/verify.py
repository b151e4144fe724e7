"""The job `verify`: recomputes what must be true of a collection, and tells what is not.

All states are read, those that nobody ever saw too, as of the last published version; so it can
run while others write. Branches are read as far as they changed something. What it finds is
reported, never raised; `naksha job verify` ends with another exit code then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from naksha.model import limits
from naksha.model.errors import CollectionNotFound, Expired, StorageCorrupt
from naksha.model.outcomes import outward
from naksha.model.query import Query, States
from naksha.model.transaction import MAIN, LogFilter, Signal
from naksha.model.version import AtSeq, Version
from naksha.spark.jobs import invariants
from naksha.spark.jobs.frame import Job, OutputFile, Progress, Spec
from naksha.spark.jobs.invariants import Line
from naksha.spark.jobs.publishing import check_output, published
from naksha.spark.jobs.reading import changed, fixed, oldest_version
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import opened
from naksha.spark.options import HEAD
from naksha.spi.storage import Split, Storage
from naksha.versioning.places import line_of_branch
from naksha.versioning.records import Branch, Epoch, everywhere

_LOG: Final = pa.schema(
    [
        pa.field("branch", pa.string()),
        pa.field("overlay", pa.int64()),
        pa.field("txn", pa.int64()),
        pa.field("created", pa.int64()),
        pa.field("updated", pa.int64()),
        pa.field("deleted", pa.int64()),
    ]
)
_LOG_PAGE: Final = 1_000
_WRITTEN: Final = "MODIFY_FEATURES"
_CHANGED: Final = "MODIFY_COLLECTION"


class Verify(Spec, frozen=True, kw_only=True, tag="verify"):
    """Check a collection, on main and on all branches."""

    collection: str
    output: OutputFile | None = None
    """A directory of Parquet files for all that is found; the report has some of it."""
    overwrite: bool = False


class Violation(msgspec.Struct, frozen=True, rename="camel"):
    """Something that must not be. `branch` is None on main, `feature` where none is left of it."""

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


class _Entry(NamedTuple):
    """What the log tells of a transaction on the collection."""

    overlay: int
    txn: int
    signal: Signal


class _Read(NamedTuple):
    """What is to be read of a storage: splits, and the line that each is of."""

    storage: str
    version: Version
    complete_since: int
    lines: list[Line]
    splits: list[Split]
    owners: list[Line]
    log: list[_Entry]
    log_first: int


def verify(spark: SparkSession, spec: Verify, progress: Progress) -> Verified:
    """See `Verify`."""
    target = None
    if spec.output is not None:
        target = check_output(spec.output, overwrite=spec.overwrite)
    progress.phase("reading the log")
    read = opened(spec.place).call(lambda storage: _plan(storage, spec.collection))
    states = _states(spark, spec, read).persist()
    try:
        (seen,) = watched(
            spark, progress, "reading", states.agg(f.count("*"), f.min("txn")).collect
        )
        log = _counts(read, seen[1])
        found = invariants.violations(states, spark.createDataFrame(log), read.log_first)
        by_invariant = found.groupBy("invariant").count()
        counts = watched(spark, progress, "checking", by_invariant.collect)
        told = _told(found) if counts else []
        if target is not None:
            _save(found, target, overwrite=spec.overwrite)
    finally:
        states.unpersist()
    return Verified(
        collection=spec.collection,
        seq_number=read.version.seq_number,
        complete_since=read.complete_since,
        branches=len(read.lines) - 1,
        states=seen[0],
        transactions=len(log),
        violations={row["invariant"]: row["count"] for row in sorted(counts)},
        found=told,
        output=None if target is None else str(target),
    )


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
    floor = await oldest_version(storage, collection)
    log, first = await _log(storage, collection, at.version)
    main = Line(None, MAIN, 0, floor.txn)
    splits = await storage.plan(collection, Query(states=States.ALL), at.at, hidden=True)
    read = _Read(
        *(storage.id, at.version, floor.seq_number),
        *([main], splits, [main] * len(splits)),
        *(log, first),
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


async def _log(storage: Storage, collection: str, last: Version) -> tuple[list[_Entry], int]:
    """The transactions that touched the collection, and the first one that the log still has."""
    where = LogFilter(collections=(collection,), overlays=None)
    after, first = 0, 0
    found: list[_Entry] = []
    while True:
        try:
            page = await storage.transactions(after, _LOG_PAGE, where)
        except Expired as error:
            oldest = await storage.resolve(AtSeq(error.oldest or 1))
            after, first = oldest.seq_number - 1, oldest.txn
            continue
        found += [
            _Entry(each.overlay, each.txn, signal)
            for each in page
            for signal in each.signals
            if each.txn <= last.txn and signal.id == collection
        ]
        if not page:
            return found, first
        after = page[-1].seq_number or 0


def _counts(read: _Read, first: int | None) -> pa.Table:
    """What the log counts of the collection, where history is complete. What was there under the
    same name before is left out: the collection is not older than the last change of it until
    its first state."""
    lines = {line.overlay: line for line in read.lines}
    changes = [entry.txn for entry in read.log if entry.signal.action == _CHANGED]
    created = max((txn for txn in changes if first is None or txn <= first), default=0)
    rows = [
        (line.branch, line.overlay, entry.txn, told.created, told.updated, told.deleted)
        for entry in read.log
        for line, told in [(lines.get(entry.overlay), entry.signal)]
        if told.action == _WRITTEN and entry.txn >= created
        if line is not None and entry.txn > line.floor
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_LOG)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _LOG, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_LOG)


def _save(found: DataFrame, target: Path, *, overwrite: bool) -> None:
    with published(target, overwrite=overwrite) as work:
        found.write.mode("append").parquet(str(work))


def _exit_code(report: Verified) -> int:
    return outward(StorageCorrupt).exit_code if report.violations else 0


JOB = Job(
    Verify,
    verify,
    "Check that what is stored of a collection is as it must be.",
    exit_code=_exit_code,
)
