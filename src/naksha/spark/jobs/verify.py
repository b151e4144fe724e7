"""The job `verify`: recomputes what must be true of a collection, and tells what is not.

All states are read, those that nobody ever saw too, as of the last published version; so it can
run while others write. What it finds is reported, never raised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from naksha.model import limits
from naksha.model.errors import Expired
from naksha.model.query import Query, States
from naksha.model.transaction import LogFilter, Transaction
from naksha.model.version import AtSeq, Version
from naksha.spark.jobs import invariants
from naksha.spark.jobs.frame import Job, OutputFile, Progress, Spec
from naksha.spark.jobs.publishing import check_output, published
from naksha.spark.jobs.reading import changed, fixed
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import opened
from naksha.spark.options import HEAD
from naksha.spi.storage import Split, Storage

_LOG: Final = pa.schema(
    [
        pa.field("txn", pa.int64()),
        pa.field("created", pa.int64()),
        pa.field("updated", pa.int64()),
        pa.field("deleted", pa.int64()),
    ]
)
_LOG_PAGE: Final = 1_000


class Verify(Spec, frozen=True, kw_only=True, tag="verify"):
    """Check a collection, on main."""

    collection: str
    output: OutputFile | None = None
    """A directory of Parquet files for all that is found; the report has some of it."""
    overwrite: bool = False


class Violation(msgspec.Struct, frozen=True, rename="camel"):
    """Something that must not be. `feature` is None where nothing is left of any."""

    invariant: str
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
    states: int
    transactions: int
    violations: dict[str, int]
    """How many there are, by invariant; empty when all is well."""
    found: list[Violation]
    """The first ones."""
    output: str | None


class _Read(NamedTuple):
    """What is to be read of a storage."""

    storage: str
    version: Version
    floor: Version
    splits: list[Split]
    log: pa.Table
    log_first: int


def verify(spark: SparkSession, spec: Verify, progress: Progress) -> Verified:
    """See `Verify`."""
    target = None
    if spec.output is not None:
        target = check_output(spec.output, overwrite=spec.overwrite)
    progress.phase("reading the log")
    read = opened(spec.place).call(lambda storage: _plan(storage, spec.collection))
    counting = Observation()
    states = _states(spark, spec, read).observe(counting, f.count("*").alias("n")).persist()
    found = _violations(spark, states, read).persist()
    try:
        counts = watched(
            spark, progress, "checking", lambda: found.groupBy("invariant").count().collect()
        )
        first = found.orderBy("invariant", "feature", "txn", "uuid", "message")
        told = first.limit(limits.VIOLATIONS_TOLD_MAX).collect() if counts else []
        if target is not None:
            _save(found, target, overwrite=spec.overwrite)
        number = counting.get["n"]
    finally:
        found.unpersist()
        states.unpersist()
    return Verified(
        collection=spec.collection,
        seq_number=read.version.seq_number,
        complete_since=read.floor.seq_number,
        states=number,
        transactions=len(read.log),
        violations={row["invariant"]: row["count"] for row in sorted(counts)},
        found=[
            Violation(
                row.invariant,
                row.feature,
                row.uuid,
                None if row.txn is None else str(row.txn),
                row.message,
            )
            for row in told
        ],
        output=None if target is None else str(target),
    )


async def _plan(storage: Storage, collection: str) -> _Read:
    at = await fixed(storage, HEAD)
    every = Query(states=States.ALL)
    splits = await storage.plan(collection, every, at.at, hidden=True)
    floor = await _floor(storage, collection, at.version)
    log, first = await _log(storage, collection, at.version)
    return _Read(storage.id, at.version, floor, splits, log, first)


async def _floor(storage: Storage, collection: str, last: Version) -> Version:
    """The version from which on the history of the collection is complete."""
    try:
        return await storage.resolve(AtSeq(0), collection)
    except Expired as error:
        return last if error.oldest is None else await storage.resolve(AtSeq(error.oldest))


async def _log(storage: Storage, collection: str, last: Version) -> tuple[pa.Table, int]:
    """What the log counts of the collection, and the first transaction that it still has."""
    where = LogFilter(collections=(collection,))
    after, first = 0, 0
    try:
        page = await storage.transactions(0, _LOG_PAGE, where)
    except Expired as error:
        oldest = await storage.resolve(AtSeq(error.oldest or 1))
        after, first = oldest.seq_number - 1, oldest.txn
        page = await storage.transactions(after, _LOG_PAGE, where)
    batches = []
    while page:
        batches.append(_counts(page, collection, last))
        after = page[-1].seq_number or 0
        page = await storage.transactions(after, _LOG_PAGE, where)
    return pa.Table.from_batches(batches, _LOG), first


def _counts(page: list[Transaction], collection: str, last: Version) -> pa.RecordBatch:
    rows = [
        (each.txn, signal.created, signal.updated, signal.deleted)
        for each in page
        for signal in each.signals
        if each.txn <= last.txn and signal.action == "MODIFY_FEATURES" and signal.id == collection
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_LOG)
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_LOG)


def _states(spark: SparkSession, spec: Verify, read: _Read) -> DataFrame:
    splits = read.splits

    def looked_at(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return invariants.looked_at(splits[number], batch)

    seen = changed(spark, spec.place, splits, invariants.READ, invariants.SEEN, looked_at)
    alone = invariants.alone(seen, read.storage, spec.collection)
    return invariants.chained(alone, read.floor.txn)


def _violations(spark: SparkSession, states: DataFrame, read: _Read) -> DataFrame:
    problem = f.explode("problems").alias("problem")
    own = states.select(f.col("id").alias("feature"), "uuid", "txn", problem)
    own = own.select("feature", "uuid", "txn", "problem.invariant", "problem.message")
    log = spark.createDataFrame(read.log)
    uncounted = invariants.uncounted(states, log, read.log_first, read.floor.txn)
    return own.union(invariants.shared_ids(states)).union(uncounted)


def _save(found: DataFrame, target: Path, *, overwrite: bool) -> None:
    with published(target, overwrite=overwrite) as work:
        found.write.mode("append").parquet(str(work))


JOB = Job(Verify, verify, "Check that what is stored of a collection is as it must be.")
