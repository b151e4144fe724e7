"""Rendered tiles in files, shared by the processes of a machine, and kept when they restart.

A file has a line of JSON (the version, the size and a checksum) and the tile. It is written under
another name and renamed, so a reader finds a whole tile or none. A file that is damaged is removed.
The files that were not used for the longest time are removed when all of them are too large.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from naksha.hub.tiles.tile_key import TileVersion
from naksha.model import limits

_log: Final = logging.getLogger(__name__)
_FOLDER_DIGITS: Final = 2
"""Digits of the key that name the folder of a file."""
_TEMPORARY: Final = ".new-"
_FILE_BYTES: Final = 4096
"""Size on disk of an empty tile: its file occupies a block."""
_SCAN_PARTS: Final = 16
"""After this part of the size was written, the files are counted again."""
_KEPT_PART: Final = 0.9
"""Part of the size that remains when files are removed."""
_TOUCH_SECONDS: Final = 60.0
"""The use of a file is noted at most this often."""


class _Head(msgspec.Struct, frozen=True):
    """The first line of a file."""

    version: str
    size: int
    checksum: int


class DiskTiles:
    """Cache of rendered tiles in a directory."""

    def __init__(self, directory: Path, bytes_max: int, *, processes: int = 1) -> None:
        """Use a directory, which is created with the first tile; `processes` share it."""
        self._directory = directory
        self._bytes_max = bytes_max
        self._scan_bytes = bytes_max // (_SCAN_PARTS * processes)
        self._unscanned = bytes_max  # the first tile counts the files that are there
        self._is_broken = False

    async def get(self, key: str) -> tuple[bytes, TileVersion] | None:
        """Return a tile and its version."""
        return await asyncio.to_thread(self._read, key)

    async def put(self, key: str, body: bytes, version: TileVersion) -> None:
        """Keep a tile; a failure is logged, since tiles can be rendered again."""
        if len(body) > self._bytes_max // limits.TILE_CACHED_PARTS:
            return
        try:
            await asyncio.to_thread(self._write, key, body, version)
        except OSError as error:
            if not self._is_broken:
                _log.warning("Tiles cannot be kept in %s: %s", self._directory, error)
            self._is_broken = True
        else:
            self._is_broken = False

    def _path(self, key: str) -> Path:
        return self._directory / key[:_FOLDER_DIGITS] / key

    def _read(self, key: str) -> tuple[bytes, TileVersion] | None:
        path = self._path(key)
        try:
            line, _, body = path.read_bytes().partition(b"\n")
            used = path.stat().st_mtime
        except OSError:
            return None
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.DecodeError:
            head = None
        version = None if head is None else TileVersion.parse(head.version)
        if head is None or version is None or (head.size, head.checksum) != _sum(body):
            path.unlink(missing_ok=True)
            return None
        with suppress(OSError):
            if time.time() - used > _TOUCH_SECONDS:
                os.utime(path)
        return body, version

    def _write(self, key: str, body: bytes, version: TileVersion) -> None:
        path = self._path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        size, checksum = _sum(body)
        line = msgspec.json.encode(_Head(version.text, size, checksum))
        descriptor, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(line + b"\n" + body)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._unscanned += len(body) + _FILE_BYTES
        if self._unscanned > self._scan_bytes:
            self._unscanned = 0
            self._shrink()

    def _shrink(self) -> None:
        """Remove the files that were not used for the longest time."""
        found = sorted(self._files())
        total = sum(size for _, size, _ in found)
        room = self._bytes_max - self._bytes_max // _SCAN_PARTS
        if total <= room:
            return
        for _, size, path in found:
            with suppress(OSError):
                Path(path).unlink()
            total -= size
            if total <= room * _KEPT_PART:
                return

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yield the last use, the size on disk and the path of each file."""
        with suppress(FileNotFoundError):
            for folder in os.scandir(self._directory):
                if not folder.is_dir():
                    continue
                for file in os.scandir(folder.path):
                    with suppress(OSError):
                        facts = file.stat()
                        yield facts.st_mtime, max(facts.st_size, facts.st_blocks * 512), file.path


def _sum(body: bytes) -> tuple[int, int]:
    return len(body), zlib.crc32(body)
