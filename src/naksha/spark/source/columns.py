"""Columns of features on Spark, and the conversion of Arrow batches to their types."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    GeometryType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from naksha.model.errors import InvalidArgument, NotSupported
from naksha.spark.source.property_structs import is_read, structs_of
from naksha.spark.source.read_options import GeometryForm
from naksha.spi.arrow import COLUMNS

SRID: Final = 4326
PROPERTIES: Final = "properties"
CHANGE: Final = "change"
"""Column of streams: whether a feature was created, updated or deleted."""
_CHANGES: Final = {"CREATE": "created", "UPDATE": "updated", "DELETE": "deleted"}
READ: Final = tuple(name for name in COLUMNS.names if name not in ("feature", "seq_number"))
"""Default columns of a table."""
_NOT_IN_CHANGES: Final = ("feature", "txn_next")
"""Columns whose values change after the change itself, so that a stream cannot repeat them."""
CHANGES: Final = (CHANGE, "seq_number", *(name for name in READ if name not in _NOT_IN_CHANGES))
"""Default columns of a stream."""


def schema_of(names: Iterable[str], form: GeometryForm = GeometryForm.WKB) -> StructType:
    """Return the schema of columns with their default types."""
    return StructType([_field(name, form) for name in names])


def schema_in(text: str) -> StructType:
    """Parse a schema in Spark's JSON format."""
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise InvalidArgument(
            f"Invalid schema in the option 'columns': {error}", field="columns"
        ) from error


class Projection:
    """Projection of a storage's batches to a schema."""

    def __init__(self, schema: StructType, known: Iterable[str]) -> None:
        for field in schema:
            _check(field, tuple(known))
        if len(set(schema.names)) < len(schema) or not schema.names:
            raise InvalidArgument(
                "The schema must have at least one column, and each column only once",
                field="schema",
            )
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        names = ("action" if name == CHANGE else name for name in schema.names)
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(names))
        """Columns to read from the storage."""

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of the storage to the schema."""
        arrays = [_array(batch, field) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _field(name: str, form: GeometryForm) -> StructField:
    if name == CHANGE:
        return StructField(name, StringType(), nullable=False)
    if name not in COLUMNS.names:
        raise InvalidArgument(
            f"Unknown column {name!r:.64}; known columns: {', '.join(COLUMNS.names)}",
            field="columns",
        )
    field = COLUMNS.field(name)
    type_: DataType = from_arrow_type(field.type)
    if name == "geometry" and form is GeometryForm.GEOMETRY:
        type_ = GeometryType(SRID)
    return StructField(name, type_, nullable=field.nullable)


def _check(field: StructField, known: tuple[str, ...]) -> None:
    """Reject a field whose type does not fit its column; it may be nullable in any case."""
    if field.name not in known:
        raise InvalidArgument(
            f"Unknown column {field.name!r:.64}; known columns: {', '.join(known)}",
            field="schema",
        )
    expected, actual = _field(field.name, GeometryForm.WKB), field.dataType
    if isinstance(actual, VariantType):
        raise NotSupported(
            f"The column {field.name!r} is JSON text and cannot be read as VARIANT; use"
            ' naksha.spark.features(…, properties="variant") or Spark\'s parse_json',
            field="schema",
        )
    if isinstance(actual, StructType) and field.name == PROPERTIES:
        if not is_read(actual):
            raise NotSupported(
                f"The struct {field.name!r} must consist of nullable BOOLEAN, INT, BIGINT, DOUBLE,"
                " STRING and struct fields; for other types use"
                " naksha.spark.features(…, properties=…)",
                field="schema",
            )
        return
    types = [expected.dataType.simpleString()]
    if isinstance(expected.dataType, BinaryType):
        types.append(GeometryType(SRID).simpleString())
    if actual.simpleString() not in types:
        raise InvalidArgument(
            f"The column {field.name!r} must be {' or '.join(types)}, not {actual.simpleString()}",
            field="schema",
        )
    loose = field.nullable and (not isinstance(actual, ArrayType) or actual.containsNull)
    if not loose and expected.nullable:
        raise InvalidArgument(f"The column {field.name!r} must be nullable", field="schema")


def _array(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name == CHANGE:
        actions = batch.column("action")
        places = pc.index_in(actions, pa.array(list(_CHANGES)))
        return pa.array(list(_CHANGES.values())).take(places)
    array = batch.column(field.name)
    if array.type == field.type:
        return array
    if not pa.types.is_struct(field.type):
        return array.cast(field.type)
    if field.name == PROPERTIES:
        return structs_of(array, field.type)
    # GEOMETRY: the struct may be null, but its fields may not.
    srids = pa.repeat(pa.scalar(SRID, pa.int32()), len(array))
    parts = [srids, array.fill_null(b"")]
    return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=array.is_null())
