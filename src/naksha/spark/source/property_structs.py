"""Conversion of JSON properties to structs, with the semantics of Spark's `from_json`.

A value that does not fit the type of its column becomes null, except that a STRING column takes the
JSON of any value. In contrast to the result of `from_json`, Spark pushes filters on the fields of
these structs down to the source.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

_PLAIN: Final = (BooleanType, DoubleType, IntegerType, LongType, StringType)
_raws: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode


def is_read(type_: DataType) -> bool:
    """Whether this module can convert to the type; Spark's `from_json` supports more types."""
    if not isinstance(type_, StructType) or not type_.names:
        return False
    return len(set(type_.names)) == len(type_) and all(
        field.nullable and (isinstance(field.dataType, _PLAIN) or is_read(field.dataType))
        for field in type_
    )


def structs_of(texts: pa.Array, type_: pa.StructType) -> pa.Array:
    """Convert JSON objects to structs."""
    found = _at_once(texts, type_)
    if found is not None:
        return found
    # Some value does not fit its column, but Arrow does not report which one. So each column is
    # tried separately, and only those that fail are converted row by row.
    alone = {field.name: _at_once(texts, pa.struct([field])) for field in type_}
    others = pa.struct([field for field in type_ if alone[field.name] is None])
    read = pa.array([_struct(text.encode(), others) for text in texts.to_pylist()], others)
    columns = {name: read if made is None else made for name, made in alone.items()}
    arrays = [columns[field.name].field(field.name) for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _at_once(texts: pa.Array, type_: pa.StructType) -> pa.Array | None:
    # JSON allows line breaks between tokens only, and storages write none there.
    lines = "\n".join(texts.to_pylist()).encode()
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(type_)), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    arrays = [table.column(field.name).combine_chunks() for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _struct(text: bytes, type_: pa.StructType) -> dict[str, Any]:
    members = _raws(text)
    return {
        field.name: _value(bytes(members[field.name]), field.type)
        for field in type_
        if field.name in members
    }


def _value(text: bytes, type_: pa.DataType) -> Any:
    kind = text[:1]
    if text == b"null":
        return None
    if pa.types.is_string(type_):
        return _text(text) if kind == b'"' else msgspec.json.format(text, indent=-1).decode()
    if pa.types.is_struct(type_):
        return _struct(text, type_) if kind == b"{" else None
    if pa.types.is_boolean(type_):
        return {b"true": True, b"false": False}.get(text)
    return _number(text, type_) if kind in b"-0123456789" else None


def _number(text: bytes, type_: pa.DataType) -> float | int | None:
    if pa.types.is_floating(type_):
        found = float(text)
        return found if math.isfinite(found) else None
    if not text.lstrip(b"-").isdigit():
        return None
    integer = int(text)
    limit = 1 << (type_.bit_width - 1)
    return integer if -limit <= integer < limit else None
