"""Job `diff`: compare two versions of a collection, or a version with files.

Of two versions only states that began or ended since their last common transaction are read, so
that the cost depends on the number of changes. These states are sufficient: a feature that was not
changed on one side still has the common state there, and that state has ended on the other
side. Files are compared with the whole version.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.limits import REJECTS_MAX
from naksha.model.query import Query, States
from naksha.spark.jobs import file_features
from naksha.spark.jobs.collection_tables import fixed_position, planned, table, table_by_batch
from naksha.spark.jobs.frame import InputFile, Job, JobProgress, JobSpec, OutputFile
from naksha.spark.jobs.loading.check import check_rejects, keep_rejected
from naksha.spark.jobs.loading.files import found_files
from naksha.spark.jobs.loading.records import (
    checker_of,
    collection_of,
    records_of,
    report_left_out,
)
from naksha.spark.jobs.loading.spec import DatelineHandling, FileFormat, Mapping, RejectsMax
from naksha.spark.jobs.publish_directory import (
    OutputFormat,
    check_output,
    earlier_report,
    published,
    write_report,
)
from naksha.spark.jobs.state_pairs import STATE, Comparer
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.sessions import in_utc
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import HEAD
from naksha.spark.source.options import StorageRef as Where
from naksha.spi.arrow import COLUMNS
from naksha.spi.staging import WriteMode
from naksha.spi.storage import Split, Storage
from naksha.versioning.diff import DiffAction, check_readable
from naksha.versioning.divergence import Divergence, divergence_of
from naksha.versioning.lines import Place

_SIDES: Final = ("old", "new")
_UUIDS: Final = ("old.uuid", "new.uuid")


class Diff(JobSpec, frozen=True, kw_only=True, tag="diff"):
    """Compare two versions of a collection, or a version with files.

    The result is which features were created, updated and deleted from the old version to the new
    one. For files it is what a load of them would change.
    """

    collection: str
    old: str = HEAD
    new: str | None = None
    """New version; the default is HEAD, unless there are files."""
    query: Query = Query()
    """Only compare features that match it, in one of the two versions or at any time in between."""
    files: tuple[InputFile, ...] = ()
    """Files to compare the old version with. `format`, `layer`, `encoding`, `mapping`, `dateline`
    and `rejects` are those of a load. Missing tags and a missing `crid` count as unchanged."""
    format: FileFormat = FileFormat.AUTO
    layer: str | None = None
    encoding: str | None = None
    mapping: Mapping = Mapping()
    dateline: DatelineHandling = DatelineHandling.CUT
    mode: WriteMode = WriteMode.MIRROR
    """Mode of the load: `mirror` deletes features that are not in the files, `upsert` does not."""
    rejects: OutputFile | None = None
    """File for rejected records; the default is next to the first input file."""
    rejects_max: RejectsMax = REJECTS_MAX
    output: OutputFile | None = None
    """Directory for the changes; without it they are only counted."""
    output_format: OutputFormat = OutputFormat.PARQUET
    overwrite: bool = False
    job_id: str = ""
    """Id of the job; an output directory that the same job has written is its result."""


class Compared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Report of the job `diff`."""

    collection: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    old: int
    """`seq_number` of the old version."""
    new: int | None
    """`seq_number` of the new version; None for files."""
    rejected: int = 0
    rejects: str | None = None
    """File with the rejected records and their reasons."""
    output: str | None = None


class StateGroup(StrEnum):
    """Kind of states that are read, on either side since the divergence."""

    OLD_BEGUN = "old_begun"
    OLD_ENDED = "old_ended"
    NEW_BEGUN = "new_begun"
    NEW_ENDED = "new_ended"
    WRITTEN = "written"
    """States written since the divergence that match the query."""
    LEFT = "left"
    """States ended since the divergence that match the query."""


class _ReadPlan(NamedTuple):
    """Splits to read, with the kind of each."""

    old: Place
    new: Place
    splits: list[Split]
    parts: list[StateGroup]


def diff(spark: SparkSession, spec: Diff, progress: JobProgress) -> Compared:
    """Run the job; see `Diff`."""
    _check(spec)
    target = None
    if spec.output is not None:
        if (made := earlier_report(spec.output, spec.job_id, Compared)) is not None:
            return made
        target = check_output(spec.output, overwrite=spec.overwrite)
    if spec.files:
        return _diff_files(spark, spec, target, progress)
    reads = existing_storage(spec.place).call(lambda storage: _plan(storage, spec))
    report = Compared(
        collection=spec.collection,
        old=reads.old.version.seq_number,
        new=reads.new.version.seq_number,
        output=None if target is None else str(target),
    )
    return _compared(spark, spec, _pairs(spark, spec, reads), target, report, progress)


