"""Arrow schemas of bulk reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from naksha.model.errors import InvalidArgument

COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("geometry", pa.binary()),  # ISO WKB, 2D or 3D as written
        pa.field("feature", pa.string(), nullable=False),  # GeoJSON without geometry
        pa.field("properties", pa.string(), nullable=False),  # a JSON object, without namespace
        pa.field("members", pa.string()),  # other members of the feature, a JSON object or null
        pa.field("uuid", pa.string(), nullable=False),
        pa.field("puuid", pa.string()),
        pa.field("muuid", pa.string()),
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("txn_next", pa.int64(), nullable=False),  # 0 for a current state
        pa.field(
            "seq_number", pa.int64()
        ),  # of the version that wrote it; null if expired from the log
        pa.field("version", pa.int64(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("author", pa.string()),
        pa.field("app_id", pa.string(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),  # this and the next: epoch milliseconds
        pa.field("updated_at", pa.int64(), nullable=False),
        pa.field("rtcts", pa.int64(), nullable=False),
        pa.field("rtuts", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("crid", pa.string()),
        pa.field("qrid", pa.string()),
        pa.field("mrid", pa.string()),
        pa.field("west", pa.float64()),
        pa.field("south", pa.float64()),
        pa.field("east", pa.float64()),
        pa.field("north", pa.float64()),
    ]
)
"""All columns of a bulk read."""


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of some of the columns, in the given order."""
    names = list(columns)
    for name in names:
        if name not in COLUMNS.names:
            raise InvalidArgument(
                f"Column {name!r:.64} does not exist; columns are: {', '.join(COLUMNS.names)}",
                field="columns",
            )
    if not names or len(set(names)) < len(names):
        raise InvalidArgument(
            "columns must name at least one column, and each only once, not "
            f"{', '.join(names) or 'none'}",
            field="columns",
        )
    return pa.schema([COLUMNS.field(name) for name in names])


_USUAL: Final = (
    *("id", "geometry", "feature", "uuid", "txn", "version", "action", "author", "app_id"),
    *("created_at", "updated_at", "qrid", "west", "south", "east", "north"),
)
STATES: Final = schema_of(_USUAL)
"""Default columns of a bulk read."""

INPUT: Final = pa.schema(
    [
        pa.field("id", pa.string()),  # generated where null
        pa.field("geometry", pa.binary()),  # WKB, 2D or 3D
        pa.field("properties", pa.string()),  # a JSON object; null for an empty one
        pa.field("members", pa.string()),  # other members of the feature, a JSON object or null
        pa.field("tags", pa.list_(pa.string())),
        pa.field("crid", pa.string()),
    ]
)
"""Columns of features that are written in bulk (`naksha.spi.staging`)."""


def as_input(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to the columns of GIVEN.

    Missing columns become null; text and binary columns may have any of Arrow's types. A column
    that GIVEN does not have is refused, because its values would be lost.
    """
    unknown = [name for name in batch.schema.names if name not in INPUT.names]
    if unknown or len(set(batch.schema.names)) < batch.num_columns:
        names = ", ".join(INPUT.names)
        message = (
            f"The columns of features must be {names}, each at most once, not "
            f"{', '.join(batch.schema.names)}"
        )
        raise InvalidArgument(message, field="batch")
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in INPUT], schema=INPUT)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        message = (
            f"The column {field.name} must be of the Arrow type {field.type}, not {column.type}: "
            f"{error}"
        )
        raise InvalidArgument(message, field=field.name) from error
