"""Conversion of the columns of a written DataFrame to features (`naksha.spi.arrow.INPUT`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    GeographyType,
    GeometryType,
    IntegralType,
    StringType,
    StructType,
)

from naksha.model.errors import InvalidArgument
from naksha.spi.arrow import INPUT, as_input

SRIDS: Final = (4326, 0)
"""Accepted SRIDs: WGS 84, or unspecified, which means WGS 84."""
_JSON: Final = (
    "a string with a JSON object (naksha.spark.write converts structs, maps and variants)"
)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_tags(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and _is_text(kind.elementType)


COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    "id": (lambda kind: isinstance(kind, StringType | IntegralType), "a string or an integer"),
    "geometry": (
        lambda kind: isinstance(kind, BinaryType | GeometryType | GeographyType),
        "binary (WKB), GEOMETRY or GEOGRAPHY",
    ),
    "properties": (_is_text, _JSON),
    "members": (_is_text, _JSON),
    "tags": (_is_tags, "an array of strings"),
    "crid": (_is_text, "a string"),
}
"""All columns that can be written: a test of their type, and a description of it for messages."""


def check_columns(schema: StructType) -> None:
    """Reject a DataFrame whose columns are not those of features."""
    names = schema.fieldNames()
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InvalidArgument(
            f"Unknown columns cannot be written: {', '.join(map(repr, unknown))}; known columns: "
            f"{', '.join(COLUMNS)}",
            field=unknown[0],
        )
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"The column {name!r} occurs more than once; rename or drop one of them", field=name
            )
    for field in schema.fields:
        fits, expected = COLUMNS[field.name]
        if not fits(field.dataType):
            raise InvalidArgument(
                f"The column {field.name!r} must be {expected}, not "
                f"{field.dataType.simpleString():.200}",
                field=field.name,
            )


def feature_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch of such columns to features."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    geometry = columns.get("geometry")
    if geometry is not None and pa.types.is_struct(geometry.type):
        columns["geometry"] = _wkb(geometry)
    if not columns:
        return pa.RecordBatch.from_pylist([{}] * batch.num_rows, schema=INPUT)
    return as_input(pa.RecordBatch.from_pydict(columns))


def _wkb(geometry: pa.StructArray) -> pa.Array:
    """Extract the WKB of Spark's own geometry types, which must be in degrees."""
    srids = pc.unique(pc.struct_field(geometry, "srid")).to_pylist()
    for srid in srids:
        if srid is not None and srid not in SRIDS:
            raise InvalidArgument(
                f"Geometries must have SRID {SRIDS[0]} (or none), not {srid}; transform them to"
                " longitude and latitude",
                field="geometry",
            )
    return pc.struct_field(geometry, "wkb")
