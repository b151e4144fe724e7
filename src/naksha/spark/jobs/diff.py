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
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from naksha.model.errors import CollectionNotFound, InvalidArgument
from naksha.model.query import Query, States
from naksha.spark.jobs.comparing import STATE, Comparer
from naksha.spark.jobs.frame import Job, OutputFile, Progress, Spec
from naksha.spark.jobs.publishing import check_output, published
from naksha.spark.jobs.reading import fixed, planned, table
from naksha.spark.jobs.watching import watched
from naksha.spark.opened import opened
from naksha.spark.options import HEAD
from naksha.spark.options import Place as Where
from naksha.spi.storage import Split, Storage
from naksha.versioning.diff import Action, check_readable
from naksha.versioning.forks import Fork, fork_of
from naksha.versioning.places import Place

REPORT: Final = "_report.json"


class Output(StrEnum):
    """How changes are written."""

    PARQUET = "parquet"
    """A row for each, with geometries in WKB and the rest of the features as JSON."""
    LINES = "json-lines"
    """An object for each, with whole features as GeoJSON."""


class Diff(Spec, frozen=True, kw_only=True, tag="diff"):
    """Compare two versions of a collection: what was created, updated and deleted from the old one
    to the new one."""

    collection: str
    old: str
    new: str = HEAD
    query: Query = Query()
    """Only features that it finds, in one of the two versions or at any time in between."""
    output: OutputFile | None = None
    """A directory for the changes; without it they are only counted."""
    format: Output = Output.PARQUET
    overwrite: bool = False


