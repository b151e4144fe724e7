"""Tiles from the cache while nothing inside of them has changed, else rendered.

A tile at HEAD is cached together with the version that it shows. It is that of the version if, when
it has been rendered, no committed transaction that waits for its publication changed a cell of it,
and none was published since before it was rendered that did. It stays valid until a transaction
changes a cell, and after that as long as the features inside of it are those of the version.
"""

from __future__ import annotations

import asyncio
import gzip
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from naksha.hub.tiles import changes_inside
from naksha.hub.tiles.cell_tail import CellMoment, CellTail, TileArea
from naksha.hub.tiles.disk_tiles import DiskTiles
from naksha.hub.tiles.memory_tiles import CachedTile, MemoryTiles
from naksha.hub.tiles.tile_basis import TileBasis, WatchedCollection
from naksha.hub.tiles.tile_key import TileVersion, known_versions, validator_of
from naksha.model import limits
from naksha.spi.storage import Storage

Other = TypeVar("Other")
_WAITS_MAX: Final = 3
"""How often a request waits for another one that renders its tile, and may fail or be cancelled,
before it renders the tile itself."""
_GZIP_LEVEL: Final = 6
"""A tile is compressed once and sent many times."""


class TileOutcome(StrEnum):
    """How a request for a tile was answered."""

    MEMORY = "memory"
    DISK = "disk"
    UNMODIFIED = "unmodified"
    RENDERED = "rendered"
    UNSETTLED = "unsettled"
    """Rendered and not cached: a change inside was committed and not published yet."""
    CHANGING = "changing"
    """Rendered and not cached: it changed meanwhile."""
    TOO_LARGE = "too_large"
    """Sent in parts, and not cached."""
    NOT_CACHEABLE = "not_cacheable"
    NEEDLESS = "needless"
    """Counted besides `rendered`: the tile was invalid, but is the same as before."""


class TileSubject(NamedTuple):
    """A tile as a request means it."""

    key: str
    basis: TileBasis
    area: TileArea
    """The area of the features that the tile shows."""
    is_small: bool
    """Whether it pays to test for changes inside of it."""


class TileAnswer(NamedTuple, Generic[Other]):
    """A tile: in the cache, unmodified, or rendered for this request."""

    validator: str | None = None
    tile: CachedTile | None = None
    other: Other | None = None
    """The result of rendering, if it cannot be cached."""

    @property
    def is_unmodified(self) -> bool:
        """Whether the client has the tile."""
        return self.tile is None and self.other is None


Render = Callable[[], Awaitable[bytes | Other]]
"""Function that renders a tile: its bytes, or something else that is not cached."""
Observe = Callable[[TileOutcome], None]
_Moments = Mapping[Storage, CellMoment]


