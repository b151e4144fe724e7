"""The columns of a feature on Spark, and what they are in Arrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from naksha.spi.arrow import STATES

FEATURES: Final[StructType] = from_arrow_schema(STATES)
"""All columns that can be read."""


def arrow_of(schema: StructType) -> pa.Schema:
    """What Spark expects of the batches of a schema."""
    return to_arrow_schema(schema, timezone="UTC")
