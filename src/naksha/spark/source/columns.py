"""The columns of features on Spark: which there are, and how Arrow batches get their types."""

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
"""What became of a feature: created, updated or deleted. Only streams have it."""
_CHANGES: Final = {"CREATE": "created", "UPDATE": "updated", "DELETE": "deleted"}
READ: Final = tuple(name for name in COLUMNS.names if name not in ("feature", "seq_number"))
"""The columns of a table, unless a schema says which."""
_NOT_IN_CHANGES: Final = ("feature", "txn_next")
"""What is said there was not known when a change was made."""
CHANGES: Final = (CHANGE, "seq_number", *(name for name in READ if name not in _NOT_IN_CHANGES))
"""The columns of a stream, unless a schema says which."""


def schema_of(names: Iterable[str], form: GeometryForm = GeometryForm.WKB) -> StructType:
    """Some columns, as a table has them that nobody described otherwise."""
    return StructType([_field(name, form) for name in names])


def schema_in(text: str) -> StructType:
    """A schema as JSON, as Spark itself writes it."""
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise InvalidArgument(f"This is no schema as JSON: {error}", field="columns") from error


class Projection:
    """What a schema takes of a storage, and how."""

    def __init__(self, schema: StructType, known: Iterable[str]) -> None:
        for field in schema:
            _check(field, tuple(known))
        if len(set(schema.names)) < len(schema) or not schema.names:
            raise InvalidArgument("Each column is read once, and at least one", field="schema")
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        names = ("action" if name == CHANGE else name for name in schema.names)
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(names))
        """The columns that the storage is asked for."""

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the storage as Spark wants it."""
        arrays = [_array(batch, field) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _field(name: str, form: GeometryForm) -> StructField:
    if name == CHANGE:
        return StructField(name, StringType(), nullable=False)
    if name not in COLUMNS.names:
        raise InvalidArgument(
            f"There is no column {name!r:.64}; there are: {', '.join(COLUMNS.names)}",
            field="columns",
        )
    field = COLUMNS.field(name)
    type_: DataType = from_arrow_type(field.type)
    if name == "geometry" and form is GeometryForm.GEOMETRY:
        type_ = GeometryType(SRID)
    return StructField(name, type_, nullable=field.nullable)


def _check(field: StructField, known: tuple[str, ...]) -> None:
    """Refuse what a column cannot be; it may always be said that it could be null."""
    if field.name not in known:
        raise InvalidArgument(
            f"There is no column {field.name!r:.64} here; there are: {', '.join(known)}",
            field="schema",
        )
    wanted, given = _field(field.name, GeometryForm.WKB), field.dataType
    if isinstance(given, VariantType):
        raise NotSupported(
            f"{field.name} comes as JSON text; naksha.spark.features(…, properties="
            '"variant") makes variants of it, as does Spark\'s parse_json',
            field="schema",
        )
    if isinstance(given, StructType) and field.name == PROPERTIES:
        if not is_read(given):
            raise NotSupported(
                f"{field.name} are read as structs of BOOLEAN, INT, BIGINT, DOUBLE, STRING and"
                " such structs, all of which can be null; naksha.spark.features(…, properties=…)"
                " takes other types",
                field="schema",
            )
        return
    types = [wanted.dataType.simpleString()]
    if isinstance(wanted.dataType, BinaryType):
        types.append(GeometryType(SRID).simpleString())
    if given.simpleString() not in types:
        raise InvalidArgument(
            f"The column {field.name} is {' or '.join(types)}, not {given.simpleString()}",
            field="schema",
        )
    loose = field.nullable and (not isinstance(given, ArrayType) or given.containsNull)
    if not loose and wanted.nullable:
        raise InvalidArgument(f"The column {field.name} can be null", field="schema")


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
    # GEOMETRY: null as a whole, while its parts never are.
    srids = pa.repeat(pa.scalar(SRID, pa.int32()), len(array))
    parts = [srids, array.fill_null(b"")]
    return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=array.is_null())
