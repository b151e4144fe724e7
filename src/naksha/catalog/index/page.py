"""Pages: a sorted map from key to value in bytes, read without decoding unneeded entries.

Version 1 of the format, all numbers unsigned and big-endian:

    1 byte            the version, 1
    4 bytes           the number of blocks, n
    n times 4 bytes   where each block ends, counted from where the first one begins
    n times 4 bytes   the CRC-32 of each block
    4 bytes           the CRC-32 of everything before
    blocks            see `naksha.catalog.index.blocks`

Every byte is covered by a checksum that is verified before the byte is used: that of the table when
the page is opened, that of a block when it is first read. Keys are ordered by their bytes.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final
from zlib import crc32

from naksha.catalog.index.blocks import MISSING, Block, Entry, Missing, first_key, read_block
from naksha.model.errors import StorageCorrupt

VERSION: Final = 1
_DAMAGED: Final = "A page of a catalog index is damaged: {}; restore the catalog from a backup"
_first_of: Final = attrgetter("first")
_HEAD: Final = struct.Struct(">BI")
_CRC: Final = struct.Struct(">I")
_TABLE_ENTRY_BYTES: Final = 8


def page_size(blocks: Sequence[Block]) -> int:
    """Return the length of the page that these blocks make."""
    table = _HEAD.size + _CRC.size + _TABLE_ENTRY_BYTES * len(blocks)
    return table + sum(len(block.data) for block in blocks)


def block_size(block: Block) -> int:
    """Return what a block adds to the length of its page."""
    return _TABLE_ENTRY_BYTES + len(block.data)


class IndexPage:
    """An immutable page."""

    __slots__ = ("_begin", "_blocks", "_bounds", "_checked", "_crcs", "data")

    def __init__(self, data: bytes) -> None:
        if not data or data[0] != VERSION:
            found = f"version {data[0]}" if data else "nothing"
            raise StorageCorrupt(
                f"A page of a catalog index must have version {VERSION}, not {found}; restore the "
                "catalog from a backup"
            )
        count = _HEAD.unpack_from(data)[1] if len(data) >= _HEAD.size else 0
        table = _HEAD.size + _TABLE_ENTRY_BYTES * count
        if len(data) < table + _CRC.size or _CRC.unpack_from(data, table)[0] != crc32(data[:table]):
            raise StorageCorrupt(_DAMAGED.format("its checksum is wrong"))
        numbers = struct.unpack_from(f">{2 * count}I", data, _HEAD.size)
        self._set(data, table, numbers[:count], numbers[count:])
        if self._begin + self._bounds[-1] != len(data):
            raise StorageCorrupt(_DAMAGED.format("its length is wrong"))

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> IndexPage:
        """Return the page that these blocks make."""
        count = len(blocks)
        parts = [block.data for block in blocks]
        ends = list(accumulate(map(len, parts)))
        crcs = [block.crc for block in blocks]
        head = struct.pack(f">BI{2 * count}I", VERSION, count, *ends, *crcs)
        page = cls.__new__(cls)
        page._set(b"".join((head, _CRC.pack(crc32(head)), *parts)), len(head), ends, crcs)
        page._checked[:] = b"\1" * count
        page._blocks = blocks
        return page

    def _set(self, data: bytes, table: int, ends: Sequence[int], crcs: Sequence[int]) -> None:
        self.data = data
        self._begin = table + _CRC.size
        self._bounds = (0, *ends)
        self._crcs = crcs
        self._checked = bytearray(len(crcs))
        self._blocks: Sequence[Block] | None = None

    @property
    def block_count(self) -> int:
        return len(self._crcs)

    def blocks(self) -> Sequence[Block]:
        """Return the stored blocks."""
        if self._blocks is None:
            spans = map(self._span, range(self.block_count))
            self._blocks = [
                Block(self.data[begin:end], crc, first_key(self.data, begin))
                for (begin, end), crc in zip(spans, self._crcs, strict=True)
            ]
        return self._blocks

    def entries(self, number: int) -> Iterator[Entry]:
        """Iterate over the entries of a block."""
        return ((key, value) for key, value, _ in self._read(number))

    def first_key(self, number: int) -> bytes:
        """Return the first key of a block."""
        return first_key(self.data, self._span(number)[0])

    def block_of(self, key: bytes) -> int:
        """Return the number of the only block that may hold the key, or -1.

        It is the last block that does not begin above the key; -1 means that the key is below all
        blocks.
        """
        if self._blocks is not None:
            return bisect_right(self._blocks, key, key=_first_of) - 1
        return bisect_right(range(self.block_count), key, key=self.first_key) - 1

    def find(self, key: bytes) -> bytes | Missing | None:
        """Return the value of the key; None is a tombstone."""
        number = self.block_of(key)
        if number >= 0 and self._blocks is not None:
            return self._blocks[number].find(key)
        if number >= 0:
            for found, value, _ in self._read(number):
                if found >= key:
                    return value if found == key else MISSING
        return MISSING

    def floor(self, key: bytes) -> Entry | None:
        """Return the entry with the greatest key that is not above the given one."""
        number = self.block_of(key)
        best = None
        if number >= 0 and self._blocks is not None:
            return self._blocks[number].floor(key)
        if number >= 0:
            for found, value, _ in self._read(number):
                if found > key:
                    break
                best = (found, value)
        return best

    def scan(
        self, lower: bytes = b"", upper: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Entry]:
        """Iterate over the entries from `lower` on and below `upper`."""
        begin = max(0, self.block_of(lower))
        end = self.block_count if upper is None else self.block_of(upper) + 1
        numbers = range(begin, end)
        for number in reversed(numbers) if reverse else numbers:
            entries = list(self.entries(number))
            for entry in reversed(entries) if reverse else entries:
                if entry[0] >= lower and (upper is None or entry[0] < upper):
                    yield entry

    def _read(self, number: int) -> Iterator[tuple[bytes, bytes | None, int]]:
        return read_block(self.data, *self._span(number))

    def _span(self, number: int) -> tuple[int, int]:
        """Verify the checksum of a block and return its begin and end."""
        begin, end = self._begin + self._bounds[number], self._begin + self._bounds[number + 1]
        if not self._checked[number]:
            if crc32(self.data[begin:end]) != self._crcs[number]:
                raise StorageCorrupt(_DAMAGED.format(f"the checksum of block {number} is wrong"))
            self._checked[number] = 1
        return begin, end


EMPTY: Final = IndexPage.of([])
