"""The job `archive`: history that is older than some days goes to GeoParquet files, which are read
back and compared, and is then dropped from the storage."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from naksha.model.errors import InvalidArgument, StorageCorrupt
from naksha.model.names import check_collection_id
from naksha.model.query import Query, States
from naksha.model.txn import MONTH_FACTOR, date_of, txn_of
from naksha.model.version import AtSeq, AtTime, Version
from naksha.spark.archives import KEPT, Manifest, Segment, growing, read_manifest, write_manifest
from naksha.spark.jobs.frame import Access, Job, OutputFile, Progress, Spec
from naksha.spark.jobs.geoparquet import (
    BBOX,
    BOX,
    GeoParquetFile,
    boxes_of,
    numbers_of,
    written_by_number,
)
from naksha.spark.jobs.reading import table
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import opened
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage

_EDGES: Final = ("west", "south", "east", "north")
_WRITTEN: Final = "path string, states bigint"
_SCHEMA: Final = pa.schema([*(COLUMNS.field(name) for name in KEPT), pa.field(BBOX, BOX)])


class Archive(Spec, tag="archive", frozen=True, kw_only=True):
    """Bring the history of a collection that ended more than so many days ago to an archive, and
    drop it from the storage once it was read back. What is pinned, by tags and branches, goes to
    the archive, too, but stays in the storage."""

    collection: str
    archive: OutputFile
    """A directory, for this collection only; it grows by a segment each time."""
    older_than_days: int
    keep: bool = False
    """Drop nothing from the storage."""


class Archived(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was archived."""

    collection: str
    archive: str
    until: str
    """The first transaction whose ends are not archived."""
    states: int
    bytes: int
    files: int
    segment: str | None
    """None when there was nothing to archive."""
    is_dropped: bool


class _Plan(NamedTuple):
    """What is to be archived: states that ended from `first` on, before `until`."""

    storage: str
    manifest: Manifest
    first: int
    until: int
    last: Version
    splits: list[Split]


def archive(spark: SparkSession, spec: Archive, progress: Progress) -> Archived:
    """See `Archive`."""
    check_collection_id(spec.collection, field="collection")
    if spec.older_than_days < 1:
        raise InvalidArgument("History of this day is not archived", field="older_than_days")
    folder = Path(spec.archive).absolute()
    with growing(folder):
        return _archive(spark, spec, folder, progress)


def _archive(spark: SparkSession, spec: Archive, folder: Path, progress: Progress) -> Archived:
    storage = opened(spec.place)
    day = storage.call(lambda s: _day(s, spec.older_than_days))
    plan = storage.call(lambda s: _plan(s, spec, folder, day))
    segment = None
    if plan is not None:
        segment = _write(spark, spec, folder, plan, progress)
        if segment is not None:
            kept = [*plan.manifest.segments, segment]
            write_manifest(folder, msgspec.structs.replace(plan.manifest, segments=kept))
    if not spec.keep and plan is not None:
        progress.phase("drop")
        storage.call(lambda s: s.expire(spec.collection, day))
    files = [] if segment is None else segment.files
    sizes = [(folder / segment.name / each).stat().st_size for each in files] if segment else []
    return Archived(
        collection=spec.collection,
        archive=str(folder),
        until=str(txn_of(day, 0)),
        states=0 if segment is None else segment.states,
        bytes=sum(sizes),
        files=len(files),
        segment=None if segment is None else segment.name,
        is_dropped=not spec.keep and plan is not None,
    )


async def _day(storage: Storage, days: int) -> date:
    """What ended before this day is archived. Not later than the last transaction: one that is
    dated could still come after that, and what it ends would be dropped unseen."""
    wanted = datetime.now(UTC).date() - timedelta(days=days)
    last = (await storage.publication()).last_txn
    return min(wanted, date_of(last)) if last else wanted


