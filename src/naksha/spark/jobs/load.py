"""The job `load`: files of any kind become features of a collection, by one transaction."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model.collection import CollectionInfo
from naksha.model.errors import CollectionNotFound, LimitExceeded
from naksha.model.names import check_app_id, check_author, check_collection_id
from naksha.spark.jobs.frame import Access, Job, Progress
from naksha.spark.jobs.loading import geojson, history, tables
from naksha.spark.jobs.loading.files import Piece, files_of, format_of, pieces_of
from naksha.spark.jobs.loading.mapping import mapped_features, records_of_table
from naksha.spark.jobs.loading.spec import Format, Load, Loaded
from naksha.spark.jobs.loading.staging import OUTCOME_ROWS, Staging, parts_of
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import Opened, opened
from naksha.spi.staging import StagedWrite
from naksha.spi.storage import Storage


def load(spark: SparkSession, spec: Load, progress: Progress) -> Loaded:
    """Load files into a collection; see `Load`."""
    check_collection_id(spec.collection, field="collection")
    check_app_id(spec.app_id)
    check_author(spec.author)
    files = files_of(spec)
    storage = opened(spec.place)
    if spec.history:
        return history.load_history(spark, storage, spec, files, progress)
    records, crs = records_of(spark, spec, files)
    info = storage.call(lambda s: _collection(s, spec.collection))
    staging = Staging(spec.place, spec.job_id or uuid.uuid4().hex, info, spec.mapping.crs or crs)
    try:
        return _load(spark, storage, spec, staging, records, progress)
    except BaseException:
        storage.call(lambda s: s.drop_staged(staging.job))
        raise


def records_of(spark: SparkSession, spec: Load, files: list[str]) -> tuple[DataFrame, str | None]:
    """The records of the files, and the reference system that they name."""
    format_ = format_of(spec, files)
    if format_ in (Format.GEOJSON, Format.LINES):
        rows = from_arrow_schema(geojson.RECORDS)
        if format_ is Format.LINES:
            pieces = [piece for path in files for piece in pieces_of(path)]
            records = tables.in_pieces(spark, pieces, rows, geojson.read_lines)
        else:
            whole = [Piece(path) for path in files]
            records = tables.in_pieces(spark, whole, rows, geojson.read_document)
        return mapped_features(records, spec.mapping), None
    if format_ is Format.PARQUET:
        table = tables.of_parquet(spark, files)
    elif format_ is Format.CSV:
        table = tables.of_csv(spark, files)
    else:
        table = tables.of_vector(spark, files, spec.layer)
    return records_of_table(table, spec.mapping), table.crs


async def _collection(storage: Storage, collection: str) -> CollectionInfo:
    try:
        return await storage.collection(collection)
    except CollectionNotFound:
        return CollectionInfo(id=collection)


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
    file = _write_rejects(spec, rejected) if rejected else None
    if len(rejected) > spec.rejects_max:
        raise LimitExceeded(
            f"More than {spec.rejects_max} records were rejected, the first ones are in {file}; "
            "nothing was loaded",
            field="rejects_max",
        )
    if file is not None:
        progress.say(f"{len(rejected)} records were rejected, with their reasons in {file}")
    parts = parts_of(staging.job, rows)
    staged = sum(part.features for part in parts)
    progress.phase("write", staged)
    write = StagedWrite(
        job=staging.job,
        info=staging.info,
        mode=spec.mode,
        app_id=spec.app_id,
        author=spec.author,
        message=spec.message,
        key=spec.key,
    )
    applied = storage.call(lambda s: s.apply_staged(write, parts))
    progress.advance(staged)
    return Loaded(
        collection=spec.collection,
        records=staged + len(rejected),
        rejected=len(rejected),
        rejects=file,
        adjusted=sum(row.adjusted or 0 for row in rows),
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


def _write_rejects(spec: Load, rejected: list[Any]) -> str:
    """A line for each rejected record: where it is from, and what is wrong with it."""
    path = Path(spec.rejects or f"{spec.files[0].rstrip('/*')}.rejects.jsonl").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(rejected, key=lambda row: (row.source, row.line or 0))
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unfinished.open("wb") as file:
        for row in ordered:
            line = {name: row[name] for name in ("source", "line", "id", "reason", "record")}
            file.write(msgspec.json.encode(line) + b"\n")
    unfinished.replace(path)
    return str(path)


JOB = Job(Load, load, "Load files into a collection.", Access.WRITE)
