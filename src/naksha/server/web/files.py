"""Files of the map page, read once per worker and build."""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

DIRECTORY: Final = Path(__file__).with_name("static")
"""Directory that the build of `web/` writes; missing until then."""
START: Final = "index.html"
_TYPES: Final = {".js": "text/javascript", ".woff2": "font/woff2", ".md": "text/markdown"}
"""Types that not every machine knows."""
_COMPRESSIBLE: Final = frozenset({".js", ".css", ".json", ".svg", ".md"})
_LEVEL: Final = 6


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    zipped: bytes | None
    """The content in gzip, if that is smaller: compressed once, not for every client."""

    @classmethod
    def read(cls, path: Path) -> PageFile:
        """Read a file, and compress it if that makes it smaller."""
        content = path.read_bytes()
        guessed, _ = mimetypes.guess_type(path.name)
        media_type = _TYPES.get(path.suffix) or guessed or "application/octet-stream"
        is_compressible = path.suffix in _COMPRESSIBLE
        zipped = gzip.compress(content, _LEVEL, mtime=0) if is_compressible else None
        return cls(content, media_type, zipped)


def page_files(directory: Path = DIRECTORY) -> Mapping[str, PageFile]:
    """Return the page's files by name, without its HTML; empty if it has not been built."""
    start = directory / START
    return _files_of(directory, start.stat().st_mtime_ns) if start.is_file() else {}


@lru_cache(maxsize=1)
def _files_of(directory: Path, built_ns: int) -> Mapping[str, PageFile]:
    """Read the files of one build, which `built_ns` tells apart from the next one."""
    return {path.name: PageFile.read(path) for path in directory.glob("web/*") if path.is_file()}


def start_html(directory: Path = DIRECTORY) -> str | None:
    """Return the HTML of the page; None if it has not been built."""
    path = directory / START
    return path.read_text(encoding="utf-8") if path.is_file() else None