class TileService:
    """Cached tiles of one process."""

    def __init__(
        self,
        memory: MemoryTiles,
        disk: DiskTiles | None = None,
        observe: Observe = lambda outcome: None,
    ) -> None:
        self._memory = memory
        self._disk = disk
        self._observe = observe
        self._tails: WeakKeyDictionary[Storage, CellTail] = WeakKeyDictionary()
        self._rendering: dict[str, asyncio.Future[None]] = {}
        self._confirmed: OrderedDict[tuple[str, TileVersion], TileVersion] = OrderedDict()
        """The last version at which a tile of a client, which is not here, was found unchanged."""
        self._writing: set[asyncio.Task[None]] = set()

    def tail(self, storage: Storage) -> CellTail:
        """Return the recent changes of an open storage."""
        found = self._tails.get(storage)
        if found is None:
            # A strong reference from a value would keep the key, and so a closed storage, for ever.
            found = self._tails[storage] = CellTail(weakref.proxy(storage))
        return found

    async def uncached(self, render: Render[Other]) -> TileAnswer[Other]:
        """Render a tile that depends on more than is known."""
        self._observe(TileOutcome.NOT_CACHEABLE)
        return _unvalidated(await render())

    async def answer(
        self, subject: TileSubject, if_none_match: str | None, render: Render[Other]
    ) -> TileAnswer[Other]:
        """Return a tile that shows the version of a moment after this call."""
        if not subject.basis.watched:
            return await self._of_version(subject, if_none_match, render)
        waits = 0
        while True:
            moments = await self._now(subject)
            if not _is_settled(subject, moments):
                self._observe(TileOutcome.UNSETTLED)
                return _unvalidated(await render())
            found: TileAnswer[Other] | None
            found = await self._unchanged(subject, if_none_match, moments)
            if found is not None:
                return found
            if waits == _WAITS_MAX or not await self._wait_for_others(subject.key):
                return await self._render(subject, moments, render)
            waits += 1

    async def known(
        self, subject: TileSubject, if_none_match: str | None
    ) -> TileAnswer[Other] | None:
        """Return a tile that the client or the memory has, if it is valid."""
        if not subject.basis.watched:
            tile = self._memory.get(subject.key)
            if tile is None:
                return None
            if if_none_match and TileVersion() in known_versions(subject.key, if_none_match):
                self._observe(TileOutcome.UNMODIFIED)
                return TileAnswer(tile.validator)
            self._observe(TileOutcome.MEMORY)
            return TileAnswer(tile.validator, tile)
        moments = await self._now(subject)
        if not _is_settled(subject, moments):
            return None
        return await self._in_memory(subject, if_none_match, moments)

    async def zipped(self, key: str, tile: CachedTile) -> bytes:
        """Return a tile compressed with gzip; it is compressed once."""
        if tile.zipped is None:
            tile.zipped = await asyncio.to_thread(gzip.compress, tile.body, _GZIP_LEVEL, mtime=0)
            if self._memory.get(key) is tile:
                self._memory.put(key, tile)
        return tile.zipped

    async def _wait_for_others(self, key: str) -> bool:
        """Wait for the request that renders a tile, if there is one, and return whether it was."""
        others = self._rendering.get(key)
        if others is None:
            return False
        await asyncio.wait([others])
        return True

    # ---- Fixed versions --------------------------------------------------------------------------

    async def _of_version(
        self, subject: TileSubject, if_none_match: str | None, render: Render[Other]
    ) -> TileAnswer[Other]:
        """Return a tile of a version, which never changes."""
        validator = validator_of(subject.key, TileVersion())
        if TileVersion() in known_versions(subject.key, if_none_match):
            self._observe(TileOutcome.UNMODIFIED)
            return TileAnswer(validator)
        tile = await self._cached(subject.key)
        waits = 0
        while tile is None and waits < _WAITS_MAX and await self._wait_for_others(subject.key):
            tile = await self._cached(subject.key)
            waits += 1
        if tile is not None:
            return TileAnswer(validator, tile)
        with self._rendered_once(subject.key):
            made = await render()
            if not isinstance(made, bytes):
                self._observe(TileOutcome.TOO_LARGE)
                return TileAnswer(validator, other=made)
            for one in subject.basis.fixed:
                if not await changes_inside.exists(one.reader, one.collection):
                    self._observe(TileOutcome.NOT_CACHEABLE)
                    return _unvalidated(made)
            self._observe(TileOutcome.RENDERED)
            return self._kept(subject.key, made, TileVersion())

    @contextmanager
    def _rendered_once(self, key: str) -> Iterator[None]:
        """Make other requests for a tile wait for the block, unless one does already."""
        if key in self._rendering:
            yield
            return
        done = self._rendering[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._rendering[key]
            done.set_result(None)

    # ---- HEAD ------------------------------------------------------------------------------------

    async def _now(self, subject: TileSubject) -> _Moments:
        """Return the state of each storage at a moment after this call."""
        storages = _storages_of(subject)
        if len(storages) == 1:
            return {storages[0]: await self.tail(storages[0]).now()}
        asked = await asyncio.gather(*(self.tail(storage).now() for storage in storages))
        return dict(zip(storages, asked, strict=True))

    async def _unchanged(
        self, subject: TileSubject, if_none_match: str | None, moments: _Moments
    ) -> TileAnswer[Other] | None:
        """Return the tile that the client or the cache has, if it is valid."""
        found: TileAnswer[Other] | None
        found = await self._in_memory(subject, if_none_match, moments)
        if found is not None:
            return found
        key, now = subject.key, _version_of(moments)
        for version in known_versions(key, if_none_match):
            since = self._confirmed.get((key, version), version)
            if await self._is_valid(subject, since, moments):
                self._confirm(key, version, now)
                self._observe(TileOutcome.UNMODIFIED)
                return TileAnswer(validator_of(key, version))
        if self._disk is None or self._memory.get(key) is not None:
            return None
        stored = await self._disk.get(key)
        if stored is None or not await self._is_valid(subject, stored[1], moments):
            return None
        tile = _tile(key, *stored)
        tile.valid = now.unless_before(tile.rendered)
        self._memory.put(key, tile)
        self._observe(TileOutcome.DISK)
        return TileAnswer(tile.validator, tile)

    async def _in_memory(
        self, subject: TileSubject, if_none_match: str | None, moments: _Moments
    ) -> TileAnswer[Other] | None:
        """Return the tile in memory, if it is valid, or that the client has it."""
        tile = self._memory.get(subject.key)
        if tile is None:
            return None
        now = _version_of(moments)
        if tile.valid != now:
            if not await self._is_valid(subject, tile.valid, moments):
                return None
            tile.valid = now.unless_before(tile.valid)
        if if_none_match and (
            tile.validator == if_none_match
            or tile.rendered in known_versions(subject.key, if_none_match)
        ):
            self._observe(TileOutcome.UNMODIFIED)
            return TileAnswer(tile.validator)
        self._observe(TileOutcome.MEMORY)
        return TileAnswer(tile.validator, tile)

    def _confirm(self, key: str, version: TileVersion, now: TileVersion) -> None:
        known = self._confirmed.get((key, version), version)
        self._confirmed[key, version] = now.unless_before(known)
        self._confirmed.move_to_end((key, version))
        if len(self._confirmed) > limits.TILE_CONFIRMED_MAX:
            self._confirmed.popitem(last=False)

    async def _is_valid(
        self, subject: TileSubject, version: TileVersion, moments: _Moments
    ) -> bool:
        """Return whether a tile of a version is that of the moments, too."""
        storages = list(moments)
        if len(version.txns) != len(storages):
            return False
        since = dict(zip(storages, version.txns, strict=True))
        for watched in subject.basis.watched:
            # Not that of the moment: a later request may have found the tile unchanged since.
            last = self.tail(watched.storage).txn
            txn = since[watched.storage]
            if txn > last:
                return False  # the storage was replaced by an earlier state of it
            if txn == last or await self._is_untouched(subject.area, watched, txn):
                continue
            if watched.hides_others or not subject.is_small:
                return False
            box = subject.area.box
            if not await changes_inside.is_unchanged_inside(
                watched.reader, watched.collection, box, txn
            ):
                return False
        return True

    async def _is_untouched(self, area: TileArea, watched: WatchedCollection, txn: int) -> bool:
        """Return whether no transaction after one changed a cell of an area."""
        if watched.hides_others:
            return await changes_inside.is_unwritten(watched.storage, watched.collection, txn)
        tail = self.tail(watched.storage)
        if txn >= tail.start:
            return tail.last_change(watched.collection, watched.overlay, area) <= txn
        last = await watched.storage.last_cell_change(
            watched.collection, area.box, overlay=watched.overlay
        )
        return last <= txn

    async def _render(
        self, subject: TileSubject, before: _Moments, render: Render[Other]
    ) -> TileAnswer[Other]:
        """Render a tile, and keep it if it is that of a version."""
        with self._rendered_once(subject.key):
            made = await render()
            if not isinstance(made, bytes):
                self._observe(TileOutcome.TOO_LARGE)
                return TileAnswer(other=made)
            after = await self._now(subject)
            outcome = await self._outcome(subject, before, after)
            self._observe(outcome)
            if outcome is not TileOutcome.RENDERED:
                return _unvalidated(made)
            return self._kept(subject.key, made, _version_of(after))

    async def _outcome(
        self, subject: TileSubject, before: _Moments, after: _Moments
    ) -> TileOutcome:
        """Return whether what was rendered between two moments is the tile of the second one."""
        if not _is_settled(subject, after):
            return TileOutcome.UNSETTLED
        for watched in subject.basis.watched:
            txn = before[watched.storage].txn
            if txn > after[watched.storage].txn:
                return TileOutcome.CHANGING
            if txn == after[watched.storage].txn:
                continue
            if not await self._is_untouched(subject.area, watched, txn):
                return TileOutcome.CHANGING
        return TileOutcome.RENDERED

    # ---- Cache -----------------------------------------------------------------------------------

    async def _cached(self, key: str) -> CachedTile | None:
        """Return a tile of a fixed version."""
        tile = self._memory.get(key)
        if tile is not None:
            self._observe(TileOutcome.MEMORY)
            return tile
        stored = None if self._disk is None else await self._disk.get(key)
        if stored is None:
            return None
        tile = _tile(key, *stored)
        self._memory.put(key, tile)
        self._observe(TileOutcome.DISK)
        return tile

    def _kept(self, key: str, body: bytes, version: TileVersion) -> TileAnswer[Other]:
        """Keep a rendered tile."""
        old, tile = self._memory.get(key), _tile(key, body, version)
        if old is not None and old.body == body:
            self._observe(TileOutcome.NEEDLESS)
        self._memory.put(key, tile)
        if self._disk is not None:
            writing = asyncio.ensure_future(self._disk.put(key, body, version))
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
        return TileAnswer(tile.validator, tile)


def _tile(key: str, body: bytes, version: TileVersion) -> CachedTile:
    return CachedTile(body, version, validator_of(key, version))


def _version_of(moments: _Moments) -> TileVersion:
    return TileVersion(tuple([moment.txn for moment in moments.values()]))


def _is_settled(subject: TileSubject, moments: _Moments) -> bool:
    """Return whether HEAD shows the area as the last published version does."""
    for watched in subject.basis.watched:
        moment = moments[watched.storage]
        if moment.is_settled:
            continue
        # Changes of features without geometry are not among the cells.
        if watched.hides_others or moment.has_pending(
            watched.collection, watched.overlay, subject.area
        ):
            return False
    return True


def _storages_of(subject: TileSubject) -> list[Storage]:
    """Return the storages of a tile at HEAD, each once."""
    watched = subject.basis.watched
    if len(watched) == 1:
        return [watched[0].storage]
    return list({id(one.storage): one.storage for one in watched}.values())


def _unvalidated(made: bytes | Other) -> TileAnswer[Other]:
    if isinstance(made, bytes):
        return TileAnswer(tile=CachedTile(made, TileVersion()))
    return TileAnswer(other=made)
