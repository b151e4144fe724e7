"""Conversion of properties to typed columns.

A property that is a boolean, an integer, a number or a string in all features becomes a column of
that type. Any other property (an object, an array, or a mixture of types) becomes a column of JSON.
So does a property whose numbers do not fit any column exactly: integers of more than 64 bits, or
integers of more than 53 bits mixed with other numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from naksha.model import limits
from naksha.model.errors import LimitExceeded


class ColumnKind(StrEnum):
    """Type of a column by its name on Spark; JSON for values without a common type."""

    BOOLEAN = "boolean"
    INTEGER = "bigint"
    NUMBER = "double"
    TEXT = "string"
    JSON = "json"
    NOTHING = "void"
    """All values are null."""
    LONG = "long"
    """Of a value only: an integer too large to be exact as a double."""


class TypedColumn(msgspec.Struct, frozen=True):
    """Property that becomes a column; `name` differs from the property if it is already taken."""

    property: str
    name: str
    kind: ColumnKind


_ARROW: Final = {
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.NUMBER: pa.float64(),
}
_EXACT: Final = 2**53
"""All integers up to this one are exact as doubles."""
_WHOLE: Final = "decimal(38,0)"
_KINDS: Final = (
    ("BOOLEAN", ColumnKind.BOOLEAN),
    ("BIGINT", ColumnKind.INTEGER),
    ("DECIMAL", ColumnKind.NUMBER),
    ("DOUBLE", ColumnKind.NUMBER),
    ("STRING", ColumnKind.TEXT),
    ("VOID", ColumnKind.NOTHING),
)


def typed_columns(properties: DataFrame, taken: Collection[str]) -> list[TypedColumn]:
    """Determine the columns of all properties, sorted by name.

    `properties` has a single column with JSON.
    """
    members = properties.select(f.explode(_members(properties.columns[0])).alias("name", "value"))
    kinds = members.groupBy("name").agg(f.collect_set(_kind(f.col("value"))).alias("kinds"))
    found = kinds.limit(limits.EXPORT_COLUMNS_MAX + 1).collect()
    if len(found) > limits.EXPORT_COLUMNS_MAX:
        raise LimitExceeded(
            f"The features have more than {limits.EXPORT_COLUMNS_MAX} different properties; "
            "export them as JSON",
            field="properties",
        )
    rows = sorted((row.name, one_kind(set(map(ColumnKind, row.kinds)))) for row in found)
    used = {name.lower() for name in taken}
    columns = []
    for name, kind in rows:
        unique = _unique(name, used)
        used.add(unique.lower())
        columns.append(TypedColumn(name, unique, kind))
    return columns


def one_kind(kinds: set[ColumnKind]) -> ColumnKind:
    """Return the type that fits values of all kinds."""
    given = kinds - {ColumnKind.NOTHING}
    if given in ({ColumnKind.LONG}, {ColumnKind.LONG, ColumnKind.INTEGER}):
        return ColumnKind.INTEGER
    if given == {ColumnKind.INTEGER, ColumnKind.NUMBER}:
        return ColumnKind.NUMBER
    # In a column of JSON, null differs from a missing property.
    return given.pop() if len(given) == 1 else ColumnKind.JSON


def values(json: str, columns: Sequence[TypedColumn]) -> list[Column]:
    """Build the columns from a column of JSON, named by their positions."""
    members = _members(json)
    return [
        _value(f.element_at(members, f.lit(column.property)), column.kind).alias(position(n))
        for n, column in enumerate(columns)
    ]


def position(n: int) -> str:
    """Return the name of the n-th column on Spark, where names are case-insensitive."""
    return f"property_{n}"


def arrow_type(kind: ColumnKind) -> pa.DataType:
    """Return the type of a column in a file."""
    return _ARROW.get(kind, pa.string())


def _members(json: str) -> Column:
    return f.parse_json(f.col(json)).cast("map<string,variant>")


def _kind(value: Column) -> Column:
    type_ = f.schema_of_variant(value)
    found = f.lit(ColumnKind.JSON.value)
    for prefix, kind in _KINDS:
        found = f.when(type_.startswith(prefix), f.lit(kind.value)).otherwise(found)
    is_long = f.abs(f.try_variant_get(value, "$", _WHOLE)) > _EXACT
    return (
        f.when(type_.startswith("BIGINT") & is_long, f.lit(ColumnKind.LONG.value))
        .when(type_.startswith("DECIMAL") & is_long, f.lit(ColumnKind.JSON.value))
        .otherwise(found)
    )


def _value(value: Column, kind: ColumnKind) -> Column:
    if kind in (ColumnKind.JSON, ColumnKind.NOTHING):
        return f.to_json(value)
    return f.variant_get(value, "$", kind.value)


def _unique(name: str, used: Collection[str]) -> str:
    unique = name
    while unique.lower() in used:
        unique = f"properties.{unique}"
    return unique
