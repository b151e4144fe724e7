"""The job `diff`: what differs between two versions of a collection, or between one and files.

Of two versions only what has begun and what has ended since they parted is read, so that the cost
follows the number of changes. On each side these states are all there is to know: a feature that
a side did not touch is, on that side, what it was where the two parted, and that is what has ended
on the other one. Files are compared with the whole version.
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
from naksha.spark.jobs.collection_tables import changed, fixed, planned, table
from naksha.spark.jobs.frame import InputFile, Job, OutputFile, Progress, Spec
from naksha.spark.jobs.loading.check import check_rejects, keep_rejected
from naksha.spark.jobs.loading.files import found_files
from naksha.spark.jobs.loading.records import (
    checker_of,
    collection_of,
    records_of,
    tell_left_out,
)
from naksha.spark.jobs.loading.spec import Dateline, Format, Mapping, RejectsMax
from naksha.spark.jobs.publish_directory import Output, check_output, made_before, published, tell
from naksha.spark.jobs.state_pairs import STATE, Comparer
from naksha.spark.jobs.watched_actions import watched
from naksha.spark.runtime.sessions import in_utc
from naksha.spark.runtime.storage_cache import existing
from naksha.spark.source.options import HEAD
from naksha.spark.source.options import Place as Where
from naksha.spi.arrow import COLUMNS
from naksha.spi.staging import WriteMode
from naksha.spi.storage import Split, Storage
from naksha.versioning.diff import Action, check_readable
from naksha.versioning.fork_points import Fork, fork_of
from naksha.versioning.lines import Place

_SIDES: Final = ("old", "new")
_UUIDS: Final = ("old.uuid", "new.uuid")


class Diff(Spec, frozen=True, kw_only=True, tag="diff"):
    """Compare two versions of a collection, or a version with files: what was created, updated and
    deleted from the old one to the new one. Of files it is what a load of them would change."""

    collection: str
    old: str = HEAD
    new: str | None = None
    """A version; HEAD, unless there are files."""
    query: Query = Query()
    """Only features that it finds, in one of the two versions or at any time in between."""
    files: tuple[InputFile, ...] = ()
    """Features to compare the old version with. `format`, `layer`, `encoding`, `mapping`,
    `dateline` and `rejects` are those of a load. Tags and `crid` that they do not have are taken to
    be as they are."""
    format: Format = Format.AUTO
    layer: str | None = None
    encoding: str | None = None
    mapping: Mapping = Mapping()
    dateline: Dateline = Dateline.CUT
    mode: WriteMode = WriteMode.MIRROR
    """Of the load: with `mirror` what is not in the files is deleted, with `upsert` it is not."""
    rejects: OutputFile | None = None
    """The file that rejected records go to; beside the first file that is read unless given."""
    rejects_max: RejectsMax = REJECTS_MAX
    output: OutputFile | None = None
    """A directory for the changes; without it they are only counted."""
    output_format: Output = Output.PARQUET
    overwrite: bool = False
    job_id: str = ""
    """A directory that this very job has made is its result."""


class Compared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many features differ, and between what."""

    collection: str
    created: int = 0
    updated: int = 0
    deleted: int = 0
    old: int
    """The `seq_number` of the old version."""
    new: int | None
    """That of the new one; None for files."""
    rejected: int = 0
    rejects: str | None = None
    """The file with the rejected records and their reasons."""
    output: str | None = None


class Part(StrEnum):
    """What is read, on either side since the two parted."""

    OLD_BEGUN = "old_begun"
    OLD_ENDED = "old_ended"
    NEW_BEGUN = "new_begun"
    NEW_ENDED = "new_ended"
    WRITTEN = "written"
    """States that the query finds, of all that were written since."""
    LEFT = "left"
    """States that it finds among those that have ended."""


class _Reads(NamedTuple):
    """What is to be read: the splits, and what each is a part of."""

    old: Place
    new: Place
    splits: list[Split]
    parts: list[Part]


