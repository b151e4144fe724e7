"""SQL in files: the schema files of a package in execution order, and its named queries.

A query starts with a line `-- name: some_name`, followed by comment lines about its purpose, and
ends where the next one starts. Names in double braces, `{{collection}}`, are placeholders for
identifiers or for fragments that are queries themselves; values are parameters of the statement.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from importlib import resources
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
FILLED_MAX: Final = 2_000
"""Cached filled queries: their forms are few, their values many."""
_SLOT: Final = re.compile(r"\{\{(\w+)\}\}")


class SqlFiles:
    """SQL of one package: its folders `schema` and `queries`."""

    def __init__(self, package: str) -> None:
        self._package = package

    @cached_property
    def schema(self) -> list[tuple[str, str]]:
        """(name, text) of the schema files, in order."""
        folder = resources.files(self._package) / "schema"
        files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
        return [(name, (folder / name).read_text("utf-8")) for name in files]

    @cached_property
    def queries(self) -> dict[str, str]:
        """All named queries."""
        folder = resources.files(self._package) / "queries"
        found: dict[str, str] = {}
        for file in sorted(folder.iterdir(), key=lambda f: f.name):
            parts = _NAME.split(file.read_text("utf-8"))
            for name, text in zip(parts[1::2], parts[2::2], strict=True):
                if name in found:
                    raise ValueError(
                        f"The query {name} is defined twice in {self._package}; rename one"
                    )
                found[name] = without_comments(text)
        return found

    def fill(self, name: str, slots: dict[str, str]) -> str:
        """Return a query with its placeholders filled; identifiers must be quoted by `ident`."""
        return self._filled(name, tuple(slots.items())) if slots else self.queries[name]

    @lru_cache(maxsize=FILLED_MAX)  # noqa: B019 - there are as many as packages with SQL
    def _filled(self, name: str, slots: tuple[tuple[str, str], ...]) -> str:
        by_name = dict(slots)
        return _SLOT.sub(lambda match: by_name[match.group(1)], self.queries[name])


def ident(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def without_comments(text: str) -> str:
    """Remove the comment lines of statements."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
