"""Changes of a page.

Only the blocks that hold a changed key are decoded; all others are copied byte for byte, so
changing one key of a thousand costs no more than one of thirty. In a block with few changes, only
the changed entries are encoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from naksha.catalog.index.blocks import Block, Entry, Missing, cut, decode_block, is_cut, is_small
from naksha.catalog.index.limits import IndexLimits
from naksha.catalog.index.page import IndexPage, block_size, page_size

Change: TypeAlias = tuple[bytes, bytes | Missing | None]
"""A key and its new value: bytes, None for a tombstone, MISSING to remove the entry."""

_FEW: Final = 4
"""Number of changes of one block up to which editing it is cheaper than encoding it again."""


def changed(page: IndexPage, changes: Sequence[Change], limits: IndexLimits) -> list[Block]:
    """Return the blocks of the page after the changes, which must be sorted by key."""
    editor = _Editor(page, limits)
    for number, group in _by_block(page, changes):
        editor.change(number, group)
    return editor.finish()


def split(blocks: Sequence[Block], limits: IndexLimits) -> list[list[Block]]:
    """Distribute the blocks of a page over pages that are not too large.

    Only a single entry that is too large makes a page that is too large.
    """
    left = page_size(blocks)
    if left <= limits.stripe_bytes:
        return [list(blocks)]
    size, wanted = page_size([]), _even(left, limits.stripe_bytes)
    pages: list[list[Block]] = [[]]
    for block in _divisible(blocks, limits):
        if pages[-1] and (size >= wanted or size + block_size(block) > limits.stripe_bytes):
            # Blocks never fill a page exactly, so distribute the rest evenly again for each page.
            left -= size
            size, wanted = page_size([]), _even(left, limits.stripe_bytes)
            pages.append([])
        pages[-1].append(block)
        size += block_size(block)
    return pages


def _even(total: int, largest: int) -> float:
    """Return the size of the fewest equal parts that are not larger than `largest`."""
    return total / max(1, -(-total // largest))


def _divisible(blocks: Iterable[Block], limits: IndexLimits) -> Iterator[Block]:
    """Split blocks that are larger than a stripe, which were made under other limits."""
    for block in blocks:
        if page_size([block]) > limits.stripe_bytes:
            yield from cut(decode_block(block), limits)
        else:
            yield block


def _by_block(page: IndexPage, changes: Sequence[Change]) -> Iterator[tuple[int, list[Change]]]:
    """Group the changes by the number of their block.

    Changes below the first block belong to the first block.
    """
    last = page.block_count - 1
    number, end = -1, b""
    group: list[Change] = []
    for change in changes:
        if number < 0 or (number < last and change[0] >= end):
            if group:
                yield number, group
            group = []
            number = max(0, page.block_of(change[0]))
            end = page.first_key(number + 1) if number < last else b""
        group.append(change)
    if group:
        yield number, group


class _Editor:
    """Single pass over the blocks of a page.

    `_run` collects the next entries that are not in a block yet: a run that is too short for its
    own block absorbs its neighbour.
    """

    def __init__(self, page: IndexPage, limits: IndexLimits) -> None:
        self._page = page
        self._limits = limits
        self._next = 0
        self._run: list[Entry] = []
        self._blocks: list[Block] = []

    def change(self, number: int, changes: Sequence[Change]) -> None:
        self._keep_until(number)
        self._next = number + 1
        if not self._run and number < self._page.block_count and len(changes) <= _FEW:
            self._edit(self._page.blocks()[number], changes)
            return
        entries = dict(self._page.entries(number)) if number < self._page.block_count else {}
        is_sorted = True
        for key, value in changes:
            if isinstance(value, Missing):
                entries.pop(key, None)
            else:
                is_sorted &= key in entries
                entries[key] = value
        self._run += entries.items() if is_sorted else sorted(entries.items(), key=_key)

    def _edit(self, block: Block, changes: Sequence[Change]) -> None:
        edited = block.with_changes(changes)
        if edited is None:
            return
        few = len(edited.decoded.keys) * 2 < self._limits.block_entries
        few = few and self._page.block_count > 1
        if is_cut(edited, self._limits) or (few and is_small(decode_block(edited), self._limits)):
            self._run = decode_block(edited)
        else:
            self._blocks.append(edited)

    def finish(self) -> list[Block]:
        self._keep_until(self._page.block_count)
        if self._run and self._blocks and is_small(self._run, self._limits):
            self._run = decode_block(self._blocks.pop()) + self._run
        self._flush()
        return self._blocks

    def _keep_until(self, number: int) -> None:
        while self._run and self._next < number and is_small(self._run, self._limits):
            self._run += self._page.entries(self._next)
            self._next += 1
        if not is_small(self._run, self._limits):
            self._flush()
        if self._next < number:
            self._blocks += self._page.blocks()[self._next : number]
            self._next = number

    def _flush(self) -> None:
        self._blocks += cut(self._run, self._limits)
        self._run = []


def _key(entry: Entry) -> bytes:
    return entry[0]
