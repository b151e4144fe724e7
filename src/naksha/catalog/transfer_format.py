"""Stream format of an exported realm.

A stream consists of records: 4 bytes of length, 4 bytes of CRC-32 (of the length and what follows),
both unsigned and big-endian, and that many bytes of MessagePack: an array whose first element is
the record type. The first record is an `ExportHeader`, the last one an `ExportTrailer` with the
numbers of all others and a digest of them, so a stream that is truncated, or in which a part is
lost, duplicated or changed, is rejected. Other versions of the format are rejected by their number.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from naksha.model import limits
from naksha.model.errors import InvalidArgument

FORMAT: Final = "naksha-catalog-realm"
VERSION: Final = 1
_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">II")


class ExportHeader(msgspec.Struct, frozen=True, array_like=True, tag_field="record", tag="header"):
    """Format, version and origin of the stream."""

    format: str
    version: int
    realm: str
    at_us: int
    """When the export began."""


class PointerRecord(
    msgspec.Struct, frozen=True, array_like=True, tag_field="record", tag="pointer"
):
    """A pointer without its epoch, which is that of its realm."""

    name: str
    target: bytes
    created: int
    previous: bytes


class ObjectRecord(msgspec.Struct, frozen=True, array_like=True, tag_field="record", tag="object"):
    """A row of an object without its time, which becomes the time of the import."""

    id: int
    part: int
    parts: int
    type: str
    value: bytes
    token: str | None


class ExportTrailer(
    msgspec.Struct, frozen=True, array_like=True, tag_field="record", tag="trailer"
):
    """Counts and digest of the stream."""

    pointers: int
    objects: int
    digest: bytes
    """BLAKE2b with 32 bytes over the payloads of all records before."""


Record: TypeAlias = ExportHeader | PointerRecord | ObjectRecord | ExportTrailer

_decoder: Final = msgspec.msgpack.Decoder(Record)


class RecordWriter:
    """Encoder of a stream."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=32)
        self._pointers = self._objects = 0

    def record(self, record: ExportHeader | PointerRecord | ObjectRecord) -> bytes:
        payload = msgspec.msgpack.encode(record)
        self._digest.update(payload)
        self._pointers += isinstance(record, PointerRecord)
        self._objects += isinstance(record, ObjectRecord)
        return _framed(payload)

    def trailer(self) -> bytes:
        """Return the end of the stream."""
        trailer = ExportTrailer(self._pointers, self._objects, self._digest.digest())
        return _framed(msgspec.msgpack.encode(trailer))


async def read_records(chunks: AsyncIterable[bytes]) -> AsyncIterator[Record]:
    """Parse the records of a stream, however it is split into chunks.

    The records are known to be complete and correct only once the trailer has been read.

    Raises:
        InvalidArgument: It is not an export, has another version, is damaged, or is truncated.
    """
    digest = hashlib.blake2b(digest_size=32)
    pointers = objects = at = 0
    last: Record | None = None
    async for payload in _payloads(chunks):
        if isinstance(last, ExportTrailer):
            raise _damaged(at, "there is data after its end")
        try:
            record = _decoder.decode(payload)
        except msgspec.MsgspecError as error:
            raise _damaged(at, str(error)) from error
        if last is None:
            _check_header(record)
        elif isinstance(record, ExportHeader):
            raise _damaged(at, "it contains a second header")
        expected = ExportTrailer(pointers, objects, digest.digest())
        if isinstance(record, ExportTrailer) and record != expected:
            raise _damaged(at, "its records do not match the trailer")
        pointers += isinstance(record, PointerRecord)
        objects += isinstance(record, ObjectRecord)
        digest.update(payload)
        yield record
        last = record
        at += _HEAD.size + len(payload)
    if not isinstance(last, ExportTrailer):
        raise _damaged(at, "it ends before the trailer")


async def _payloads(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    at = 0
    async for chunk in chunks:
        buffer += chunk
        begin = 0
        while len(buffer) - begin >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(buffer, begin)
            if length > limits.TRANSFER_RECORD_BYTES_MAX:
                raise _damaged(at, "a record is too long")
            end = begin + _HEAD.size + length
            if len(buffer) < end:
                break
            payload = bytes(buffer[begin + _HEAD.size : end])
            if crc32(payload, crc32(_LENGTH.pack(length))) != checksum:
                raise _damaged(at, "a checksum is wrong")
            yield payload
            at += end - begin
            begin = end
        del buffer[:begin]
    if buffer:
        raise _damaged(at, "it ends inside a record")


def _framed(payload: bytes) -> bytes:
    length = _LENGTH.pack(len(payload))
    return length + _LENGTH.pack(crc32(payload, crc32(length))) + payload


def _check_header(record: Record) -> None:
    if not isinstance(record, ExportHeader) or record.format != FORMAT:
        raise InvalidArgument(
            "The input is not an exported realm; use the stream that an export wrote",
            field="export",
        )
    if record.version != VERSION:
        raise InvalidArgument(
            f"The exported realm has format version {record.version}; this program reads version"
            f" {VERSION}; export the realm again with this release",
            field="export",
        )


def _damaged(at: int, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The exported realm is damaged after byte {at:,}: {why}; export it again", field="export"
    )
