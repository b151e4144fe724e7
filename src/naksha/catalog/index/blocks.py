"""Blocks: a few sorted entries, stored without the common prefixes of their keys.

The bytes of an entry are: the number of bytes that its key shares with the key before it, the
number of bytes that follow, those bytes; the length of its value plus one, the value. A length of 0
there is a tombstone. All three numbers are varints, seven bits a byte, the lowest first. The first
key of a block shares nothing, so a block can be read without the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from naksha.catalog.index.limits import IndexLimits
from naksha.model.errors import StorageCorrupt

Entry: TypeAlias = tuple[bytes, bytes | None]
"""A key with its value; None is a tombstone."""

_SMALL: Final = tuple(bytes([number]) for number in range(128))


class Block(NamedTuple):
    """A block as it is stored."""

    data: bytes
    crc: int
    first: bytes
    """Its first key."""


def varint(number: int) -> bytes:
    if number < 128:
        return _SMALL[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    number = shift = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
    return number | byte << shift, at + 1


def shared_length(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix."""
    length = min(len(one), len(other))
    # Comparing the bytes as numbers needs no loop in Python.
    differing = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    return length - (differing.bit_length() + 7 >> 3)


def _add_entry(out: bytearray, before: bytes, key: bytes, value: bytes | None) -> None:
    shared = shared_length(before, key)
    length = len(key) - shared
    if shared < 128 and length < 128:
        out.append(shared)
        out.append(length)
    else:
        out += varint(shared) + varint(length)
    out += key[shared:]
    if value is None:
        out.append(0)
        return
    size = len(value) + 1
    if size < 128:
        out.append(size)
    else:
        out += varint(size)
    out += value


def _block(out: bytearray) -> Block:
    data = bytes(out)
    return Block(data, crc32(data), first_key(data, 0))


def encode_block(entries: Iterable[Entry]) -> Block:
    before = b""
    out = bytearray()
    for key, value in entries:
        _add_entry(out, before, key, value)
        before = key
    return _block(out)


def read_block(data: bytes, at: int, end: int) -> Iterator[Entry]:
    """Iterate over the entries of the block between two offsets of `data`."""
    key = b""
    try:
        while at < end:
            if (shared := data[at]) > 127:
                shared, at = read_varint(data, at)
            else:
                at += 1
            if (length := data[at]) > 127:
                length, at = read_varint(data, at)
            else:
                at += 1
            stop = at + length
            key = key[:shared] + data[at:stop]
            if (length := data[stop]) > 127:
                length, at = read_varint(data, stop)
            else:
                at = stop + 1
            if length:
                stop = at + length - 1
                yield key, data[at:stop]
                at = stop
            else:
                yield key, None
    except IndexError:
        at = -1
    if at != end:
        raise StorageCorrupt("An index block is damaged: it ends inside an entry")


def first_key(data: bytes, at: int) -> bytes:
    """Return the first key of the block at an offset."""
    try:
        length, at = read_varint(data, at + 1)
    except IndexError as error:
        raise StorageCorrupt("An index block is damaged: it ends inside its first key") from error
    return data[at : at + length]


def decode_block(block: Block) -> list[Entry]:
    return list(read_block(block.data, 0, len(block.data)))


def is_small(entries: Sequence[Entry], limits: IndexLimits) -> bool:
    """Return whether entries are too few for their own block, if there are others beside them."""
    if len(entries) * 2 >= limits.block_entries:
        return False
    size = sum(len(key) + len(value or b"") for key, value in entries)
    return size * 2 < limits.block_bytes


def cut(entries: Sequence[Entry], limits: IndexLimits) -> Iterator[Block]:
    """Split entries into blocks: one, or several of similar size if that would be too large."""
    if not entries:
        return
    total = len(entries)
    count = total // limits.block_entries if total > 2 * limits.block_entries else 1
    for number in range(count):
        piece = entries[number * total // count : (number + 1) * total // count]
        block = encode_block(piece)
        if len(block.data) > 2 * limits.block_bytes:
            yield from _cut_by_bytes(piece, limits.block_bytes)
        else:
            yield block


def _cut_by_bytes(entries: Iterable[Entry], size_wanted: int) -> Iterator[Block]:
    """Split entries into blocks of about the wanted size.

    Only a block with a single entry may be larger than twice that.
    """
    before = b""
    out = bytearray()
    for key, value in entries:
        size = len(out)
        _add_entry(out, before, key, value)
        if size and (size >= size_wanted or len(out) > 2 * size_wanted):
            yield _block(out[:size])
            out.clear()
            _add_entry(out, b"", key, value)
        before = key
    yield _block(out)
