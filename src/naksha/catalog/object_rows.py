"""Objects as database rows: large objects are split into parts and joined on reading."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from naksha.catalog.objects import (
    Object,
    ObjectRef,
    check_type_id,
    decode,
    encode,
    type_id,
)
from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, StorageCorrupt
from naksha.spi.catalog import ObjectKey, ObjectRow

Rows = Mapping[ObjectKey, ObjectRow]


def rows_of(thing: Object[Any], created_us: int) -> list[ObjectRow]:
    """Return the rows of a plain write, in as many parts as its size requires."""
    check_id(thing.id)
    data = encode(thing.value)
    if len(data) > limits.CATALOG_OBJECT_BYTES_MAX:
        raise LimitExceeded(
            f"Object {thing.id} has {len(data)} bytes, but at most "
            f"{limits.CATALOG_OBJECT_BYTES_MAX} are allowed; split it"
        )
    size = limits.CATALOG_ROW_BYTES_MAX
    parts = max(1, -(-len(data) // size))
    kind = type_id(thing.value)
    check_type_id(kind)
    return [
        ObjectRow(thing.id, part, parts, kind, data[part * size : (part + 1) * size], created_us)
        for part in range(parts)
    ]


def conditional_row(id: int, value: object, created_us: int, token: str | None = None) -> ObjectRow:
    """Return the single row of a conditional write, with a new token if none is given."""
    check_id(id)
    kind = type_id(value)
    check_type_id(kind)
    data = encode(value)
    if len(data) > limits.CATALOG_ROW_BYTES_MAX:
        raise LimitExceeded(
            f"Object {id} has {len(data)} bytes, but a conditional write allows at most "
            f"{limits.CATALOG_ROW_BYTES_MAX}; split the object, or write it unconditionally"
        )
    return ObjectRow(id, 0, 1, kind, data, created_us, token or secrets.token_hex(8))


def hinted_keys(ref: ObjectRef) -> list[ObjectKey]:
    """Return the keys of the rows that a reference announces; at least the first one."""
    return [ObjectKey(ref.id, part) for part in range(max(1, ref.parts))]


def missing_keys(id: int, rows: Rows) -> list[ObjectKey]:
    """Return the keys of the rows of an object beyond those that were fetched."""
    first = rows.get(ObjectKey(id))
    if first is None:
        return []
    keys = (ObjectKey(id, part) for part in range(first.parts))
    return [key for key in keys if key not in rows]


def assembled(ref: ObjectRef, rows: Rows) -> Object[Any] | None:
    """Return the object of a reference, or None if it does not exist.

    Raises:
        InvalidArgument: Its type differs from the type in the reference.
        StorageCorrupt: A part of it is missing.
    """
    first = rows.get(ObjectKey(ref.id))
    if first is None:
        return None
    if first.type != ref.type:
        raise InvalidArgument(
            f"Object {ref.id} is of type {first.type!r}, but is read as {ref.type!r}; correct the "
            "type in the reference",
            field="type",
        )
    found = [rows.get(ObjectKey(ref.id, part)) for part in range(first.parts)]
    parts = [row.value for row in found if row is not None and row.type == first.type]
    if len(parts) != first.parts:
        raise StorageCorrupt(
            f"Object {ref.id} is damaged: only {len(parts)} of its {first.parts} parts were "
            "found; run `naksha doctor`"
        )
    value = decode(first.type, parts[0] if first.parts == 1 else b"".join(parts))
    return Object(ref.id, value, first.token, first.parts, first.created_us)


def check_id(id: int) -> None:
    """Raise InvalidArgument unless a number is a valid id."""
    if not 0 <= id <= limits.INT8_MAX:
        raise InvalidArgument(
            f"{id} is not a valid object id; it must be an integer from 0 to 2^63 - 1", field="id"
        )
