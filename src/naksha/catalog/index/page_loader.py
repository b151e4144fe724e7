"""Loader of pages: new ones from memory, read ones from the cache, all others in bulk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from naksha.catalog.index.container import PageRef
from naksha.catalog.index.page import IndexPage
from naksha.catalog.objects import ObjectRef
from naksha.model import limits

FetchMany: TypeAlias = Callable[[Sequence[ObjectRef]], Awaitable[Sequence[object]]]
"""Returns the values of objects in the order of their references, None for absent ones."""


class PageLoader:
    """The pages behind an index.

    Concurrent loads of the same page both read it. This is safe because pages never change.
    """

    def __init__(self, fetch_many: FetchMany) -> None:
        self._fetch_many = fetch_many
        self._kept: dict[int, IndexPage] = {}
        self.made: Mapping[int, IndexPage] = {}
        """Pages that the index created, which may not be written yet."""

    def copy(self, *, made: Mapping[int, IndexPage] | None = None) -> PageLoader:
        other = PageLoader(self._fetch_many)
        other._kept = self._kept.copy()
        other.made = self.made if made is None else made
        return other

    def peek(self, ref: PageRef) -> IndexPage | None:
        """Return the page if it does not have to be read."""
        return self.made.get(ref.ref.id) or self._kept.get(ref.ref.id)

    async def load(self, refs: Sequence[PageRef], *, keep: bool = True) -> list[IndexPage]:
        """Return the pages; one call reads all that are not in memory.

        Raises:
            StorageCorrupt: A page is missing.
        """
        pages = {ref.ref.id: page for ref in refs if (page := self.peek(ref)) is not None}
        absent = {ref.ref.id: ref for ref in refs if ref.ref.id not in pages}
        if absent:
            values = await self._fetch_many([ref.ref for ref in absent.values()])
            found = zip(absent.items(), values, strict=True)
            read = {id: ref.page_of(value) for (id, ref), value in found}
            pages |= read
            if keep:
                self._keep(read)
        return [pages[ref.ref.id] for ref in refs]

    def _keep(self, pages: Mapping[int, IndexPage]) -> None:
        """Add pages to the cache; the ones read first are evicted."""
        self._kept |= pages
        for id in list(self._kept)[: -limits.INDEX_STRIPES_KEPT_MAX]:
            del self._kept[id]
