"""Spilling: move the embedded entries into the stripes.

Stripes and segments without changes are kept; those that become too large are split, and those that
become too small are merged with a neighbour, so their number follows the size of the index both
ways.

Why this preserves the map: the ranges of the stripes are disjoint and sorted, and each embedded
entry is applied to the one stripe whose range it falls into (gaps belong to the stripe before
them), so the new ranges are disjoint and sorted too. Stripes hold no tombstones: below them is no
older layer, so a tombstone simply removes the entry. Pages are never overwritten. New ones are
written before the commit that refers to them, and older commits keep their own stripes, so a crash
only leaves garbage. Stripes are split when full but merged only if together less than half full, so
they do not alternate between the two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from naksha.catalog.index.blocks import MISSING, Block, Entry, cut
from naksha.catalog.index.container import IndexSegment, PageRef, Stripe, new_object, page_refs
from naksha.catalog.index.directory import Directory
from naksha.catalog.index.limits import IndexLimits
from naksha.catalog.index.page import IndexPage, page_size
from naksha.catalog.index.page_edit import Change, changed, split
from naksha.catalog.index.page_loader import PageLoader
from naksha.catalog.objects import Object

NewId: TypeAlias = Callable[[], int]

_HEAD: Final = page_size([])


class SpillResult(NamedTuple):
    """The list of stripes after the spill, and the objects to write for it."""

    directory: Directory
    objects: list[Object[Stripe | IndexSegment]]
    made: Mapping[int, IndexPage]
    """Pages of the list that the index created, now or before, by the ids of their objects."""


class _Slot(NamedTuple):
    """A future stripe: a kept one (by reference) or a new one (by its blocks)."""

    ref: PageRef | None
    blocks: Sequence[Block]
    size: int


async def spill(
    embedded: IndexPage,
    directory: Directory,
    loader: PageLoader,
    limits: IndexLimits,
    new_id: NewId,
) -> SpillResult:
    """Apply the embedded entries to the stripes."""
    work = _Spill(loader, limits, new_id)
    segments = await directory.segments(loader)
    if segments:
        stripes = list(chain.from_iterable(listed for _, listed in segments))
    else:
        stripes = page_refs(directory.page.scan())
    slots = await work.changed(stripes, embedded)
    stripes = await work.merged(slots)
    top = work.listed(stripes, segments)
    ids = {ref.ref.id for ref in chain(stripes, top)}
    made = {id: page for id, page in chain(loader.made.items(), work.made.items()) if id in ids}
    page = IndexPage.of(list(cut([ref.to_entry() for ref in top], limits)))
    return SpillResult(Directory(page), work.objects, made)


class _Spill:
    def __init__(self, loader: PageLoader, limits: IndexLimits, new_id: NewId) -> None:
        self._loader = loader
        self._limits = limits
        self._new_id = new_id
        self.objects: list[Object[Stripe | IndexSegment]] = []
        self.made: dict[int, IndexPage] = {}

    async def changed(self, stripes: Sequence[PageRef], embedded: IndexPage) -> list[_Slot]:
        """Return the stripes after the changes; one call reads those that are touched."""
        if not stripes:  # There is nothing to hide, so there are no tombstones.
            return self._new_slots(embedded.blocks())
        touched = _by_stripe(stripes, embedded.scan())
        pages = await self._loader.load([stripes[number] for number in touched], keep=False)
        page_of = dict(zip(touched, pages, strict=True))
        slots = []
        for number, ref in enumerate(stripes):
            page = page_of.get(number)
            blocks = None if page is None else changed(page, touched[number], self._limits)
            if page is None or blocks is None or blocks == page.blocks():
                slots.append(_Slot(ref, (), ref.size))
            else:
                slots += self._new_slots(blocks)
        return slots

    def _new_slots(self, blocks: Sequence[Block]) -> list[_Slot]:
        pieces = split(blocks, self._limits) if blocks else []
        return [_Slot(None, piece, page_size(piece)) for piece in pieces]

    async def merged(self, slots: Iterable[_Slot]) -> list[PageRef]:
        """Merge small neighbours, write new stripes, and return all stripes.

        Untouched stripes that are merged now are read with one more call.
        """
        groups: list[list[_Slot]] = []
        for slot in slots:
            if groups and self._may_join(groups[-1], slot):
                groups[-1].append(slot)
            else:
                groups.append([slot])
        joined = [slot.ref for group in groups if len(group) > 1 for slot in group if slot.ref]
        pages = await self._loader.load(joined, keep=False)
        blocks_of = {ref.first: page.blocks() for ref, page in zip(joined, pages, strict=True)}
        stripes = []
        for group in groups:
            if len(group) == 1 and group[0].ref is not None:
                stripes.append(group[0].ref)
                continue
            parts = (blocks_of[slot.ref.first] if slot.ref else slot.blocks for slot in group)
            stripes.append(self._write_stripe(list(chain.from_iterable(parts))))
        return stripes

    def _may_join(self, group: Sequence[_Slot], slot: _Slot) -> bool:
        size = _HEAD + sum(member.size - _HEAD for member in (*group, slot))
        return size * 2 < self._limits.stripe_bytes

    def _write_stripe(self, blocks: Sequence[Block]) -> PageRef:
        page = IndexPage.of(blocks)
        (last, _) = list(page.entries(page.block_count - 1))[-1]
        return self._write(Stripe(page.data), page, last)

    def _write_segment(self, stripes: Sequence[PageRef]) -> PageRef:
        page = IndexPage.of(list(cut([ref.to_entry() for ref in stripes], self._limits)))
        return self._write(IndexSegment(page.data), page, stripes[-1].last)

    def _write(self, value: Stripe | IndexSegment, page: IndexPage, last: bytes) -> PageRef:
        made, ref = new_object(self._new_id(), value, page, last)
        self.objects.append(made)
        self.made[made.id] = IndexPage(page.data)  # Do not hold the blocks it was made of.
        return ref

    def listed(
        self, stripes: Sequence[PageRef], segments: Sequence[tuple[PageRef, list[PageRef]]]
    ) -> list[PageRef]:
        """Return the list of the container: the stripes, or segments if there are many.

        A segment whose stripes have not changed is kept.
        """
        if len(stripes) <= self._limits.stripes_inline:
            return list(stripes)
        before = {tuple(listed): ref for ref, listed in segments}
        groups: list[tuple[PageRef, ...]] = []
        for group in _by_segment(stripes, [ref.first for ref, _ in segments]):
            if groups and (len(groups[-1]) + len(group)) * 2 <= self._limits.segment_stripes:
                groups[-1] += group
            else:
                groups += _pieces(group, self._limits.segment_stripes)
        return [before.get(group) or self._write_segment(group) for group in groups]


def _by_stripe(stripes: Sequence[PageRef], entries: Iterable[Entry]) -> dict[int, list[Change]]:
    """Return the entries, as changes, by the number of their stripe.

    Keys between two stripes belong to the former, keys below the first stripe to the first.
    """
    firsts = [ref.first for ref in stripes]
    touched: dict[int, list[Change]] = {}
    for key, value in entries:
        number = max(0, bisect_right(firsts, key) - 1)
        touched.setdefault(number, []).append((key, MISSING if value is None else value))
    return touched


def _by_segment(
    stripes: Iterable[PageRef], firsts: Sequence[bytes]
) -> Iterable[tuple[PageRef, ...]]:
    """Group the stripes by segment, in the way that keys are assigned to stripes."""
    groups: dict[int, list[PageRef]] = {}
    for ref in stripes:
        groups.setdefault(max(0, bisect_right(firsts, ref.first) - 1), []).append(ref)
    return map(tuple, groups.values())


def _pieces(refs: tuple[PageRef, ...], longest: int) -> list[tuple[PageRef, ...]]:
    """Split the list into the fewest pieces of similar length, none longer than `longest`."""
    count = -(-len(refs) // longest)
    total = len(refs)
    return [refs[n * total // count : (n + 1) * total // count] for n in range(count)]
