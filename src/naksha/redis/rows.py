"""Binary layout of rows in Redis, with the fields that scripts compare at fixed positions.

Numbers are 8 bytes, big-endian, because scripts compare bytes; Lua numbers have only 53 bits of
precision.

    pointer        created (8), epoch (8), length of target (2), target, previous
    object, head   created_us (8), parts (4), length of token (4, -1: none), token, type
    key of object  id (8), part (4)
"""

from __future__ import annotations

import struct
from typing import Final

from naksha.spi.catalog import ObjectKey, ObjectRow, PointerRow, ScannedObject, ScannedPointer

_POINTER: Final = struct.Struct(">qqH")
_OBJECT: Final = struct.Struct(">qii")
_KEY: Final = struct.Struct(">qi")
_NUMBER: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")


# ---- Pointers --------------------------------------------------------------------------------


def compared(row: PointerRow) -> bytes:
    """Return the prefix of the stored row that a swap compares."""
    return _POINTER.pack(row.created, row.epoch, len(row.target)) + row.target


def of_pointer(row: PointerRow) -> bytes:
    return compared(row) + row.previous


def to_pointer(name: bytes, data: bytes) -> PointerRow:
    created, epoch, length = _POINTER.unpack_from(data)
    end = _POINTER.size + length
    return PointerRow(name.decode(), data[_POINTER.size : end], created, epoch, data[end:])


def to_scanned_pointer(realm: str, name: bytes, data: bytes) -> ScannedPointer:
    return ScannedPointer(realm, name.decode(), _POINTER.unpack_from(data)[0])


# ---- Objects ---------------------------------------------------------------------------------


def of_key(key: ObjectKey) -> bytes:
    return _KEY.pack(*key)


def of_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def of_token(token: str | None) -> bytes:
    """Encode a token as it is stored in a head."""
    if token is None:
        return _LENGTH.pack(-1)
    text = token.encode()
    return _LENGTH.pack(len(text)) + text


def of_head(row: ObjectRow) -> bytes:
    """Encode an object without its value."""
    start = _KEY.pack(row.created_us, row.parts)
    return start + of_token(row.token) + row.type.encode()


def to_object(key: ObjectKey, head: bytes, value: bytes) -> ObjectRow:
    created_us, parts, token, kind = _head(head)
    return ObjectRow(key.id, key.part, parts, kind, value, created_us, token)


def to_scanned_object(realm: str, key: bytes, head: bytes) -> ScannedObject:
    created_us, _, _, kind = _head(head)
    return ScannedObject(realm, ObjectKey(*_KEY.unpack(key)), kind, created_us)


def _head(head: bytes) -> tuple[int, int, str | None, str]:
    created_us, parts, length = _OBJECT.unpack_from(head)
    end = _OBJECT.size + max(length, 0)
    token = None if length < 0 else head[_OBJECT.size : end].decode()
    return created_us, parts, token, head[end:].decode()
