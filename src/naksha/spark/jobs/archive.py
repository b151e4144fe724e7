"""Job `archive`: move history older than a number of days to GeoParquet files.

The files are read back and compared before the history is dropped from the storage.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument, Retryable, StorageCorrupt
from naksha.model.identity.names import check_collection_id
from naksha.model.identity.txn import MONTH_FACTOR, date_of, txn_of
from naksha.model.query import Query, States
from naksha.model.version import AtSeq, AtTime, Version
from naksha.spark.archive.archive import (
    KEPT,
    UNFINISHED,
    ArchiveJob,
    ArchiveSegment,
    Manifest,
    finish,
    locked_archive,
    new_name,
    open_manifest,
    read_files,
    write_manifest,
)
from naksha.spark.archive.versions import FILE as VERSIONS
from naksha.spark.archive.versions import keep_versions
from naksha.spark.jobs.collection_tables import oldest_version, table
from naksha.spark.jobs.frame import (
    Job,
    JobAccess,
    JobProgress,
    JobSpec,
    OutputFile,
    UncancellableProgress,
)
from naksha.spark.jobs.geoparquet import (
    BBOX,
    BOX,
    GeoParquetFile,
    boxes_of,
    numbers_of,
    written_by_number,
)
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spi.arrow import COLUMNS
from naksha.spi.storage import Split, Storage

_EDGES: Final = ("west", "south", "east", "north")
_WRITTEN: Final = "path string, states bigint"
_SCHEMA: Final = pa.schema([*(COLUMNS.field(name) for name in KEPT), pa.field(BBOX, BOX)])


class Archive(JobSpec, tag="archive", frozen=True, kw_only=True):
    """Archive the history of a collection that ended more than a number of days ago.

    It is dropped from the storage once the archive was read back. History that is pinned by tags
    and branches is archived, too, but stays in the storage.
    """

    collection: str
    archive: OutputFile
    """Directory of the archive, for this collection only; each run adds a segment."""
    older_than_days: int
    keep: bool = False
    """Do not drop the archived history from the storage."""
    job_id: str = ""
    """Id of the job; a repeated run with the same id resumes it and reports all of its work."""


class Archived(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of the job `archive`."""

    collection: str
    archive: str
    until: str
    """Transaction before which ended states are archived."""
    oldest: int | None
    """The oldest version that the archive has; None if the archive is empty."""
    states: int
    bytes: int
    files: int
    segment: str | None
    """None if there was nothing to archive."""
    dropped: int
    """Number of archived states that were dropped from the storage."""
    left: int
    """Number of archived states that are still in the storage: because of pins, of concurrent
    jobs, or of `keep`."""


class _ArchivePlan(NamedTuple):
    """Plan to archive the states that ended before `until`.

    The archive already has those that ended before `first`. States that ended before `cutoff` are
    to be dropped.
    """

    manifest: Manifest
    until: int
    cutoff: int
    last: Version
    oldest: Version
    """The storage has all states that ended after this version."""
    splits: list[Split]

    @property
    def first(self) -> int:
        return self.manifest.until


def archive(spark: SparkSession, spec: Archive, progress: JobProgress) -> Archived:
    """Run the job; see `Archive`."""
    check_collection_id(spec.collection, field="collection")
    if spec.older_than_days < 1:
        raise InvalidArgument(
            f"The option older_than_days must be at least 1, not {spec.older_than_days}",
            field="older_than_days",
        )
    if spec.older_than_days > limits.ARCHIVE_DAYS_MAX:
        raise InvalidArgument(
            f"The option older_than_days must be at most {limits.ARCHIVE_DAYS_MAX}, not"
            f" {spec.older_than_days}",
            field="older_than_days",
        )
    folder = Path(spec.archive).absolute()
    with locked_archive(folder):
        return _archive(spark, spec, folder, progress)


def _archive(spark: SparkSession, spec: Archive, folder: Path, progress: JobProgress) -> Archived:
    storage = existing_storage(spec.place)
    manifest = storage.call(lambda s: _open_manifest(s, spec, folder))
    job = manifest.job(spec.job_id)
    _check_same_job(spec, job)
    if job is not None and job.report is not None:
        return msgspec.convert(job.report, Archived)
    day = storage.call(lambda s: _day(s, spec.older_than_days)) if job is None else job.day
    plan = storage.call(lambda s: _plan(s, spec, manifest, day))
    if plan is None:
        return _report(spec, folder, manifest, ArchiveJob(spec.job_id, day, 0, None), 0)
    ended = _ended(spark, spec, plan)
    ended_states = watched(spark, progress, "count", lambda: _summary(ended, plan))
    if ended_states.new.states:
        segment = _write(spark, spec, folder, plan, ended, ended_states.new, progress)
        manifest = msgspec.structs.replace(manifest, segments=[*manifest.segments, segment])
        job = ArchiveJob(spec.job_id, day, ended_states.due, segment.name, _parameters(spec))
    job = job or ArchiveJob(spec.job_id, day, ended_states.due, None, _parameters(spec))
    manifest = manifest.with_job(job)
    write_manifest(folder, manifest)
    left = ended_states.due
    if not spec.keep:
        _check_kept(spark, folder, plan, ended_states, ended.schema, progress)
        left = _drop(spark, spec, plan, ended_states, day, progress)
    report = _report(spec, folder, manifest, job, left)
    if spec.job_id:
        finished = msgspec.structs.replace(job, report=msgspec.to_builtins(report))
        write_manifest(folder, manifest.with_job(finished))
    return report