def _check(spec: Diff) -> None:
    query = spec.query
    if query.limit is not None or query.cursor is not None or query.states is not States.LIVE:
        raise InvalidArgument(
            "The query of a diff must not have a limit, cursor or states; remove them",
            field="query",
        )
    if query.replaced_since is not None:
        raise InvalidArgument(
            "The query of a diff must not have replaced_since; remove it", field="query"
        )
    if not spec.files:
        if spec.old == HEAD and spec.new is None:
            raise InvalidArgument(
                "A diff requires a version other than HEAD in old or new, or files", field="old"
            )
        return
    if spec.new is not None or query != Query():
        raise InvalidArgument(
            "A diff with files compares the version in old; remove new and query", field="files"
        )
    if spec.mode not in (WriteMode.MIRROR, WriteMode.UPSERT):
        raise InvalidArgument(
            f"The mode of a diff with files must be mirror or upsert, not {spec.mode.value!r}",
            field="mode",
        )
    check_rejects(spec)


# ---- Files ---------------------------------------------------------------------------------------


def _diff_files(
    spark: SparkSession, spec: Diff, target: Path | None, progress: JobProgress
) -> Compared:
    storage = existing_storage(spec.place)
    info = storage.call(lambda s: collection_of(s, spec.collection))
    at, splits = storage.call(lambda s: _base_version(s, spec))
    found = found_files(spec)
    report_left_out(found, progress)
    records = records_of(in_utc(spark), spec, found.files)
    reading = file_features.Reading(checker_of(spec, info, records))
    read = records.rows.mapInArrow(reading, file_features.READ_ROWS).persist()
    try:
        wrong = read.where("reason IS NOT NULL").limit(spec.rejects_max + 1)
        rejected = watched(spark, progress, "read and check", wrong.collect)
        file = keep_rejected(spec, found.files, rejected, progress)
        given = file_features.without_prefix(read.where("reason IS NULL"), info.id_prefix)
        watched(spark, progress, "checking the ids", lambda: file_features.check_unique(given))
        version = table(spark, spec.place, splits, ["id", *STATE, *file_features.BEFORE])
        complete = spec.mode is WriteMode.MIRROR
        pairs = file_features.pairs_of(version, given, complete=complete)
        report = Compared(
            collection=spec.collection,
            old=at.version.seq_number,
            new=None,
            rejected=len(rejected),
            rejects=file,
            output=None if target is None else str(target),
        )
        return _compared(spark, spec, pairs, target, report, progress)
    finally:
        read.unpersist()


async def _base_version(storage: Storage, spec: Diff) -> tuple[Place, list[Split]]:
    """Plan the version that files are compared with; empty if the collection does not exist."""
    at = await fixed_position(storage, spec.old)
    try:
        return at, await planned(at, spec.collection, Query())
    except CollectionNotFound:
        return at, []


# ---- Planning ------------------------------------------------------------------------------------


async def _plan(storage: Storage, spec: Diff) -> _ReadPlan:
    old, new = (
        await fixed_position(storage, spec.old),
        await fixed_position(storage, spec.new or HEAD),
    )
    for place in (old, new):
        await check_readable(place, spec.collection)
    divergence = divergence_of(old, new)
    first = divergence.in_order[0] if divergence.in_order is not None else None
    found = _ReadPlan(old, new, [], [])
    sides = (
        (old, StateGroup.OLD_BEGUN, StateGroup.OLD_ENDED),
        (new, StateGroup.NEW_BEGUN, StateGroup.NEW_ENDED),
    )
    unknown = []
    for place, begun, ended in sides:
        if place is first:
            continue
        try:
            requested = _side_queries(divergence, begun, ended)
            if spec.query != Query():
                requested += _side_queries(
                    divergence, StateGroup.WRITTEN, StateGroup.LEFT, spec.query
                )
            for part, query in requested:
                splits = await planned(place, spec.collection, query)
                found.splits.extend(splits)
                found.parts.extend([part] * len(splits))
        except CollectionNotFound as error:
            unknown.append(error)
    if unknown and not found.splits:
        raise unknown[0]
    return found


def _side_queries(
    divergence: Divergence, begun: StateGroup, ended: StateGroup, query: Query | None = None
) -> list[tuple[StateGroup, Query]]:
    """Build the queries for a side; `query` applies to all states since the divergence."""
    requested = query or Query()
    since = max(divergence.txn + 1, requested.txn_from or 0)
    kind = States.LIVE if query is None else States.ALL
    found = [(begun, msgspec.structs.replace(requested, states=kind, txn_from=since))]
    if divergence.txn > 0:
        found.append((ended, msgspec.structs.replace(requested, replaced_since=divergence.txn)))
    return found


# ---- Pairs ---------------------------------------------------------------------------------------


