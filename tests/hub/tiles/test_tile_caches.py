"""Bounded caches of tiles, in memory and on disk."""

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

from naksha.hub.tiles.disk_tiles import DiskTiles
from naksha.hub.tiles.memory_tiles import CachedTile, MemoryTiles
from naksha.hub.tiles.tile_key import TileVersion

V1 = TileVersion((20260101, 7))
KEYS = [f"{n:040x}" for n in range(256)]


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    tiles = MemoryTiles(20_000)
    for key in KEYS[:10]:
        tiles.put(key, CachedTile(b"x" * 1400, V1))
        assert tiles.get(KEYS[0]) is not None
    assert len(tiles) == 10
    tiles.put(KEYS[10], CachedTile(b"x" * 1400, V1))
    assert tiles.bytes <= 20_000
    assert tiles.get(KEYS[0]) is not None
    assert tiles.get(KEYS[1]) is None


def test_memory_counts_what_a_tile_becomes() -> None:
    tiles = MemoryTiles(20_000)
    tile = CachedTile(b"x" * 1000, V1)
    tiles.put("a", tile)
    before = tiles.bytes
    tile.zipped = b"y" * 500
    tiles.put("a", tile)
    assert tiles.bytes == before + 500
    tiles.drop("a")
    assert tiles.bytes == 0


def test_memory_refuses_a_tile_that_would_fill_it() -> None:
    tiles = MemoryTiles(20_000)
    tiles.put("a", CachedTile(b"x" * 5000, V1))
    assert tiles.get("a") is None
    empty = MemoryTiles(0)
    empty.put("a", CachedTile(b"", V1))
    assert empty.get("a") is None


async def test_files_are_shared_and_survive_restarts(tmp_path: Path) -> None:
    one, other = DiskTiles(tmp_path / "tiles", 10**6), DiskTiles(tmp_path / "tiles", 10**6)
    assert await one.get(KEYS[1]) is None
    await one.put(KEYS[1], b"tile\nwith a line", V1)
    assert await other.get(KEYS[1]) == (b"tile\nwith a line", V1)
    await other.put(KEYS[1], b"", TileVersion())
    assert await one.get(KEYS[1]) == (b"", TileVersion())
    (file,) = [path for path in (tmp_path / "tiles").rglob("*") if path.is_file()]
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damaged", [b"", b"x", b'{"version":"1","size":4,"checksum":1}\ntile', b"{}\n", b"\0" * 50]
)
async def test_a_damaged_file_is_removed(tmp_path: Path, damaged: bytes) -> None:
    tiles = DiskTiles(tmp_path, 10**6)
    await tiles.put(KEYS[1], b"tile", V1)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_bytes(damaged)
    assert await tiles.get(KEYS[1]) is None
    assert not file.exists()


async def test_files_are_bounded_and_those_in_use_stay(tmp_path: Path) -> None:
    size = 800_000
    tiles = DiskTiles(tmp_path, size)
    kept = KEYS[0]
    await tiles.put(kept, b"x" * 20_000, V1)
    for n, key in enumerate(KEYS[1:120]):
        await tiles.put(key, b"x" * 20_000, V1)
        for path in tmp_path.rglob(kept):  # as after an hour
            os.utime(path, (time.time() - 3600 + n, time.time() - 3600 + n))
        for path in tmp_path.rglob(key):
            os.utime(path, (time.time() - 7200 + n, time.time() - 7200 + n))
        assert await tiles.get(kept) is not None
        used = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file())
        assert used <= size
    assert await tiles.get(KEYS[1]) is None
    assert await tiles.get(KEYS[119]) is not None


async def test_files_of_empty_tiles_are_bounded(tmp_path: Path) -> None:
    tiles = DiskTiles(tmp_path, 40 * 4096)
    for key in KEYS[:120]:
        await tiles.put(key, b"", V1)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) <= 40


async def test_a_large_tile_is_not_kept(tmp_path: Path) -> None:
    tiles = DiskTiles(tmp_path, 100_000)
    await tiles.put(KEYS[1], b"x" * 20_000, V1)
    assert await tiles.get(KEYS[1]) is None


async def test_a_directory_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tiles").write_text("a file")
    tiles = DiskTiles(tmp_path / "tiles", 10**6)
    with caplog.at_level(logging.WARNING):
        await tiles.put(KEYS[1], b"tile", V1)
        await tiles.put(KEYS[2], b"tile", V1)
    assert len(caplog.records) == 1
    assert await tiles.get(KEYS[1]) is None


async def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    tiles = DiskTiles(tmp_path, 10**7)
    bodies = [bytes([n]) * 200_000 for n in range(4)]

    async def write(body: bytes) -> None:
        for _ in range(20):
            await tiles.put(KEYS[1], body, V1)

    async def read() -> None:
        for _ in range(100):
            found = await tiles.get(KEYS[1])
            assert found is None or found[0] in bodies

    await asyncio.gather(*map(write, bodies), read(), read())
