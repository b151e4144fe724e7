"""The index: a sorted map from key to value, with its operations to read and change it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from naksha.catalog.index.blocks import MISSING, Missing
from naksha.catalog.index.container import (
    EMPTY_CONTAINER,
    IndexContainer,
    IndexSegment,
    PageRef,
    Stripe,
)
from naksha.catalog.index.directory import Directory
from naksha.catalog.index.limits import IndexLimits
from naksha.catalog.index.page import EMPTY, IndexPage
from naksha.catalog.index.page_edit import Change, changed
from naksha.catalog.index.page_loader import FetchMany, PageLoader
from naksha.catalog.index.spill import NewId, spill
from naksha.catalog.objects import Object, ObjectRef
from naksha.model import limits as model_limits
from naksha.model.errors import InvalidArgument


class SavedIndex(NamedTuple):
    """An index as it is to be stored."""

    container: IndexContainer
    objects: tuple[Object[Stripe | IndexSegment], ...]
    """To be written before the container is; empty if nothing was spilled."""


class SortedIndex:
    """A sorted map from key to value, both bytes.

    It is read in layers: the changes since the last save, the entries embedded in the container,
    and the stripes, of which only the needed ones are read. Any number of tasks may read
    concurrently; a listing returns the contents at the time of the call, whatever is changed
    meanwhile. Only one task at a time may change and save.
    """

    __slots__ = ("_changes", "_container", "_directory", "_embedded", "_limits", "_loader")

    def __init__(
        self,
        fetch_many: FetchMany,
        container: IndexContainer = EMPTY_CONTAINER,
        limits: IndexLimits | None = None,
    ) -> None:
        self._container = container
        self._limits = limits or IndexLimits()
        self._embedded = IndexPage(container.embedded)
        self._directory = Directory(IndexPage(container.stripes))
        self._loader = PageLoader(fetch_many)
        self._changes: dict[bytes, bytes | None] = {}

    def copy(self) -> SortedIndex:
        """Return an independent copy to change; it shares everything else, so copying is cheap."""
        other = object.__new__(SortedIndex)
        other._container = self._container
        other._limits = self._limits
        other._embedded = self._embedded
        other._directory = self._directory
        other._loader = self._loader.copy()
        other._changes = self._changes.copy()
        return other

    @property
    def container(self) -> IndexContainer:
        """The container as it was loaded or last saved."""
        return self._container

    @property
    def is_changed(self) -> bool:
        """Whether there are changes to save."""
        return bool(self._changes)

    # ---- Reading -----------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of the key, or None."""
        value = self._overlaid(key)
        if not isinstance(value, Missing):
            return value
        if self._directory.is_empty:
            return None
        return (await self._striped([key])).get(key)

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that exist; one call reads all required stripes."""
        found: dict[bytes, bytes] = {}
        others = []
        for key in keys:
            value = self._overlaid(key)
            if isinstance(value, Missing):
                others.append(key)
            elif value is not None:
                found[key] = value
        return found | await self._striped(others) if others else found

    def items(
        self, lower: bytes | None = None, upper: bytes | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Iterate in order over the keys from `lower` on and below `upper`, with their values."""
        lower = lower or b""
        overlay = self._overlay(lower, upper)
        if reverse:
            overlay.reverse()
        pages = _pages(self._directory, self._loader, lower, upper, reverse)
        return _layered(overlay, pages, lower, upper, reverse)

    def prefix(
        self, prefix: bytes, *, reverse: bool = False, after: bytes | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Iterate in order over the keys that begin with `prefix`, with their values.

        With `after`, only those that follow that key in the requested order: the next page of a
        listing.
        """
        lower, upper = prefix, _end_of(prefix)
        if after is not None and reverse:
            upper = after if upper is None else min(after, upper)
        elif after is not None:
            lower = max(lower, after + b"\0")
        return self.items(lower, upper, reverse=reverse)

    async def stripe_refs(self, seen: set[int] | None = None) -> AsyncIterator[ObjectRef]:
        """Iterate over all objects of the index, as it was loaded or last saved.

        Ids in `seen` are skipped, and all others are added to it. It must be exact, not a
        probabilistic filter: objects listed by an object in `seen` are not visited.
        """
        found = self._directory.unlisted(self._loader, set() if seen is None else seen)
        async for ref in found:
            yield ref

    # ---- Changing ----------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> bool | None:
        """Set the value of a key, and return whether the key is new.

        None means that this depends on a stripe which was not read; call `get` before to find out.
        """
        _check_key(key)
        before = self._overlaid(key)
        if before == value:
            return False
        self._changes[key] = bytes(value)
        if isinstance(before, Missing):
            is_striped = self._is_striped(key)
            return None if is_striped is None else not is_striped
        return before is None

    def remove(self, key: bytes) -> bool | None:
        """Remove a key, and return whether it existed; None if a stripe would have to be read."""
        _check_key(key)
        before = self._overlaid(key)
        was_there = self._is_striped(key) if before is MISSING else before is not None
        if was_there is not False:
            self._changes[key] = None
        return was_there

    def change(self, key: bytes, value: bytes | None) -> None:
        """`put`, or with None `remove`, for callers that need not know whether the key existed."""
        _check_key(key)
        self._changes[key] = value

    async def save(self, new_id: NewId) -> SavedIndex:
        """Return the index with all changes as it is to be stored.

        Later changes are relative to the saved index. After an error nothing has changed. New
        stripes are read from memory, whether they are already written or not.
        """
        if not self._changes:
            return SavedIndex(self._container, ())
        page = IndexPage.of(changed(self._embedded, await self._embeddable(), self._limits))
        objects: tuple[Object[Stripe | IndexSegment], ...] = ()
        directory = self._directory
        if len(page.data) > self._limits.embedded_of(directory.size) or self._has_large_change():
            spilled = await spill(page, directory, self._loader, self._limits, new_id)
            page, directory, objects = EMPTY, spilled.directory, tuple(spilled.objects)
            # Use another loader, because concurrent readers may still need the former pages.
            self._loader = self._loader.copy(made=spilled.made)
        self._embedded, self._directory, self._changes = page, directory, {}
        self._container = IndexContainer(page.data, directory.page.data)
        return SavedIndex(self._container, objects)

    # ---- Layers ------------------------------------------------------------------------------

    def _overlaid(self, key: bytes) -> bytes | Missing | None:
        """Return the value of the key in the layers above the stripes; None is a tombstone."""
        if key in self._changes:
            return self._changes[key]
        return self._embedded.find(key)

    def _overlay(self, lower: bytes, upper: bytes | None) -> list[tuple[bytes, bytes | None]]:
        """Return the entries of a range in the layers above the stripes."""
        embedded = self._embedded.scan(lower, upper)
        if not self._changes:
            return list(embedded)
        changes = {
            key: value
            for key, value in self._changes.items()
            if key >= lower and (upper is None or key < upper)
        }
        return sorted((dict(embedded) | changes).items())

    def _is_striped(self, key: bytes) -> bool | None:
        """Return whether a stripe holds the key; None if it would have to be read."""
        ref = self._directory.peek(key, self._loader)
        if isinstance(ref, Missing):
            return False
        page = None if ref is None else self._loader.peek(ref)
        return None if page is None else page.find(key) is not MISSING

    async def _striped(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that are in stripes."""
        loader = self._loader
        located = await self._directory.locate(keys, loader)
        wanted: dict[PageRef, list[bytes]] = {}
        for key, ref in zip(keys, located, strict=True):
            if ref is not None:
                wanted.setdefault(ref, []).append(key)
        found = {}
        pages = await loader.load(list(wanted))
        for page, keys in zip(pages, wanted.values(), strict=True):
            for key in keys:
                if isinstance(value := page.find(key), bytes):
                    found[key] = value
        return found

    async def _embeddable(self) -> list[Change]:
        """Return the changes to apply to the embedded page.

        A tombstone is only required for a key that exists in a stripe; other removals drop the
        entry.
        """
        removed = [key for key, value in self._changes.items() if value is None]
        hidden = await self._striped(removed) if removed else {}
        return [
            (key, MISSING if value is None and key not in hidden else value)
            for key, value in sorted(self._changes.items())
        ]

    def _has_large_change(self) -> bool:
        largest = self._limits.entry_bytes
        return any(len(key) + len(value or b"") > largest for key, value in self._changes.items())


async def _pages(
    directory: Directory, loader: PageLoader, lower: bytes, upper: bytes | None, reverse: bool
) -> AsyncIterator[IndexPage]:
    """Iterate over the stripes of the range, read in growing batches.

    The first batch is a single stripe, because many listings end early.
    """
    batch: list[PageRef] = []
    batch_max = 1
    async for ref in directory.stripes(loader, lower, upper, reverse=reverse):
        batch.append(ref)
        if len(batch) == batch_max:
            for page in await loader.load(batch, keep=False):
                yield page
            batch = []
            batch_max = min(2 * batch_max, model_limits.INDEX_PREFETCH_STRIPES_MAX)
    for page in await loader.load(batch, keep=False):
        yield page


async def _layered(
    overlay: Sequence[tuple[bytes, bytes | None]],
    pages: AsyncIterator[IndexPage],
    lower: bytes,
    upper: bytes | None,
    reverse: bool,
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Merge the entries of the pages with the overlay that takes precedence, in one order."""
    above = iter(overlay)
    top = next(above, None)
    async for page in pages:
        for key, value in page.scan(lower, upper, reverse=reverse):
            while top is not None and (top[0] > key if reverse else top[0] < key):
                if top[1] is not None:
                    yield top[0], top[1]
                top = next(above, None)
            if top is not None and top[0] == key:
                value = top[1]
                top = next(above, None)
            if value is not None:
                yield key, value
    while top is not None:
        if top[1] is not None:
            yield top[0], top[1]
        top = next(above, None)


def _end_of(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that begin with the prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _check_key(key: bytes) -> None:
    if len(key) > model_limits.INDEX_KEY_BYTES_MAX:
        raise InvalidArgument(
            f"A key of an index can have at most {model_limits.INDEX_KEY_BYTES_MAX} bytes, not"
            f" {len(key)}; use a digest of it",
            field="key",
        )
