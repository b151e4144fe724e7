"""Collections as DataFrames in a job; each split that the storage plans is read by a task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from naksha.model.errors import Expired
from naksha.model.query import Query
from naksha.model.version import HEAD, AtSeq, Version
from naksha.spark.runtime.failures import noting
from naksha.spark.runtime.storage_cache import existing_storage
from naksha.spark.source.options import StorageRef
from naksha.spi.arrow import schema_of
from naksha.spi.storage import Split, Storage
from naksha.versioning import lines

Change = Callable[[int, pa.RecordBatch], pa.RecordBatch]
"""Transformation of a batch of states in a task, given the number of the split."""


async def fixed_position(storage: Storage, ref: str) -> lines.Place:
    """Resolve a version; HEAD becomes the last published one, which is stable for the whole job."""
    found = await lines.place_of(storage, ref)
    return replace(found, at=AtSeq(found.version.seq_number))


async def oldest_version(storage: Storage, collection: str) -> Version:
    """Return the version from which the history of a collection is complete.

    All states that ended after it are available. If no version can be read any more it is HEAD.
    """
    try:
        return await storage.resolve(AtSeq(0), collection)
    except Expired as error:
        at = HEAD if error.oldest is None else AtSeq(error.oldest)
        return await storage.resolve(at)


async def planned(at: lines.Place, collection: str, query: Query) -> list[Split]:
    """Plan the splits of a version."""
    return await at.line.storage.plan(collection, query, at.at)


def table(
    spark: SparkSession, place: StorageRef, splits: Sequence[Split], columns: Sequence[str]
) -> DataFrame:
    """Read columns of splits (see `naksha.spi.arrow.COLUMNS`)."""
    return table_by_batch(spark, place, splits, columns, schema_of(columns), _as_it_is)


def table_by_batch(
    spark: SparkSession,
    place: StorageRef,
    splits: Sequence[Split],
    columns: Sequence[str],
    schema: pa.Schema,
    change: Change,
) -> DataFrame:
    """Read columns of splits, and transform each batch in the task that reads it."""
    given = from_arrow_schema(pa.schema([field.with_nullable(True) for field in schema]))
    if not splits:
        return spark.createDataFrame([], given)
    known, names = list(splits), list(columns)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with noting():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for states in existing_storage(place).iterate(
                        partial(_read, known[number], names)
                    ):
                        yield change(number, states)

    # One row per task: the number of its split.
    return spark.range(0, len(known), 1, len(known)).mapInArrow(read, given)


def _read(split: Split, names: list[str], storage: Storage) -> AsyncIterator[pa.RecordBatch]:
    return storage.read(split, names)


def _as_it_is(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
