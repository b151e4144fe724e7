"""Rendered tiles in memory, the least recently used ones dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from naksha.hub.tiles.tile_key import TileVersion
from naksha.model import limits

_OVERHEAD_BYTES: Final = 600
"""Memory of an entry besides the tile."""


class CachedTile:
    """A rendered tile, with the versions that it is known to be valid at."""

    __slots__ = ("body", "rendered", "valid", "validator", "zipped")

    def __init__(self, body: bytes, rendered: TileVersion, validator: str = "") -> None:
        self.body = body
        self.validator = validator
        """The entity tag; empty for a tile that belongs to no version."""
        self.rendered = rendered
        """The version that the tile was rendered at, which its validator names."""
        self.valid = rendered
        """The last version at which it was found unchanged."""
        self.zipped: bytes | None = None
        """The body, compressed; None until a client accepts it."""

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return len(self.body) + len(self.zipped or b"") + _OVERHEAD_BYTES


class MemoryTiles:
    """Cache of rendered tiles by key, bounded by its size in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tiles: OrderedDict[str, tuple[CachedTile, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._tiles)

    @property
    def bytes(self) -> int:
        """Memory in use."""
        return self._bytes

    def get(self, key: str) -> CachedTile | None:
        """Return a tile, and keep it longer."""
        found = self._tiles.get(key)
        if found is None:
            return None
        self._tiles.move_to_end(key)
        return found[0]

    def put(self, key: str, tile: CachedTile) -> None:
        """Keep a tile, or its new size, unless it is too large."""
        self.drop(key)
        size = tile.size
        if size > self._bytes_max // limits.TILE_CACHED_PARTS:
            return
        self._tiles[key] = tile, size
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, (_, gone) = self._tiles.popitem(last=False)
            self._bytes -= gone

    def drop(self, key: str) -> None:
        """Drop a tile, if it is there."""
        found = self._tiles.pop(key, None)
        if found is not None:
            self._bytes -= found[1]