async def _plan(storage: Storage, spec: Archive, folder: Path, day: date) -> _Plan | None:
    """What is there to archive, None for nothing."""
    await storage.collection(spec.collection)
    manifest = read_manifest(folder, storage.id, spec.collection)
    until = txn_of(day, 0)
    last = await _last_before(storage, day)
    if last is None:
        return None
    if manifest.until > until:
        until = manifest.until
    query = Query(states=States.ALL)
    splits = await storage.plan(spec.collection, query, AtSeq(last.seq_number))
    return _Plan(storage.id, manifest, manifest.until, until, last, splits)


async def _last_before(storage: Storage, day: date) -> Version | None:
    """The last version whose transaction began before a day; its time may be a little later."""
    until = txn_of(day, 0)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    found = await storage.resolve(AtTime(int(midnight.timestamp() * 1000)))
    newest = (await storage.publication()).last_seq_number
    while found.seq_number < newest:
        after = await storage.resolve(AtSeq(found.seq_number + 1))
        if after.txn >= until:
            break
        found = after
    while found.seq_number > 0 and found.txn >= until:
        found = await storage.resolve(AtSeq(found.seq_number - 1))
    return None if found.seq_number == 0 else found


# ---- Writing and reading back --------------------------------------------------------------------


def _write(
    spark: SparkSession, spec: Archive, folder: Path, plan: _Plan, progress: Progress
) -> Segment | None:
    """The states as a new segment, which nothing names yet; None when there are none."""
    states = _ended(table(spark, spec.place, plan.splits, KEPT), plan)
    expected = watched(spark, progress, "count", lambda: _checksum(states))
    if expected.states == 0:
        return None
    name = f"{plan.first}-{plan.until}-{uuid.uuid4().hex[:8]}"
    work = folder / name
    work.mkdir()
    try:
        months = states.withColumn("month", sf.expr(f"txn_next DIV {MONTH_FACTOR}"))
        ordered = months.repartition("month").sortWithinPartitions("month", "qrid", "id", "txn")
        written = ordered.mapInArrow(_Writer(str(work)), _WRITTEN)
        rows = watched(spark, progress, "write", written.collect)
        files = sorted(row.path for row in rows)
        back = spark.read.schema(states.schema).parquet(*(str(work / file) for file in files))
        found = watched(spark, progress, "read back", lambda: _checksum(back))
        if found != expected:
            raise StorageCorrupt(
                f"The archive does not have what was written: {found}, not {expected}; nothing was"
                " dropped"
            )
        for left in work.iterdir():
            if left.name not in files:
                left.unlink()  # Of attempts that were repeated.
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Segment(
        name, plan.first, plan.until, plan.last.seq_number, found.states, found.sum, files
    )


def _ended(states: DataFrame, plan: _Plan) -> DataFrame:
    ended = (sf.col("txn_next") >= plan.first) & (sf.col("txn_next") < plan.until)
    return states.where((sf.col("txn_next") > 0) & ended)


class _Checksum(NamedTuple):
    """Of a set of states, in whatever order they come."""

    states: int
    sum: str


def _checksum(states: DataFrame) -> _Checksum:
    hashes = sf.xxhash64(*(sf.col(name) for name in KEPT)).cast("decimal(38,0)")
    (row,) = states.agg(sf.count("*").alias("states"), sf.sum(hashes).alias("sum")).collect()
    return _Checksum(row.states, str(row.sum or 0))


class _Writer:
    """A task: writes the months that come to it, a file each, and tells of them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = uuid.uuid4().hex

        def file_of(month: int) -> GeoParquetFile:
            path = Path(self._folder) / f"{month}-{attempt}.parquet"
            return GeoParquetFile(path, _SCHEMA)

        numbered = ((_rows(batch), numbers_of(batch, "month")) for batch in batches)
        for _, file in written_by_number(numbered, file_of):
            yield _told(file)


def _rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        boxes_of(batch, _EDGES) if field.name == BBOX else batch.column(field.name).cast(field.type)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _told(file: GeoParquetFile) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([file.path.name]), pa.array([file.rows], pa.int64())], names=["path", "states"]
    )


JOB = Job(Archive, archive, "Move old history to GeoParquet files.", Access.MANAGE)
