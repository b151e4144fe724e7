"""Locations of storages that are files."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from naksha.model.errors import InvalidArgument

FILE: Final = "file"
"""The scheme that is followed by a path."""


def path_of(location: str | Path) -> Path:
    """The path of a location: `file:town.naksha`, `file:///data/town.naksha`, or a bare path."""
    if isinstance(location, Path) or not location.startswith(f"{FILE}:"):
        return Path(location)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidArgument(
            f"{location!r} is no path; it is written as file:name, or file:///folder/name",
            field="storage",
        )
    if not parts.path:
        raise InvalidArgument("The location has no path", field="storage")
    return Path(unquote(parts.path))
