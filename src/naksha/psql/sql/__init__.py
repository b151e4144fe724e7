"""The SQL of this storage: schema files in the order they run, and named queries.

A query starts with a line `-- name: some_name`, followed by comment lines that say what it is
for, and ends where the next one starts. Names in double braces, `{{collection}}`, stand for
identifiers or for fragments that are queries of this file themselves; values are always
parameters of the statement, except in COPY, which takes none (`inlined`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from naksha.model.errors import InvalidArgument

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_PARAMETER = re.compile(r"\$(\d+)(?=::)")


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


def literal(value: Any) -> str:
    """A value as an SQL literal whose type is said by the cast that follows it.

    For statements that cannot have parameters, such as COPY. Backslashes are written so that they
    mean themselves whatever `standard_conforming_strings` says.
    """
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return "ARRAY[" + ", ".join(literal(each) for each in value) + "]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"E'\\\\x{bytes(value).hex()}'"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"no literal for {type(value).__name__}")
    text = value if isinstance(value, str) else repr(value)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidArgument("A text holds characters that cannot be asked for", field="query")
    mark = "E" if "\\" in text else ""
    return mark + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def inlined(text: str, values: Sequence[Any]) -> str:
    """A statement with its parameters, each written as `$n::type`, replaced by literals."""
    return _PARAMETER.sub(lambda match: literal(values[int(match.group(1)) - 1]), text)


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
