"""The job `load`: files of any kind become features of a collection, by one transaction."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from naksha.model.errors import Cancelled, InvalidArgument
from naksha.model.names import check_app_id, check_author, check_collection_id
from naksha.spark.jobs.frame import Access, Job, Progress
from naksha.spark.jobs.loading import history
from naksha.spark.jobs.loading.checking import Checker, keep_rejected
from naksha.spark.jobs.loading.records import collection_of, records_of
from naksha.spark.jobs.loading.spec import Load, Loaded
from naksha.spark.jobs.loading.staging import OUTCOME_ROWS, Staging, parts_of
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import Opened, opened
from naksha.spark.writing import applied_job
from naksha.spi.staging import Applied, StagedWrite, WriteMode, check_key

_DELETING: Final = (WriteMode.REPLACE, WriteMode.MIRROR)


def load(spark: SparkSession, spec: Load, progress: Progress) -> Loaded:
    """Load files into a collection; see `Load`."""
    check_collection_id(spec.collection, field="collection")
    check_app_id(spec.app_id)
    check_author(spec.author)
    if spec.key is not None:
        check_key(spec.key)
    if spec.info is not None and spec.info.id != spec.collection:
        raise InvalidArgument(
            f"The settings are those of {spec.info.id!r}, not of {spec.collection!r}", field="info"
        )
    storage = opened(spec.place)
    if spec.history:
        return history.load_history(storage, spec, progress)
    before = applied_job(storage, spec.job_id) if spec.job_id else None
    if before is not None:
        return _loaded(spec, before)  # Its files may be gone, or others.
    records, crs = records_of(spark, spec)
    info = storage.call(lambda s: collection_of(s, spec.collection, spec.info))
    job = spec.job_id or uuid.uuid4().hex
    staging = Staging(spec.place, job, Checker(info, crs), spec.rejects_max)
    try:
        return _load(spark, storage, spec, staging, records, progress)
    except BaseException:
        storage.call(lambda s: s.drop_staged(staging.job))
        raise


def _load(
    spark: SparkSession,
    storage: Opened,
    spec: Load,
    staging: Staging,
    records: DataFrame,
    progress: Progress,
) -> Loaded:
    outcomes = records.mapInArrow(staging, OUTCOME_ROWS)
    rows = watched(spark, progress, "read and check", lambda: _limited(outcomes, spec))
    rejected = [row for row in rows if row.reason is not None]
    file = keep_rejected(spec, rejected, progress)
    if file is not None and spec.mode in _DELETING and not spec.delete_rejected:
        raise InvalidArgument(
            f"{len(rejected)} records were rejected, and the mode {spec.mode.value!r} would delete "
            f"their features, which may be there; nothing was written. See {file}, or allow it "
            "with `delete_rejected`",
            field="delete_rejected",
        )
    parts = parts_of(staging.job, rows)
    staged = sum(part.features for part in parts)
    if not staged and spec.mode is WriteMode.MIRROR and not spec.delete_all:
        raise InvalidArgument(
            f"The files have no feature, and the mode {spec.mode.value!r} would delete all that "
            "are there; nothing was written. Allow it with `delete_all`",
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
    with suppress(Cancelled):  # it is too late for that: it was written
        progress.advance(staged)
    return msgspec.structs.replace(
        _loaded(spec, applied),
        records=staged + len(rejected),
        rejected=len(rejected),
        rejects=file,
        adjusted=sum(row.adjusted or 0 for row in rows),
    )


def _loaded(spec: Load, applied: Applied) -> Loaded:
    """What the storage knows of a load."""
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
    """What the tasks tell; of too many rejected records only the first ones."""
    kept = outcomes.persist()
    try:
        staged = kept.filter("table IS NOT NULL").collect()
        return staged + kept.filter("reason IS NOT NULL").limit(spec.rejects_max + 1).collect()
    finally:
        kept.unpersist()


def _takes_spark(spec: Load) -> bool:
    """A history is read from its beginning to its end, in one process: there is nothing to share
    among tasks."""
    return not spec.history


JOB = Job(Load, load, "Load files into a collection.", Access.WRITE, needs_spark=_takes_spark)
