"""The Arrow schema of bulk reads."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

STATES: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("geometry", pa.binary()),  # WKB, 2D or 3D as it came
        pa.field("feature", pa.string(), nullable=False),  # GeoJSON without geometry
        pa.field("uuid", pa.string(), nullable=False),
        pa.field("txn", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("author", pa.string()),
        pa.field("app_id", pa.string(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
        pa.field("updated_at", pa.int64(), nullable=False),
        pa.field("qrid", pa.string()),
        pa.field("west", pa.float64()),
        pa.field("south", pa.float64()),
        pa.field("east", pa.float64()),
        pa.field("north", pa.float64()),
    ]
)

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