def _parameters(spec: Archive) -> tuple[int, bool]:
    return spec.older_than_days, spec.keep


def _check_same_job(spec: Archive, job: ArchiveJob | None) -> None:
    """Reject the id of a job with other parameters: its report would be returned for this one."""
    if job is not None and job.asked not in (None, _parameters(spec)):
        raise Conflict(
            f"The job {spec.job_id!r:.100} was run before with another older_than_days or keep; use"
            " another job id",
            field="job_id",
        )


def _report(
    spec: Archive, folder: Path, manifest: Manifest, job: ArchiveJob, left: int
) -> Archived:
    segment = next((each for each in manifest.segments if each.name == job.segment), None)
    sizes = [path.stat().st_size for path in segment.paths(folder)] if segment else []
    return Archived(
        collection=spec.collection,
        archive=str(folder),
        until=str(txn_of(job.day, 0)),
        oldest=None if manifest.since is None else manifest.since.oldest,
        states=0 if segment is None else segment.states,
        bytes=sum(sizes),
        files=len(sizes),
        segment=job.segment,
        dropped=job.due - left,
        left=left,
    )


async def _open_manifest(storage: Storage, spec: Archive, folder: Path) -> Manifest:
    return open_manifest(folder, storage.identity, await storage.collection(spec.collection))


async def _day(storage: Storage, days: int) -> date:
    """Determine the day before which ended states are archived.

    It is not later than the last transaction: a dated transaction could still be written after
    that, and the states that it ends would be dropped without being archived.
    """
    wanted = datetime.now(UTC).date() - timedelta(days=days)
    last = (await storage.publication()).last_txn
    return min(wanted, date_of(last)) if last else wanted


async def _plan(
    storage: Storage, spec: Archive, manifest: Manifest, day: date
) -> _ArchivePlan | None:
    """Plan the work of the job; None if there is nothing to archive."""
    cutoff = txn_of(day, 0)
    last = await _last_before(storage, day)
    if last is None:
        return None
    oldest = await oldest_version(storage, spec.collection)
    splits = await _splits(storage, spec, last)
    return _ArchivePlan(manifest, max(cutoff, manifest.until), cutoff, last, oldest, splits)


async def _splits(storage: Storage, spec: Archive, last: Version) -> list[Split]:
    return await storage.plan(spec.collection, Query(states=States.ALL), AtSeq(last.seq_number))


async def _last_before(storage: Storage, day: date) -> Version | None:
    """Find the last version whose transaction began before a day; it may be published later."""
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


# ---- Ended states --------------------------------------------------------------------------------


class _Checksum(NamedTuple):
    """Checksum of a set of states, independent of their order."""

    states: int
    sum: str


class _EndedStates(NamedTuple):
    """Summary of the ended states in the storage."""

    new: _Checksum
    """Checksum of the states that are not in the archive yet."""
    due: int
    """Number of states to drop."""
    since: int | None
    """First end of the states that are also in the archive; None if there are none."""


def _ended(spark: SparkSession, spec: Archive, plan: _ArchivePlan) -> DataFrame:
    states = table(spark, spec.place, plan.splits, KEPT)
    return states.where((sf.col("txn_next") > 0) & (sf.col("txn_next") < plan.until))


def _summary(ended: DataFrame, plan: _ArchivePlan) -> _EndedStates:
    is_new = sf.col("txn_next") >= plan.first
    (row,) = ended.agg(
        sf.count_if(is_new).alias("states"),
        sf.sum(sf.when(is_new, _hash())).alias("sum"),
        sf.count_if(sf.col("txn_next") < plan.cutoff).alias("due"),
        sf.min(sf.when(~is_new, sf.col("txn_next"))).alias("since"),
    ).collect()
    return _EndedStates(_Checksum(row.states, str(row.sum or 0)), row.due, row.since)


def _checksum(states: DataFrame) -> _Checksum:
    (row,) = states.agg(sf.count("*").alias("states"), sf.sum(_hash()).alias("sum")).collect()
    return _Checksum(row.states, str(row.sum or 0))


def _hash() -> Column:
    return sf.xxhash64(*(sf.col(name) for name in KEPT)).cast("decimal(38,0)")


# ---- Dropping ------------------------------------------------------------------------------------


