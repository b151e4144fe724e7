"""The Arrow schemas of bulk reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from naksha.model.errors import InvalidArgument

COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("geometry", pa.binary()),  # ISO WKB, 2D or 3D as it came
        pa.field("feature", pa.string(), nullable=False),  # GeoJSON without geometry
        pa.field("properties", pa.string(), nullable=False),  # a JSON object, without namespace
        pa.field("members", pa.string()),  # other members of the feature, a JSON object or null
        pa.field("uuid", pa.string(), nullable=False),
        pa.field("puuid", pa.string()),
        pa.field("muuid", pa.string()),
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("txn_next", pa.int64(), nullable=False),  # 0 where nothing came after it yet
        pa.field("seq_number", pa.int64()),  # of the version that made it, unless the log lost it
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
"""All that can be read of a state in bulk."""


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Some of the columns, in the order in which they are named."""
    names = list(columns)
    for name in names:
        if name not in COLUMNS.names:
            raise InvalidArgument(
                f"There is no column {name!r:.64}; there are: {', '.join(COLUMNS.names)}",
                field="columns",
            )
    if not names or len(set(names)) < len(names):
        raise InvalidArgument("Each column is read once, and at least one", field="columns")
    return pa.schema([COLUMNS.field(name) for name in names])


_USUAL: Final = (
    *("id", "geometry", "feature", "uuid", "txn", "version", "action", "author", "app_id"),
    *("created_at", "updated_at", "qrid", "west", "south", "east", "north"),
)
STATES: Final = schema_of(_USUAL)
"""What is read unless somebody says which columns."""

GIVEN: Final = pa.schema(
    [
        pa.field("id", pa.string()),  # one is made up where it is null
        pa.field("geometry", pa.binary()),  # WKB, 2D or 3D
        pa.field("properties", pa.string()),  # a JSON object; null for an empty one
        pa.field("members", pa.string()),  # other members of the feature, a JSON object or null
        pa.field("tags", pa.list_(pa.string())),
        pa.field("crid", pa.string()),
    ]
)
"""Features that are brought to a storage in bulk (`naksha.spi.staging`)."""


def as_given(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with just the columns of GIVEN. Those that are not there are null; text and bytes
    may come in any of Arrow's forms; a column that GIVEN does not have would be lost, so it is
    refused."""
    unknown = [name for name in batch.schema.names if name not in GIVEN.names]
    if unknown or len(set(batch.schema.names)) < batch.num_columns:
        names = ", ".join(GIVEN.names)
        message = f"Features come in the columns {names}, each once; not {batch.schema.names}"
        raise InvalidArgument(message, field="batch")
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in GIVEN], schema=GIVEN)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        message = f"must be {field.type}, not {column.type}: {error}"
        raise InvalidArgument(message, field=field.name) from error
