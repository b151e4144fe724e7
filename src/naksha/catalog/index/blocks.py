"""Blocks: a few sorted entries, stored without the common prefixes of their keys.

The bytes of an entry are: the number of bytes that its key shares with the key before it, the
number of bytes that follow, those bytes; the length of its value plus one, the value. A length of 0
there is a tombstone. All three numbers are varints, seven bits a byte, the lowest first. The first
key of a block shares nothing, so a block can be read without the one before it.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from naksha.catalog.index.limits import IndexLimits
from naksha.model.errors import StorageCorrupt

Entry: TypeAlias = tuple[bytes, bytes | None]
"""A key with its value; None is a tombstone."""


class Missing(enum.Enum):
    """Value of an absent key, which is neither bytes nor a tombstone."""

    MISSING = 0


MISSING: Final = Missing.MISSING

_DAMAGED: Final = (
    "A block of a catalog index is damaged: it ends inside {}; restore the catalog from a backup"
)
_SMALL: Final = tuple(bytes([number]) for number in range(128))


class BlockEntries(NamedTuple):
    """The entries of a block, in columns."""

    keys: list[bytes]
    values: list[bytes | None]
    sizes: list[int]
    """The encoded length of each entry."""


class Block:
    """A block as it is stored; its entries are decoded once, when they are first needed."""

    __slots__ = ("_decoded", "crc", "data", "first")

    def __init__(
        self, data: bytes, crc: int, first: bytes, decoded: BlockEntries | None = None
    ) -> None:
        self.data: Final = data
        self.crc: Final = crc
        self.first: Final = first
        """Its first key."""
        self._decoded = decoded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    @property
    def decoded(self) -> BlockEntries:
        """Its entries, which must not be modified."""
        if self._decoded is None:
            self._decoded = _decoded(self.data)
        return self._decoded

    def find(self, key: bytes) -> bytes | Missing | None:
        """Return the value of the key; None is a tombstone."""
        keys, values, _ = self.decoded
        at = bisect_left(keys, key)
        return values[at] if at < len(keys) and keys[at] == key else MISSING

    def floor(self, key: bytes) -> Entry | None:
        """Return the entry with the greatest key that is not above the given one."""
        keys, values, _ = self.decoded
        at = bisect_right(keys, key) - 1
        return (keys[at], values[at]) if at >= 0 else None

    def with_changes(self, changes: Iterable[tuple[bytes, bytes | Missing | None]]) -> Block | None:
        """Return the block after changes, for which only the changed entries are encoded again.

        None if no entry is left.
        """
        data, (keys, values, sizes) = self.data, self.decoded
        keys, values, sizes = keys.copy(), values.copy(), sizes.copy()
        for key, value in changes:
            at = bisect_left(keys, key)
            is_there = at < len(keys) and keys[at] == key
            if isinstance(value, Missing):
                if not is_there:
                    continue
                old = slice(at, at + 1)
                added: tuple[Entry, ...] = ()
            else:
                old = slice(at, at + is_there)
                added = ((key, value),)
            # The key after a new or removed one is stored relative to another one than before.
            end = old.stop + 1 if is_there != bool(added) and old.stop < len(keys) else old.stop
            before = keys[at - 1] if at else b""
            again = [*added, *zip(keys[old.stop : end], values[old.stop : end], strict=True)]
            new, new_sizes = _encoded(again, before)
            begin = sum(sizes[:at])
            data = b"".join((data[:begin], new, data[begin + sum(sizes[at:end]) :]))
            keys[old] = [entry[0] for entry in added]
            values[old] = [entry[1] for entry in added]
            sizes[at:end] = new_sizes
        if not keys:
            return None
        return Block(data, crc32(data), keys[0], BlockEntries(keys, values, sizes))


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


def _encoded(entries: Iterable[Entry], before: bytes = b"") -> tuple[bytearray, list[int]]:
    """Return entries that follow a key as bytes, with the length of each."""
    out = bytearray()
    sizes = []
    end = 0
    for key, value in entries:
        _add_entry(out, before, key, value)
        before = key
        begin, end = end, len(out)
        sizes.append(end - begin)
    return out, sizes


def _block(out: bytearray) -> Block:
    data = bytes(out)
    return Block(data, crc32(data), first_key(data, 0))


def encode_block(entries: Sequence[Entry]) -> Block:
    out, sizes = _encoded(entries)
    data = bytes(out)
    decoded = BlockEntries([key for key, _ in entries], [value for _, value in entries], sizes)
    return Block(data, crc32(data), decoded.keys[0], decoded)


def read_block(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Iterate over the entries of the block between two offsets, with the offset after each."""
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
                yield key, data[at:stop], stop
                at = stop
            else:
                yield key, None, at
    except IndexError:
        at = -1
    if at != end:
        raise StorageCorrupt(_DAMAGED.format("an entry"))


def first_key(data: bytes, at: int) -> bytes:
    """Return the first key of the block at an offset."""
    try:
        length, at = read_varint(data, at + 1)
    except IndexError as error:
        raise StorageCorrupt(_DAMAGED.format("its first key")) from error
    return data[at : at + length]


def _decoded(data: bytes) -> BlockEntries:
    keys, values, ends = [], [], [0]
    for key, value, end in read_block(data, 0, len(data)):
        keys.append(key)
        values.append(value)
        ends.append(end)
    return BlockEntries(keys, values, list(map(sub, ends[1:], ends)))


def decode_block(block: Block) -> list[Entry]:
    keys, values, _ = block.decoded
    return list(zip(keys, values, strict=True))


def is_small(entries: Sequence[Entry], limits: IndexLimits) -> bool:
    """Return whether entries are too few for their own block, if there are others beside them."""
    if len(entries) * 2 >= limits.block_entries:
        return False
    size = sum(len(key) + len(value or b"") for key, value in entries)
    return size * 2 < limits.block_bytes


def is_cut(block: Block, limits: IndexLimits) -> bool:
    """Return whether `cut` would split the entries of a block."""
    is_long = len(block.decoded.keys) > 2 * limits.block_entries
    return is_long or len(block.data) > 2 * limits.block_bytes


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