def _check_kept(
    spark: SparkSession,
    folder: Path,
    plan: _ArchivePlan,
    ended_states: _EndedStates,
    schema: StructType,
    progress: JobProgress,
) -> None:
    """Verify files of earlier jobs before the states in them are dropped.

    Raises:
        StorageCorrupt: A file is missing, or its content has changed.
    """
    for segment in plan.manifest.segments:
        if ended_states.since is None or segment.until <= ended_states.since:
            continue
        paths = segment.paths(folder)
        for path in paths:
            if not path.is_file():
                raise StorageCorrupt(
                    f"The file {path} of the archive is missing; nothing was dropped, restore it"
                )
        states = read_files(spark, paths, schema)
        found = watched(spark, progress, "read again", partial(_checksum, states))
        _check_same(found, _Checksum(segment.states, segment.checksum))


def _check_same(found: _Checksum, expected: _Checksum) -> None:
    if found != expected:
        raise StorageCorrupt(
            f"The archive is damaged: its files have {found.states} states with the checksum"
            f" {found.sum}, not {expected.states} with {expected.sum}; nothing was dropped, restore"
            " the files"
        )


def _drop(
    spark: SparkSession,
    spec: Archive,
    plan: _ArchivePlan,
    ended_states: _EndedStates,
    day: date,
    progress: JobProgress,
) -> int:
    """Drop archived states; return how many of them are still in the storage.

    From here the job cannot be cancelled any more, so that its report says what was dropped.
    """
    storage, progress = existing_storage(spec.place), UncancellableProgress(progress)
    progress.phase("drop")
    storage.call(lambda s: s.expire(spec.collection, day))
    if ended_states.due == 0:
        return 0
    splits = storage.call(lambda s: _splits(s, spec, plan.last))
    ends = table(spark, spec.place, splits, ["txn_next"])
    left = ends.where(f"txn_next > 0 AND txn_next < {plan.cutoff}")
    return watched(spark, progress, "count what is left", left.count)


# ---- Writing and reading back --------------------------------------------------------------------


def _write(
    spark: SparkSession,
    spec: Archive,
    folder: Path,
    plan: _ArchivePlan,
    ended: DataFrame,
    expected: _Checksum,
    progress: JobProgress,
) -> ArchiveSegment:
    """Write the new states as a segment, which the manifest does not name yet."""
    states = ended.where(sf.col("txn_next") >= plan.first)
    name = new_name(plan.first, plan.until)
    work = folder / f"{name}{UNFINISHED}"
    work.mkdir()
    try:
        months = states.withColumn("month", sf.expr(f"txn_next DIV {MONTH_FACTOR}"))
        ordered = months.repartition("month").sortWithinPartitions("month", "qrid", "id", "txn")
        written = ordered.mapInArrow(_MonthWriter(str(work)), _WRITTEN)
        rows = watched(spark, progress, "write", written.collect)
        # States that the storage has dropped in the meantime may be missing.
        oldest = existing_storage(spec.place).call(lambda s: oldest_version(s, spec.collection))
        files = sorted(row.path for row in rows)
        back = read_files(spark, [work / file for file in files], states.schema)
        found = watched(spark, progress, "read back", lambda: _checksum(back))
        if found != expected and oldest != plan.oldest:
            raise Retryable(
                "History expired while it was archived; nothing was dropped, start the job again"
            )
        _check_same(found, expected)
        for left in work.iterdir():
            if left.name not in files:
                left.unlink()  # from a failed attempt
        after, last = plan.manifest.known, plan.last.seq_number
        existing_storage(spec.place).call(lambda s: keep_versions(s, work / VERSIONS, after, last))
        segment = ArchiveSegment(
            *(name, plan.first, plan.until, oldest.txn, oldest.seq_number),
            *(last, found.states, found.sum, files, VERSIONS),
        )
        finish(folder, work, segment)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    if 0 < plan.first <= oldest.txn:
        progress.say(
            f"Some history was dropped before it was archived: versions before"
            f" {oldest.seq_number} cannot be read from the archive any more"
        )
    return segment


class _MonthWriter:
    """Task that writes one file per month and returns a row for each file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = uuid.uuid4().hex

        def file_of(month: int) -> GeoParquetFile:
            path = Path(self._folder) / f"{month}-{attempt}.parquet"
            return GeoParquetFile(path, _SCHEMA)

        numbered = ((_rows(batch), numbers_of(batch, "month")) for batch in batches)
        for _, file in written_by_number(numbered, file_of):
            yield _file_row(file)


def _rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        boxes_of(batch, _EDGES) if field.name == BBOX else batch.column(field.name).cast(field.type)
        for field in _SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _file_row(file: GeoParquetFile) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([file.path.name]), pa.array([file.rows], pa.int64())], names=["path", "states"]
    )


JOB = Job(Archive, archive, "Move old history to GeoParquet files.", JobAccess.MANAGE)