def diff(spark: SparkSession, spec: Diff, progress: Progress) -> Compared:
    """See `Diff`."""
    _check(spec)
    target = None
    if spec.output is not None:
        if (made := made_before(spec.output, spec.job_id, Compared)) is not None:
            return made
        target = check_output(spec.output, overwrite=spec.overwrite)
    if spec.files:
        return _diff_files(spark, spec, target, progress)
    reads = existing(spec.place).call(lambda storage: _plan(storage, spec))
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
        raise InvalidArgument("A difference has no limit, cursor or kind of states", field="query")
    if query.replaced_since is not None:
        raise InvalidArgument("A difference has its own two versions", field="query")
    if not spec.files:
        if spec.old == HEAD and spec.new is None:
            raise InvalidArgument("HEAD is to be compared with something", field="old")
        return
    if spec.new is not None or query != Query():
        raise InvalidArgument("Files are compared with one version, as a whole", field="files")
    if spec.mode not in (WriteMode.MIRROR, WriteMode.UPSERT):
        raise InvalidArgument("Files are compared as `mirror` or `upsert`", field="mode")
    check_rejects(spec)


# ---- Files ---------------------------------------------------------------------------------------


def _diff_files(
    spark: SparkSession, spec: Diff, target: Path | None, progress: Progress
) -> Compared:
    storage = existing(spec.place)
    info = storage.call(lambda s: collection_of(s, spec.collection))
    at, splits = storage.call(lambda s: _whole(s, spec))
    found = found_files(spec)
    tell_left_out(found, progress)
    records = records_of(in_utc(spark), spec, found.files)
    reading = file_features.Reading(checker_of(spec, info, records))
    read = records.rows.mapInArrow(reading, file_features.READ_ROWS).persist()
    try:
        wrong = read.where("reason IS NOT NULL").limit(spec.rejects_max + 1)
        rejected = watched(spark, progress, "read and check", wrong.collect)
        file = keep_rejected(spec, found.files, rejected, progress)
        given = file_features.without_prefix(read.where("reason IS NULL"), info.id_prefix)
        watched(spark, progress, "looking at the ids", lambda: file_features.check_unique(given))
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


async def _whole(storage: Storage, spec: Diff) -> tuple[Place, list[Split]]:
    """The version that files are compared with; without the collection there is nothing in it."""
    at = await fixed(storage, spec.old)
    try:
        return at, await planned(at, spec.collection, Query())
    except CollectionNotFound:
        return at, []


# ---- What is read --------------------------------------------------------------------------------


async def _plan(storage: Storage, spec: Diff) -> _Reads:
    old, new = await fixed(storage, spec.old), await fixed(storage, spec.new or HEAD)
    for place in (old, new):
        await check_readable(place, spec.collection)
    fork = fork_of(old, new)
    first = fork.in_order[0] if fork.in_order is not None else None
    found = _Reads(old, new, [], [])
    sides = ((old, Part.OLD_BEGUN, Part.OLD_ENDED), (new, Part.NEW_BEGUN, Part.NEW_ENDED))
    unknown = []
    for place, begun, ended in sides:
        if place is first:
            continue
        try:
            asked = _asked(fork, begun, ended)
            if spec.query != Query():
                asked += _asked(fork, Part.WRITTEN, Part.LEFT, spec.query)
            for part, query in asked:
                splits = await planned(place, spec.collection, query)
                found.splits.extend(splits)
                found.parts.extend([part] * len(splits))
        except CollectionNotFound as error:
            unknown.append(error)
    if unknown and not found.splits:
        raise unknown[0]
    return found


def _asked(
    fork: Fork, begun: Part, ended: Part, query: Query | None = None
) -> list[tuple[Part, Query]]:
    """What is asked of a side; a query is about all states that were there since."""
    asked = query or Query()
    since = max(fork.txn + 1, asked.txn_from or 0)
    kind = States.LIVE if query is None else States.ALL
    found = [(begun, msgspec.structs.replace(asked, states=kind, txn_from=since))]
    if fork.txn > 0:
        found.append((ended, msgspec.structs.replace(asked, replaced_since=fork.txn)))
    return found


# ---- Pairs ---------------------------------------------------------------------------------------