class Compared(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many features differ, and between what."""

    collection: str
    created: int
    updated: int
    deleted: int
    old: int
    """The `seq_number` of the old version."""
    new: int | None
    output: str | None


class _Side(NamedTuple):
    """What happened on one of the two sides since they parted."""

    begun: list[Split]
    ended: list[Split]


class _Reads(NamedTuple):
    """What is to be read."""

    old: Place
    new: Place
    sides: tuple[_Side, _Side]
    written: list[Split] | None
    """States that the query finds, of all that were written since."""
    left: list[Split]
    """States that it finds among those that have ended."""


def diff(spark: SparkSession, spec: Diff, progress: Progress) -> Compared:
    """See `Diff`."""
    _check(spec.query)
    target = _target(spec.output, overwrite=spec.overwrite)
    reads = opened(spec.place).call(lambda storage: _plan(storage, spec))
    pairs = _matching(spark, spec.place, reads, _pairs(spark, spec.place, reads.sides))
    counts = write_changes(spark, pairs, target, spec.format, spec.overwrite, progress)
    return Compared(
        collection=spec.collection,
        **counts,
        old=reads.old.version.seq_number,
        new=reads.new.version.seq_number,
        output=None if target is None else str(target),
    )


def _check(query: Query) -> None:
    if query.limit is not None or query.cursor is not None or query.states is not States.LIVE:
        raise InvalidArgument("A difference has no limit, cursor or kind of states", field="query")
    if query.replaced_since is not None:
        raise InvalidArgument("A difference has its own two versions", field="query")


def _target(output: str | None, *, overwrite: bool) -> Path | None:
    return None if output is None else check_output(output, overwrite=overwrite)


# ---- What is read --------------------------------------------------------------------------------


async def _plan(storage: Storage, spec: Diff) -> _Reads:
    old, new = await fixed(storage, spec.old), await fixed(storage, spec.new)
    for place in (old, new):
        await check_readable(place, spec.collection)
    fork = fork_of(old, new)
    first = fork.in_order[0] if fork.in_order is not None else None
    sides, written, left = [], [], []
    unknown = 0
    for place in (old, new):
        if place is first:
            sides.append(_Side([], []))
            continue
        try:
            sides.append(await _side(place, fork, spec.collection))
            if spec.query != Query():
                found = await _found(place, fork, spec.collection, spec.query)
                written += found.begun
                left += found.ended
        except CollectionNotFound:
            unknown += 1
            sides.append(_Side([], []))
    if unknown == len(fork.sides):
        raise CollectionNotFound(
            f"No collection {spec.collection!r}", collection_id=spec.collection
        )
    return _Reads(old, new, (sides[0], sides[1]), None if spec.query == Query() else written, left)


async def _side(place: Place, fork: Fork, collection: str) -> _Side:
    begun = await planned(place, collection, Query(txn_from=fork.txn + 1))
    if fork.txn == 0:
        return _Side(begun, [])
    return _Side(begun, await planned(place, collection, Query(replaced_since=fork.txn)))


async def _found(place: Place, fork: Fork, collection: str, query: Query) -> _Side:
    first = max(fork.txn + 1, query.txn_from or 0)
    written = msgspec.structs.replace(query, states=States.ALL, txn_from=first)
    begun = await planned(place, collection, written)
    if fork.txn == 0:
        return _Side(begun, [])
    left = msgspec.structs.replace(query, replaced_since=fork.txn)
    return _Side(begun, await planned(place, collection, left))


# ---- Pairs ---------------------------------------------------------------------------------------


def _pairs(spark: SparkSession, where: Where, sides: tuple[_Side, _Side]) -> DataFrame:
    """The states of all features that may have changed, in both versions."""
    columns = ("id", *STATE)
    begun = [table(spark, where, side.begun, columns) for side in sides]
    ended = [table(spark, where, side.ended, columns) for side in sides]
    versions = []
    for here, there in ((0, 1), (1, 0)):
        left = ended[there]
        if sides[here].begun or sides[here].ended:
            touched = begun[here].select("id").union(ended[here].select("id"))
            left = left.join(touched, "id", "left_anti")
        versions.append(left.union(begun[here]) if sides[here].begun else left)
    return joined(*versions).where(~f.col("old_uuid").eqNullSafe(f.col("new_uuid")))


def joined(old: DataFrame, new: DataFrame) -> DataFrame:
    """Both states of each feature; the columns of one that is not there are null."""
    pair = [
        side.select("id", *(f.col(name).alias(f"{prefix}_{name}") for name in STATE))
        for prefix, side in (("old", old), ("new", new))
    ]
    return pair[0].join(pair[1], "id", "full_outer")


def _matching(spark: SparkSession, where: Where, reads: _Reads, pairs: DataFrame) -> DataFrame:
    """Those that the query finds in any state since, or in one of the versions."""
    if reads.written is None:
        return pairs
    ids = table(spark, where, reads.written, ["id"]).distinct().withColumn("written", f.lit(1))
    left = table(spark, where, reads.left, ["uuid"]).distinct()
    found = pairs.join(ids, "id", "left")
    for side in ("old", "new"):
        marked = left.select(f.col("uuid").alias(f"{side}_uuid"), f.lit(1).alias(f"{side}_left"))
        found = found.join(marked, f"{side}_uuid", "left")
    flags = ("written", "old_left", "new_left")
    return found.where(f.coalesce(*flags).isNotNull()).drop(*flags)


# ---- Changes -------------------------------------------------------------------------------------


def write_changes(
    spark: SparkSession,
    pairs: DataFrame,
    target: Path | None,
    format_: Output,
    overwrite: bool,
    progress: Progress,
) -> dict[str, int]:
    """Compare pairs and write those that differ; gives how many were created, updated, deleted."""
    comparer = Comparer(documents=format_ is Output.LINES)
    columns = ["id", *(f"{side}_{name}" for side in ("old", "new") for name in STATE)]
    compared = pairs.select(*columns).mapInArrow(comparer, comparer.spark_schema)
    counting = Observation()
    seen = compared.observe(counting, *map(_counted, Action))

    def save(path: Path) -> None:
        if format_ is Output.PARQUET:
            seen.write.mode("append").parquet(str(path))
        else:
            seen.select(_line()).write.mode("append").text(str(path))

    if target is None:
        watched(
            spark, progress, "comparing", lambda: seen.write.format("noop").mode("append").save()
        )
        return dict(counting.get)
    with published(target, overwrite=overwrite) as work:
        watched(spark, progress, "comparing", lambda: save(work))
        counts: dict[str, int] = dict(counting.get)
        (work / REPORT).write_bytes(msgspec.json.encode(counts))
    return counts


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


JOB = Job(Diff, diff, "Compare two versions of a collection.")
