"""Job `load`: load files of any supported format into a collection in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from naksha.model import limits
from naksha.model.errors import Cancelled, InvalidArgument, NakshaError
from naksha.model.identity.names import check_app_id, check_author, check_collection_id
from naksha.spark.jobs.frame import Job, JobAccess, JobProgress
from naksha.spark.jobs.loading import history
from naksha.spark.jobs.loading.check import check_rejects, keep_rejected
from naksha.spark.jobs.loading.files import FoundFiles, found_files
from naksha.spark.jobs.loading.records import (
    FileRecords,
    checker_of,
    collection_of,
    records_of,
    report_left_out,
)
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.jobs.loading.staging import OUTCOME_ROWS, StagingTask, parts_of
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.sessions import in_utc
from naksha.spark.runtime.storage_cache import SharedStorage, shared_storage
from naksha.spark.source.write import applied_job
from naksha.spi.staging import AppliedWrite, StagedWrite, WriteMode, check_key

_DELETING: Final = (WriteMode.REPLACE, WriteMode.MIRROR)


def load(spark: SparkSession, spec: Load, progress: JobProgress) -> Loaded:
    """Load files into a collection; see `Load`."""
    check_collection_id(spec.collection, field="collection")
    check_app_id(spec.app_id)
    check_author(spec.author)
    if spec.key is not None:
        check_key(spec.key)
    check_rejects(spec)
    if spec.info is not None and spec.info.id != spec.collection:
        raise InvalidArgument(
            f"The settings in info must be those of {spec.collection!r}, not of {spec.info.id!r}",
            field="info",
        )
    storage = shared_storage(spec.place)
    before = _loaded_before(storage, spec)
    if before is not None:
        return before  # its files may have been removed or replaced
    found = found_files(spec)
    report_left_out(found, progress)
    if spec.history:
        return _with_files(history.load_history(storage, spec, found.files, progress), found)
    records = records_of(in_utc(spark), spec, found.files)
    info = storage.call(lambda s: collection_of(s, spec.collection, spec.info))
    job = spec.job_id or uuid.uuid4().hex
    staging = StagingTask(spec.place, job, checker_of(spec, info, records), spec.rejects_max)
    try:
        done = _load(spark, storage, spec, staging, records, found.files, progress)
        return _with_files(done, found)
    except BaseException:
        storage.call(lambda s: s.drop_staged(staging.job))
        raise


def _loaded_before(storage: SharedStorage, spec: Load) -> Loaded | None:
    """Return the recorded report of the same job, if it was done before."""
    if not spec.job_id:
        return None
    if spec.history:
        return history.loaded_before(storage, spec)
    applied = applied_job(storage, spec.job_id, spec.collection)
    return None if applied is None else _loaded(spec, applied)


def _load(
    spark: SparkSession,
    storage: SharedStorage,
    spec: Load,
    staging: StagingTask,
    records: FileRecords,
    files: Sequence[str],
    progress: JobProgress,
) -> Loaded:
    outcomes = records.rows.mapInArrow(staging, OUTCOME_ROWS)
    rows = watched(spark, progress, "read and check", lambda: _limited(outcomes, spec))
    rejected = [row for row in rows if row.reason is not None]
    file = keep_rejected(spec, files, rejected, progress)
    if file is not None and spec.mode in _DELETING and not spec.delete_rejected:
        raise InvalidArgument(
            f"{len(rejected)} records were rejected, and the mode {spec.mode.value!r} would delete "
            f"existing features of them; nothing was written. See {file}, or allow it with "
            "delete_rejected",
            field="delete_rejected",
        )
    parts = parts_of(staging.job, rows)
    staged = sum(part.features for part in parts)
    _check_counts(rows, staged + len(rejected))
    _report_missing_columns(rows, staged, progress)
    if not staged and spec.mode is WriteMode.MIRROR and not spec.delete_all:
        raise InvalidArgument(
            f"The files contain no features, and the mode {spec.mode.value!r} would delete all "
            "existing ones; nothing was written. Allow it with delete_all",
            field="delete_all",
        )
    progress.phase("write", staged)
    write = StagedWrite(
        job=staging.job,
        info=staging.checker.info,
        mode=spec.mode,
        app_id=spec.app_id,
        author=spec.author,
        message=spec.message,
        key=spec.key,
    )
    applied = storage.call(lambda s: s.apply_staged(write, parts))
    with suppress(Cancelled):  # too late: the transaction was applied
        progress.advance(staged)
    return msgspec.structs.replace(
        _loaded(spec, applied),
        records=staged + len(rejected),
        rejected=len(rejected),
        rejects=file,
        adjusted=_sum(rows, "adjusted"),
        without_geometry=_sum(rows, "without_geometry"),
        without_id=_sum(rows, "without_id"),
    )


def _with_files(done: Loaded, found: FoundFiles) -> Loaded:
    """Add the files to the report."""
    count_max = limits.LOAD_FILES_REPORTED_MAX
    return msgspec.structs.replace(
        done,
        files=tuple(found.files[:count_max]),
        file_count=len(found.files),
        left_out=tuple(found.left_out[:count_max]),
        left_out_count=len(found.left_out),
    )


def _sum(rows: list[Any], count: str) -> int:
    return sum(row[count] or 0 for row in rows)


def _report_missing_columns(rows: list[Any], staged: int, progress: JobProgress) -> None:
    """Report if no feature has a geometry or an id: the column probably was not recognised."""
    for count, what in (("without_geometry", "a geometry"), ("without_id", "an id")):
        if staged and _sum(rows, count) == staged:
            progress.say(
                f"No feature has {what}; if there is a column with it, name it in the mapping"
            )


def _loaded(spec: Load, applied: AppliedWrite) -> Loaded:
    """Build the report of a load from the recorded result."""
    return Loaded(
        collection=spec.collection,
        records=applied.created + applied.updated + applied.retained,
        txn=applied.txn,
        created=applied.created,
        updated=applied.updated,
        deleted=applied.deleted,
        unchanged=applied.retained,
        transactions=int(applied.txn is not None),
        repeated=applied.repeated,
    )


def _limited(outcomes: DataFrame, spec: Load) -> list[Any]:
    """Collect the outcomes of tasks, with a limited number of rejected records."""
    kept = outcomes.persist()
    try:
        ends = kept.filter("reason IS NULL").collect()
        if all(row.records == (row.features or 0) for row in ends):
            return ends  # Everything is staged, and looking for rejected records takes Spark jobs.
        return ends + kept.filter("reason IS NOT NULL").limit(spec.rejects_max + 1).collect()
    finally:
        kept.unpersist()


def _check_counts(rows: list[Any], counted: int) -> None:
    """Check that no record was lost: the records read must be those staged or rejected.

    Raises:
        NakshaError: The numbers differ.
    """
    ends = [row for row in rows if row.reason is None]
    read = sum(row.records or 0 for row in ends)
    if read != counted or any(row.records is None for row in ends):
        raise NakshaError(
            f"{read} records were read, but {counted} were staged or rejected; nothing was written,"
            " retry the load"
        )


def _takes_spark(spec: Load) -> bool:
    """Whether a load needs Spark; a history is read sequentially in one process."""
    return not spec.history


JOB = Job(Load, load, "Load files into a collection.", JobAccess.WRITE, needs_spark=_takes_spark)