def _pairs(spark: SparkSession, spec: Diff, reads: _Reads) -> DataFrame:
    """The states of all features that may have changed, in both versions."""
    known = {part: f.first(f.when(f.col("part") == part.value, _state()), True) for part in Part}
    every = _gathered(spark, spec.place, reads).groupBy("id")
    found = every.agg(
        *(known[part].alias(part.value) for part in Part if part not in (Part.WRITTEN, Part.LEFT)),
        f.max(f.col("part") == Part.WRITTEN.value).alias(Part.WRITTEN.value),
        f.collect_set(f.when(f.col("part") == Part.LEFT.value, f.col("uuid"))).alias(
            Part.LEFT.value
        ),
    )
    old = _version(Part.OLD_BEGUN, Part.OLD_ENDED, Part.NEW_ENDED)
    new = _version(Part.NEW_BEGUN, Part.NEW_ENDED, Part.OLD_ENDED)
    pairs = found.select("id", old.alias("old"), new.alias("new"), "written", "left")
    pairs = pairs.where(~f.col("old.uuid").eqNullSafe(f.col("new.uuid")))
    if spec.query != Query():
        shown = [f.coalesce(f.array_contains("left", f.col(u)), f.lit(False)) for u in _UUIDS]
        pairs = pairs.where(f.col("written") | shown[0] | shown[1])
    return pairs.select("id", *(f.col(f"{s}.{n}").alias(f"{s}_{n}") for s in _SIDES for n in STATE))


def _version(begun: Part, ended: Part, other: Part) -> Column:
    """A feature as it is in the version of a side. One that the side did not touch is what it was
    where the two parted, and has ended on the other side."""
    is_touched = f.col(begun.value).isNotNull() | f.col(ended.value).isNotNull()
    return f.when(is_touched, f.col(begun.value)).otherwise(f.col(other.value))


def _state() -> Column:
    return f.struct(*STATE)


def _gathered(spark: SparkSession, where: Where, reads: _Reads) -> DataFrame:
    """All that is read, each state with what it is a part of."""
    names = ("id", *STATE)
    schema = pa.schema([*(COLUMNS.field(name) for name in names), pa.field("part", pa.string())])
    parts = list(reads.parts)

    def with_part(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        part, columns = parts[number], batch.columns
        if part in (Part.WRITTEN, Part.LEFT):
            # Nobody wants to know more of these.
            columns = [
                column if name in ("id", "uuid") else pa.nulls(len(batch), column.type)
                for name, column in zip(names, columns, strict=True)
            ]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array([part.value] * len(batch), pa.string())], schema=schema
        )

    return changed(spark, where, reads.splits, names, schema, with_part)


# ---- Changes -------------------------------------------------------------------------------------


def _compared(
    spark: SparkSession,
    spec: Diff,
    pairs: DataFrame,
    target: Path | None,
    report: Compared,
    progress: Progress,
) -> Compared:
    """Compare pairs, write those that differ, and count them in the report."""
    comparer = Comparer(documents=spec.output_format is Output.LINES)
    counting = Observation()
    compared = pairs.mapInArrow(comparer, comparer.spark_schema)
    seen = compared.observe(counting, *map(_counted, Action))
    if target is None:
        nowhere = seen.write.format("noop").mode("append")
        watched(spark, progress, "comparing", nowhere.save)
        return msgspec.structs.replace(report, **counting.get)
    with published(target, overwrite=spec.overwrite) as work:
        watched(spark, progress, "comparing", lambda: _save(seen, work, spec.output_format))
        report = msgspec.structs.replace(report, **counting.get)
        tell(work, spec.job_id, report)
    return report


def _save(changes: DataFrame, work: Path, format_: Output) -> None:
    if format_ is Output.PARQUET:
        changes.write.mode("append").parquet(str(work))
    else:
        changes.select(_line()).write.mode("append").text(str(work))


def _counted(action: Action) -> Column:
    return f.count(f.when(f.col("action") == action.value, 1)).alias(action.value)


def _line() -> Column:
    """A change as JSON. The documents are JSON already."""
    about = f.to_json(f.struct("id", "action", "paths"))
    old, new = (f.coalesce(f.col(side), f.lit("null")) for side in ("old", "new"))
    return f.concat(
        f.substring(about, f.lit(1), f.length(about) - 1),
        *(f.lit(',"old":'), old, f.lit(',"new":'), new, f.lit("}")),
    )


JOB = Job(Diff, diff, "Compare two versions of a collection, or a version with files.")
