"""Functions `features` and `changes`, which add to the source what Spark must do on top of it."""

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
from naksha.spark.source.options import HEAD, storage_ref_of
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
    """Return the features of a collection at a version as a DataFrame.

    The version is resolved by this call; all later actions on the DataFrame read that version.

    Args:
        version: HEAD, a number, a tag, a branch, a time, or a version of a branch: `fix:17`.
        states: Live features, deleted ones, or all states in the history.
        columns: Columns to read, in this order.
        properties: `json` for texts, `variant`, or a schema such as `name STRING, speed INT`.
        geometry: WKB as BINARY (`wkb`), or Spark's GEOMETRY(4326) (`geometry`).
        where: A predicate on the features, evaluated by the storage.
        options: Further options of the source: `bbox`, `tags`, `updatedFrom` and so on.
    """
    given = {"version": str(version), "states": str(States(states)), **options}
    if where is not None:
        given["where"] = msgspec.json.encode(where).decode()
    schema = _schema(READ if columns is None else columns, geometry, properties)
    # Not with Spark's own `schema`: that would postpone the creation of the source, which resolves
    # the version.
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
    """Return the changes of a collection as a streaming DataFrame.

    It has every state that a transaction created, with the kind of change (`change`) and the
    version (`seq_number`).

    Args:
        starting: `now`, `beginning`, or the version after which the stream starts.
        branch: The branch to follow.
        columns: Columns to read, in this order.
        properties: As for `features`.
        geometry: As for `features`.
        rows_max: Approximate number of changes per batch; a transaction is never split.
        transactions_max: Number of transactions per batch.
        options: Further options of the source.
    """
    limited = {ROWS_MAX: rows_max, TRANSACTIONS_MAX: transactions_max}
    given = {STARTING: str(starting), "branch": branch, **options}
    given |= {name: str(number) for name, number in limited.items() if number is not None}
    schema = _schema(CHANGES if columns is None else columns, geometry, properties)
    reader = set_up(spark).readStream.format(_FORMAT).schema(schema)
    return _with_properties(_with(reader, storage, collection, given).load(), properties)


def _with(reader: Reader, storage: str, collection: str, options: Mapping[str, Any]) -> Reader:
    # Makes file paths absolute: executors have other working directories.
    location = storage_ref_of({"storage": storage}).location
    return reader.options(storage=location, collection=collection, **options)


def _schema(columns: Sequence[str], geometry: GeometryForm | str, form: str) -> StructType:
    """Return the schema of the source.

    Properties are structs if the source supports their types, so that filters on their fields are
    pushed down.
    """
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
        raise InvalidArgument(
            "The parameter 'properties' requires the column 'properties' in 'columns'",
            field=PROPERTIES,
        )
    if isinstance(table.schema[PROPERTIES].dataType, StructType):
        return table
    text = sf.col(PROPERTIES)
    if form == VARIANT:
        return table.withColumn(PROPERTIES, sf.parse_json(text))
    # Times without a zone must not depend on the session.
    return table.withColumn(PROPERTIES, sf.from_json(text, form, {"timeZone": UTC}))
