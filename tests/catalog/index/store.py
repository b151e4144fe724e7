"""An object store for indexes that counts reads, and the invariants of any index."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from itertools import count, pairwise
from typing import Any, TypeVar

import msgspec

from naksha.catalog.index import (
    EMPTY_CONTAINER,
    IndexContainer,
    IndexLimits,
    PageRef,
    SavedIndex,
    SortedIndex,
)
from naksha.catalog.index.container import SEGMENT, STRIPE, page_refs
from naksha.catalog.index.page import EMPTY, IndexPage, page_size
from naksha.catalog.objects import ObjectRef, decode, encode

T = TypeVar("T")

TINY = IndexLimits(
    embedded_bytes=160,
    stripe_bytes=200,
    stripes_inline=3,
    segment_stripes=4,
    block_entries=3,
    block_bytes=40,
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of something that never has to wait, as it reads from a `Store`."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waited")


class Store:
    """Objects by their ids, as bytes. `reads` has the references of every call."""

    def __init__(self, limits: IndexLimits = TINY) -> None:
        self.limits = limits
        self.rows: dict[int, tuple[str, bytes]] = {}
        self.reads: list[list[ObjectRef]] = []
        self._ids = count(1)

    def new_id(self) -> int:
        return next(self._ids)

    async def fetch_many(self, refs: Sequence[ObjectRef]) -> list[object]:
        ids = [ref.id for ref in refs]
        assert ids, "nothing was asked for"
        assert len(set(ids)) == len(ids), "an id was asked for twice"
        self.reads.append(list(refs))
        return [decode(*self.rows[id]) if id in self.rows else None for id in ids]

    def write(self, saved: SavedIndex) -> SavedIndex:
        """Write what was saved, and give it as it is read again."""
        for made in saved.objects:
            assert made.id not in self.rows
            self.rows[made.id] = (made.ref.type, encode(made.value))
        container = decode_container(encode(saved.container))
        return SavedIndex(container, saved.objects)

    def open(self, container: IndexContainer = EMPTY_CONTAINER) -> SortedIndex:
        return SortedIndex(self.fetch_many, container, self.limits)

    async def save(self, index: SortedIndex) -> SavedIndex:
        return self.write(await index.save(self.new_id))

    async def filled(self, items: Iterable[tuple[bytes, bytes]]) -> SavedIndex:
        """An index with these items, saved once."""
        index = self.open()
        for key, value in items:
            index.put(key, value)
        return await self.save(index)

    def page(self, ref: ObjectRef) -> IndexPage:
        value = decode(*self.rows[ref.id])
        return IndexPage(value.page)

    def stripes(self, container: IndexContainer) -> list[PageRef]:
        """All stripes of an index, in order."""
        found = []
        for ref in page_refs(IndexPage(container.stripes).scan()):
            if ref.ref.type == SEGMENT:
                found += page_refs(self.page(ref.ref).scan())
            else:
                found.append(ref)
        return found

    def check(self, container: IndexContainer) -> None:
        """The rules that hold for every saved index under constant limits."""
        stripes = self.stripes(container)
        striped: set[bytes] = set()
        for ref in stripes:
            entries = list(self.page(ref.ref).scan())
            keys = [key for key, _ in entries]
            assert keys == sorted(set(keys))
            assert (keys[0], keys[-1]) == (ref.first, ref.last)
            assert all(value is not None for _, value in entries)
            assert ref.size == len(self.page(ref.ref).data)
            assert ref.size <= self.limits.stripe_bytes or len(entries) == 1
            striped |= set(keys)
        for one, other in pairwise(stripes):
            assert one.last < other.first
            merged = page_size([*self.page(one.ref).blocks(), *self.page(other.ref).blocks()])
            assert merged * 2 >= self.limits.stripe_bytes
        embedded = list(IndexPage(container.embedded).scan())
        assert len(container.embedded) <= max(self.limits.embedded_bytes, len(EMPTY.data))
        assert all(key in striped for key, value in embedded if value is None)
        top = page_refs(IndexPage(container.stripes).scan())
        if len(stripes) <= self.limits.stripes_inline:
            assert all(ref.ref.type == STRIPE for ref in top)
            return
        assert all(ref.ref.type == SEGMENT for ref in top)
        lengths = [len(list(self.page(ref.ref).scan())) for ref in top]
        assert max(lengths) <= self.limits.segment_stripes
        assert all((a + b) * 2 > self.limits.segment_stripes for a, b in pairwise(lengths))


def decode_container(data: bytes) -> IndexContainer:
    return msgspec.msgpack.decode(data, type=IndexContainer)


async def listed(items: Any) -> list[tuple[bytes, bytes]]:
    return [item async for item in items]
