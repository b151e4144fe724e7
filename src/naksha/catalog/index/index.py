"""The index: a sorted map from key to value, as it is read and changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from naksha.catalog.index.container import (
    EMPTY_CONTAINER,
    IndexContainer,
    PageRef,
    Segment,
    Stripe,
)
from naksha.catalog.index.directory import Directory
from naksha.catalog.index.limits import IndexLimits
from naksha.catalog.index.page import EMPTY, MISSING, Missing, Page
from naksha.catalog.index.page_edit import Change, changed
from naksha.catalog.index.page_loader import FetchMany, PageLoader
from naksha.catalog.index.spill import NewId, spill
from naksha.catalog.objects import Object, ObjectRef
from naksha.model import limits as model_limits
from naksha.model.errors import InvalidArgument


class Saved(NamedTuple):
    """An index as it is to be kept."""

    container: IndexContainer
    objects: tuple[Object[Stripe | Segment], ...]
    """To be written before the container is; none if nothing was spilled."""


class Index:
    """A sorted map from key to value, both bytes.

    It is read in layers: what was changed since the last save, what is embedded in the container,
    and the stripes, of which only those that are needed are read. Any number of tasks may read at
    once; a listing gives what was there when it was asked for, whatever is changed meanwhile. One
    task at a time may change and save.
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
        self._embedded = Page(container.embedded)
        self._directory = Directory(Page(container.stripes))
        self._loader = PageLoader(fetch_many)
        self._changes: dict[bytes, bytes | None] = {}

    def copy(self) -> Index:
        """One that may be changed without this one. It shares everything else, so it is cheap."""
        other = object.__new__(Index)
        other._container = self._container
        other._limits = self._limits
        other._embedded = self._embedded
        other._directory = self._directory
        other._loader = self._loader.copy()
        other._changes = self._changes.copy()
        return other

    @property
    def container(self) -> IndexContainer:
        """As it was loaded or last saved."""
        return self._container

    @property
    def is_changed(self) -> bool:
        """Whether there is something to save."""
        return bool(self._changes)

    # ---- Reading -----------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        """The value of the key, None if it is not there."""
        value = self._overlaid(key)
        if not isinstance(value, Missing):
            return value
        if self._directory.is_empty:
            return None
        return (await self._striped([key])).get(key)

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are there. One call reads all stripes that are needed."""
        found: dict[bytes, bytes] = {}
        others = []
        for key in keys:
            value = self._overlaid(key)
            if isinstance(value, Missing):
                others.append(key)
            elif value is not None:
                found[key] = value
        return found | await self._striped(others)

    def items(
        self, lower: bytes | None = None, upper: bytes | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """All keys from `lower` on and below `upper` with their values, in order."""
        lower = lower or b""
        overlay = self._overlay(lower, upper)
        if reverse:
            overlay.reverse()
        pages = _pages(self._directory, self._loader, lower, upper, reverse)
        return _layered(overlay, pages, lower, upper, reverse)

    def prefix(
        self, prefix: bytes, *, reverse: bool = False, after: bytes | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, with their values, in order. With `after`, only those
        that come after that key, in the order that is asked for: the next page of a listing."""
        lower, upper = prefix, _end_of(prefix)
        if after is not None and reverse:
            upper = after if upper is None else min(after, upper)
        elif after is not None:
            lower = max(lower, after + b"\0")
        return self.items(lower, upper, reverse=reverse)

    async def stripe_refs(self, seen: set[int] | None = None) -> AsyncIterator[ObjectRef]:
        """All objects that the index consists of, as it was loaded or last saved. Those whose ids
        `seen` has are left out, and all others are added to it. It must be exact, no filter that
        may err: what is listed in an object that was seen is not looked at."""
        found = self._directory.unseen(self._loader, set() if seen is None else seen)
        async for ref in found:
            yield ref

    # ---- Changing ----------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> bool | None:
        """Set the value of a key. Whether the key is new; None: that is in a stripe which was not
        read yet, `get` before tells."""
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
        """Take a key out. Whether it was there; None: that is in a stripe which was not read."""
        _check_key(key)
        before = self._overlaid(key)
        was_there = self._is_striped(key) if before is MISSING else before is not None
        if was_there is not False:
            self._changes[key] = None
        return was_there

    def change(self, key: bytes, value: bytes | None) -> None:
        """`put`, or with None `remove`, for those who need not know what was there."""
        _check_key(key)
        self._changes[key] = value

    async def save(self, new_id: NewId) -> Saved:
        """The index as it is to be kept; what was changed is part of it then, and the next change
        is one of the saved index. After an error nothing has changed. Stripes that were made are
        read from memory, whether they are written by now or not."""
        if not self._changes:
            return Saved(self._container, ())
        page = Page.of(changed(self._embedded, await self._embeddable(), self._limits))
        objects: tuple[Object[Stripe | Segment], ...] = ()
        directory = self._directory
        if len(page.data) > self._limits.embedded_of(directory.size) or self._has_large_change():
            spilled = await spill(page, directory, self._loader, self._limits, new_id)
            page, directory, objects = EMPTY, spilled.directory, tuple(spilled.objects)
            # Another loader, for whoever reads at this moment may still need the former pages.
            self._loader = self._loader.copy(made=spilled.made)
        self._embedded, self._directory, self._changes = page, directory, {}
        self._container = IndexContainer(page.data, directory.page.data)
        return Saved(self._container, objects)

    # ---- Layers ------------------------------------------------------------------------------

    def _overlaid(self, key: bytes) -> bytes | Missing | None:
        """What the layers above the stripes say about the key; None is a tombstone."""
        if key in self._changes:
            return self._changes[key]
        return self._embedded.find(key)

    def _overlay(self, lower: bytes, upper: bytes | None) -> list[tuple[bytes, bytes | None]]:
        """The same about a range of keys."""
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
        """Whether a stripe holds the key; None: it had to be read to tell."""
        ref = self._directory.peek(key, self._loader)
        if isinstance(ref, Missing):
            return False
        page = None if ref is None else self._loader.peek(ref)
        return None if page is None else page.find(key) is not MISSING

    async def _striped(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are in stripes."""
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
        """What was changed, as changes of what is embedded. A tombstone that hides nothing is
        none."""
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
) -> AsyncIterator[Page]:
    """The stripes of the range, read in bulk: one first, as many listings end early, then more."""
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
    pages: AsyncIterator[Page],
    lower: bytes,
    upper: bytes | None,
    reverse: bool,
) -> AsyncIterator[tuple[bytes, bytes]]:
    """The entries of the pages and of what lies over them, in one order."""
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
    """The smallest key above all that begin with the prefix; None: there is no end."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _check_key(key: bytes) -> None:
    if len(key) > model_limits.INDEX_KEY_BYTES_MAX:
        raise InvalidArgument(
            f"A key of an index has at most {model_limits.INDEX_KEY_BYTES_MAX} bytes, "
            f"not {len(key)}; use a digest of it",
            field="key",
        )
