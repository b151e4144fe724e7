"""Helpers that open the files of an earlier release: copies, in their own directory."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

DATA: Final = Path(__file__).parent.parent / "data" / "written_by_0_1"
HUB_FILES: Final = ("hub.catalog", "default.naksha", "other.naksha")


def content(name: str) -> bytes:
    """A file, unpacked."""
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


def recorded(name: str) -> dict[str, Any]:
    """Return the recorded responses of the release that wrote the data."""
    found: dict[str, Any] = msgspec.json.decode(content(f"{name}.json"))
    return found


def unpacked(name: str, folder: Path, to: str | None = None) -> Path:
    """A copy that may be changed."""
    folder.mkdir(exist_ok=True)
    path = folder / (to or name)
    path.write_bytes(content(name))
    return path


def hub_arguments(folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Flags of a hub on these files: locations in them begin at the data directory, or name the
    database that the environment names. It runs no jobs, so that one stays as it was submitted."""
    place = "postgresql://" if environment else ""
    catalog = ["--catalog", place or f"file:{folder}/hub.catalog"]
    return ["--data", str(folder), "--realm-storage", place, *catalog, "--job-parallel", "0"]


def server_environment(dsn: str) -> dict[str, str]:
    """The variables by which clients of PostgreSQL find a database."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    return {
        "PGHOST": query["host"][0],
        "PGPORT": query["port"][0],
        "PGUSER": parts.username or "",
        "PGDATABASE": parts.path.lstrip("/"),
    }