def _pairs(spark: SparkSession, spec: Diff, reads: _ReadPlan) -> DataFrame:
    """Pair the states of all features that may have changed in the two versions."""
    known = {
        part: f.first(f.when(f.col("part") == part.value, _state()), True) for part in StateGroup
    }
    every = _read_states(spark, spec.place, reads).groupBy("id")
    found = every.agg(
        *(
            known[part].alias(part.value)
            for part in StateGroup
            if part not in (StateGroup.WRITTEN, StateGroup.LEFT)
        ),
        f.max(f.col("part") == StateGroup.WRITTEN.value).alias(StateGroup.WRITTEN.value),
        f.collect_set(f.when(f.col("part") == StateGroup.LEFT.value, f.col("uuid"))).alias(
            StateGroup.LEFT.value
        ),
    )
    old = _version(StateGroup.OLD_BEGUN, StateGroup.OLD_ENDED, StateGroup.NEW_ENDED)
    new = _version(StateGroup.NEW_BEGUN, StateGroup.NEW_ENDED, StateGroup.OLD_ENDED)
    pairs = found.select("id", old.alias("old"), new.alias("new"), "written", "left")
    pairs = pairs.where(~f.col("old.uuid").eqNullSafe(f.col("new.uuid")))
    if spec.query != Query():
        shown = [f.coalesce(f.array_contains("left", f.col(u)), f.lit(False)) for u in _UUIDS]
        pairs = pairs.where(f.col("written") | shown[0] | shown[1])
    return pairs.select("id", *(f.col(f"{s}.{n}").alias(f"{s}_{n}") for s in _SIDES for n in STATE))


def _version(begun: StateGroup, ended: StateGroup, other: StateGroup) -> Column:
    """Select the state of a feature in the version of a side.

    A feature that the side did not change has the common state, which has ended on the other
    side.
    """
    is_touched = f.col(begun.value).isNotNull() | f.col(ended.value).isNotNull()
    return f.when(is_touched, f.col(begun.value)).otherwise(f.col(other.value))


def _state() -> Column:
    return f.struct(*STATE)


def _read_states(spark: SparkSession, where: Where, reads: _ReadPlan) -> DataFrame:
    """Read all states, with the kind of each."""
    names = ("id", *STATE)
    schema = pa.schema([*(COLUMNS.field(name) for name in names), pa.field("part", pa.string())])
    parts = list(reads.parts)

    def with_part(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        part, columns = parts[number], batch.columns
        if part in (StateGroup.WRITTEN, StateGroup.LEFT):
            # Other columns of these are not used.
            columns = [
                column if name in ("id", "uuid") else pa.nulls(len(batch), column.type)
                for name, column in zip(names, columns, strict=True)
            ]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array([part.value] * len(batch), pa.string())], schema=schema
        )

    return table_by_batch(spark, where, reads.splits, names, schema, with_part)


# ---- Changes -------------------------------------------------------------------------------------


def _compared(
    spark: SparkSession,
    spec: Diff,
    pairs: DataFrame,
    target: Path | None,
    report: Compared,
    progress: JobProgress,
) -> Compared:
    """Compare pairs, write those that differ and add their counts to the report."""
    comparer = Comparer(documents=spec.output_format is OutputFormat.LINES)
    counting = Observation()
    compared = pairs.mapInArrow(comparer, comparer.spark_schema)
    seen = compared.observe(counting, *map(_counted, DiffAction))
    if target is None:
        nowhere = seen.write.format("noop").mode("append")
        watched(spark, progress, "comparing", nowhere.save)
        return msgspec.structs.replace(report, **counting.get)
    with published(target, overwrite=spec.overwrite) as work:
        watched(spark, progress, "comparing", lambda: _save(seen, work, spec.output_format))
        report = msgspec.structs.replace(report, **counting.get)
        write_report(work, spec.job_id, report)
    return report


def _save(changes: DataFrame, work: Path, format_: OutputFormat) -> None:
    if format_ is OutputFormat.PARQUET:
        changes.write.mode("append").parquet(str(work))
    else:
        changes.select(_line()).write.mode("append").text(str(work))


def _counted(action: DiffAction) -> Column:
    return f.count(f.when(f.col("action") == action.value, 1)).alias(action.value)


def _line() -> Column:
    """Build the JSON of a change; its documents are JSON already."""
    about = f.to_json(f.struct("id", "action", "paths"))
    old, new = (f.coalesce(f.col(side), f.lit("null")) for side in ("old", "new"))
    return f.concat(
        f.substring(about, f.lit(1), f.length(about) - 1),
        *(f.lit(',"old":'), old, f.lit(',"new":'), new, f.lit("}")),
    )


JOB = Job(Diff, diff, "Compare two versions of a collection, or a version with files.")
