"""The list of an index's stripes: finds the stripe of a key, and the stripes of a range.

The list is a page of `PageRef`. Its entries are stripes, or segments: pages of the same kind, whose
entries are stripes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, TypeGuard

from naksha.catalog.index.blocks import MISSING, Missing
from naksha.catalog.index.container import SEGMENT, PageRef, page_refs
from naksha.catalog.index.page import IndexPage
from naksha.catalog.index.page_loader import PageLoader
from naksha.catalog.objects import ObjectRef
from naksha.model import limits

FULL: Final = limits.INDEX_SEGMENT_STRIPES_MAX * limits.INDEX_STRIPE_BYTES_MAX


class Directory:
    """The list of stripes of one container."""

    __slots__ = ("_size", "page")

    def __init__(self, page: IndexPage) -> None:
        self.page = page
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Total bytes of the stripes; segments are counted as full."""
        if self._size is None:
            refs = page_refs(self.page.scan())
            self._size = sum(FULL if _is_segment(ref) else ref.size for ref in refs)
        return self._size

    @property
    def is_empty(self) -> bool:
        return self.page.block_count == 0

    async def locate(self, keys: Sequence[bytes], loader: PageLoader) -> list[PageRef | None]:
        """Return the stripe that may hold each key, None where there is none.

        All required segments are read with one call.
        """
        refs = [_holding(self.page, key) for key in keys]
        needed = list({ref.ref.id: ref for ref in refs if _is_segment(ref)}.values())
        if not needed:
            return refs
        loaded = await loader.load(needed)
        pages = {ref.ref.id: page for ref, page in zip(needed, loaded, strict=True)}
        return [
            _holding(pages[ref.ref.id], key) if _is_segment(ref) else ref
            for ref, key in zip(refs, keys, strict=True)
        ]

    def peek(self, key: bytes, loader: PageLoader) -> PageRef | Missing | None:
        """Return the stripe that may hold the key, without reading.

        MISSING means that no stripe can hold it; None, that a segment would have to be read.
        """
        ref = _holding(self.page, key)
        if _is_segment(ref):
            page = loader.peek(ref)
            if page is None:
                return None
            ref = _holding(page, key)
        return ref or MISSING

    async def stripes(
        self, loader: PageLoader, lower: bytes, upper: bytes | None, *, reverse: bool = False
    ) -> AsyncIterator[PageRef]:
        """Iterate over the stripes that may hold keys of the range."""
        for ref in _overlapping(self.page, lower, upper, reverse):
            if _is_segment(ref):
                for page in await loader.load([ref]):
                    for stripe in _overlapping(page, lower, upper, reverse):
                        yield stripe
            else:
                yield ref

    async def segments(self, loader: PageLoader) -> list[tuple[PageRef, list[PageRef]]]:
        """Return the segments with the stripes that each lists; one call reads them all."""
        refs = [ref for ref in page_refs(self.page.scan()) if _is_segment(ref)]
        pages = await loader.load(refs, keep=False)
        return [(ref, page_refs(page.scan())) for ref, page in zip(refs, pages, strict=True)]

    async def unlisted(self, loader: PageLoader, seen: set[int]) -> AsyncIterator[ObjectRef]:
        """Iterate over the listed objects that are not in `seen`, and add them to it.

        A segment in `seen` is not read again: what it lists was added before the segment itself.
        """
        for ref in page_refs(self.page.scan()):
            if ref.ref.id in seen:
                continue
            if _is_segment(ref):
                for page in await loader.load([ref], keep=False):
                    for stripe in page_refs(page.scan()):
                        if stripe.ref.id not in seen:
                            seen.add(stripe.ref.id)
                            yield stripe.ref
            seen.add(ref.ref.id)
            yield ref.ref


def _is_segment(ref: PageRef | None) -> TypeGuard[PageRef]:
    return ref is not None and ref.ref.type == SEGMENT


def _holding(page: IndexPage, key: bytes) -> PageRef | None:
    """Return the list entry whose range contains the key."""
    entry = page.floor(key)
    if entry is None:
        return None
    ref = PageRef.from_entry(entry)
    return ref if key <= ref.last else None


def _overlapping(
    page: IndexPage, lower: bytes, upper: bytes | None, reverse: bool
) -> Iterator[PageRef]:
    before = page.floor(lower)
    begin = lower if before is None else before[0]
    for entry in page.scan(begin, upper, reverse=reverse):
        ref = PageRef.from_entry(entry)
        if ref.last >= lower:
            yield ref
