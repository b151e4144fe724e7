"""Features and changes as tables, in one call: what a source cannot do by itself is done by Spark
on top of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructField, StructType

from naksha.model.errors import InvalidArgument
from naksha.model.query import Predicate, States
from naksha.spark.runtime.sessions import UTC, set_up
from naksha.spark.source.columns import CHANGES, PROPERTIES, READ, schema_of
from naksha.spark.source.options import HEAD, place_of
from naksha.spark.source.property_structs import is_read
from naksha.spark.source.read_options import (
    COLUMNS,
    ROWS_MAX,
    STARTING,
    TRANSACTIONS_MAX,
    GeometryForm,
)
from naksha.versioning.version_refs import MAIN_BRANCH

JSON: Final = "json"
VARIANT: Final = "variant"
_FORMAT: Final = "naksha"
Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)


def features(
    spark: SparkSession,
    storage: str,
    collection: str,
    *,
    version: str | int = HEAD,
    states: States | str = States.LIVE,
    columns: Sequence[str] | None = None,
    properties: str = JSON,
    geometry: GeometryForm | str = GeometryForm.WKB,
    where: Predicate | None = None,
    **options: str,
) -> DataFrame:
    """The features of a collection at a version, which is found now: whatever is done with the
    table later is done with that one.

    Args:
        version: HEAD, a number, a tag, a branch, a time, or a version of a branch: `fix:17`.
        states: Live features, deleted ones, or all states that there ever were.
        columns: Which of them are read, in their order.
        properties: `json` for texts, `variant`, or a schema such as `name STRING, speed INT`.
        geometry: Bytes (`wkb`), or Spark's GEOMETRY(4326).
        where: A predicate on the features, tested by the storage.
        options: More of the source's: `bbox`, `tags`, `updatedFrom` and so on.
    """
    given = {"version": str(version), "states": str(States(states)), **options}
    if where is not None:
        given["where"] = msgspec.json.encode(where).decode()
    schema = _schema(READ if columns is None else columns, geometry, properties)
    # Not by Spark's own `schema`: then it would make the source, which fixes the version, later.
    given[COLUMNS] = schema.json()
    reader = set_up(spark).read.format(_FORMAT)
    return _with_properties(_with(reader, storage, collection, given).load(), properties)


def changes(
    spark: SparkSession,
    storage: str,
    collection: str,
    *,
    starting: str | int,
    branch: str = MAIN_BRANCH,
    columns: Sequence[str] | None = None,
    properties: str = JSON,
    geometry: GeometryForm | str = GeometryForm.WKB,
    rows_max: int | None = None,
    transactions_max: int | None = None,
    **options: str,
) -> DataFrame:
    """The changes of a collection as a stream: every state that a transaction made, with what
    became of the feature (`change`) and the version (`seq_number`).

    Args:
        starting: `now`, `beginning`, or the version after which it begins.
        branch: The branch that is followed.
        columns: Which are read, in their order.
        properties: As for `features`.
        geometry: As for `features`.
        rows_max: About as many changes in one batch; a transaction is never taken apart.
        transactions_max: As many transactions in one batch.
        options: More of the source's.
    """
    limited = {ROWS_MAX: rows_max, TRANSACTIONS_MAX: transactions_max}
    given = {STARTING: str(starting), "branch": branch, **options}
    given |= {name: str(number) for name, number in limited.items() if number is not None}
    schema = _schema(CHANGES if columns is None else columns, geometry, properties)
    reader = set_up(spark).readStream.format(_FORMAT).schema(schema)
    return _with_properties(_with(reader, storage, collection, given).load(), properties)


def _with(reader: Reader, storage: str, collection: str, options: Mapping[str, Any]) -> Reader:
    # Of a file the whole path: who reads it is elsewhere.
    location = place_of({"storage": storage}).location
    return reader.options(storage=location, collection=collection, **options)


def _schema(columns: Sequence[str], geometry: GeometryForm | str, form: str) -> StructType:
    """The columns of the source; properties as structs, where it makes these: then filters on their
    fields are handed on."""
    schema = schema_of(columns, GeometryForm(geometry))
    if form in (JSON, VARIANT):
        return schema
    struct = StructType.fromDDL(form)
    if not is_read(struct):
        return schema
    typed = {PROPERTIES: StructField(PROPERTIES, struct)}
    return StructType([typed.get(field.name, field) for field in schema])


def _with_properties(table: DataFrame, form: str) -> DataFrame:
    if form == JSON:
        return table
    if PROPERTIES not in table.columns:
        raise InvalidArgument("The column properties is not read", field=PROPERTIES)
    if isinstance(table.schema[PROPERTIES].dataType, StructType):
        return table
    text = sf.col(PROPERTIES)
    if form == VARIANT:
        return table.withColumn(PROPERTIES, sf.parse_json(text))
    # Times without a zone mean the same in every session.
    return table.withColumn(PROPERTIES, sf.from_json(text, form, {"timeZone": UTC}))
