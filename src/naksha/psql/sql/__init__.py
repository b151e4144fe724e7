"""The SQL of this storage: schema files in the order they run, and named queries.

A query starts with a line `-- name: some_name`, followed by comment lines that say what it is
for, and ends where the next one starts. Names in double braces, `{{collection}}`, stand for
identifiers or for fragments that are queries of this file themselves; values are always
parameters of the statement.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def schema_files() -> list[tuple[str, str]]:
    """(name, text) of the files that make up the schema, in order."""
    folder = resources.files(__package__) / "schema"
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    return [(name, (folder / name).read_text("utf-8")) for name in files]


@cache
def queries() -> dict[str, str]:
    """All named queries."""
    folder = resources.files(__package__) / "queries"
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        parts = _NAME.split(file.read_text("utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"query {name} is defined twice")
            found[name] = _without_comments(text)
    return found


def sql(name: str, **slots: str) -> str:
    """The named query with its slots filled. Identifiers are quoted by `ident`, not here."""

    def fill(match: re.Match[str]) -> str:
        return slots[match.group(1)]

    return _SLOT.sub(fill, queries()[name])


def ident(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
