"""The forms of `naksha diff`: a table, the document of the hub, and a map."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import typer

from naksha.api.queries import query_of
from naksha.cli.diff.map_file import MapFile
from naksha.cli.output import print_table
from naksha.model.errors import InvalidArgument
from naksha.model.json_text import open_object
from naksha.model.query import Query
from naksha.spi.storage_factory import open_storage
from naksha.versioning import DiffAction, FeatureDiff, Place, diff, place_of

COLUMNS: Final = ("action", "id", "author", "changes")
_VALUE_LENGTH_MAX: Final = 40
"""Longer values are cut in the readable form."""
_MISSING: Final = object()


class Comparison(NamedTuple):
    """Two versions of a collection, and the query that selects the differences."""

    storage: str
    schema: str | None
    collection: str
    refs: tuple[str, str]
    query: Query

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Place, Place, AsyncIterator[FeatureDiff]]]:
        """Return both versions and the differences, while the storage is open."""
        options = {} if self.schema is None else {"schema": self.schema}
        async with open_storage(self.storage, read_only=True, **options) as storage:
            await storage.collection(self.collection)
            old, new = [await place_of(storage, ref) for ref in self.refs]
            yield old, new, diff(old, new, self.collection, self.query)


def query_from(authors: list[str] | None, bbox: str | None) -> Query:
    """Return the query of the options."""
    return query_of(authors=tuple(authors) if authors else None, bbox=_box(bbox))


def _box(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        raise InvalidArgument(
            f"--bbox {text!r:.64} is not a box; write west,south,east,north, such as 8.5,50,8.7,51",
            field="bbox",
        ) from None
    return west, south, east, north


async def print_changes(comparison: Comparison) -> None:
    """Print a row per feature, and the counts on standard error."""
    rows: list[tuple[Any, ...]] = []
    async with comparison.opened() as (_, _, changes):
        async for change in changes:
            author = None if change.new is None else change.new.xyz.get("author")
            rows.append((change.action.value, change.id, author, _changes_text(change)))
    print_table(rows, COLUMNS)
    typer.echo(counts_text(_counts(Counter(row[0] for row in rows))), err=True)


async def print_document(comparison: Comparison) -> None:
    """Print the document of `GET /hub/spaces/{id}/diff`, a line per feature."""
    async with comparison.opened() as (old, new, changes):
        head = {
            "type": "Diff",
            "startVersion": old.version.seq_number,
            "endVersion": new.version.seq_number,
        }
        separator = open_object(head) + b',"changes":[\n'
        async for change in changes:
            typer.echo(separator + change.to_json(), nl=False)
            separator = b",\n"
        is_empty = separator != b",\n"
        typer.echo((separator if is_empty else b"\n") + b"]}")


async def write_map(comparison: Comparison, path: Path) -> dict[str, int]:
    """Write the map, and return the counts."""
    file = MapFile(path)
    file.check()
    async with comparison.opened() as (old, new, changes):
        versions = (old.version, new.version)
        found = await file.write(comparison.collection, comparison.refs, versions, changes)
    return _counts(found)


def _counts(found: Mapping[str, int]) -> dict[str, int]:
    return {action.value: found.get(action.value, 0) for action in DiffAction}


def counts_text(counts: Mapping[str, int]) -> str:
    """Format the counts of the actions."""
    return ", ".join(f"{count} {action}" for action, count in counts.items())


def _changes_text(change: FeatureDiff) -> str:
    """Describe the members of an updated feature that differ; empty for other differences."""
    if change.old is None or change.new is None:
        return ""
    old, new = change.old.feature, change.new.feature
    return ", ".join(_path_text(path, old, new) for path in change.paths())


def _path_text(path: str, old: Any, new: Any) -> str:
    if path == "/geometry" or path.startswith("/geometry/"):
        return path
    before, after = (_value_text(_member(feature, path)) for feature in (old, new))
    return f"{path}: {before} → {after}"


def _member(value: Any, path: str) -> Any:
    """Return the value that a JSON pointer names, or a mark if there is none."""
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return _MISSING
    return value


def _value_text(value: Any) -> str:
    if value is _MISSING:
        return "(none)"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_LENGTH_MAX else f"{text[:_VALUE_LENGTH_MAX]}…"
