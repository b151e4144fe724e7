"""The SQL of this storage; see `naksha.spi.support.sql_files`. Values are parameters of the
statement,
except in COPY, which takes none (`inlined`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from naksha.model.errors import InvalidArgument
from naksha.spi.support.sql_files import SqlFiles, ident

__all__ = ["ident", "inlined", "literal", "queries", "schema_files", "sql"]

_FILES = SqlFiles(__package__)
_PARAMETER = re.compile(r"\$(\d+)(?=::)")


def schema_files() -> list[tuple[str, str]]:
    """(name, text) of the files that make up the schema, in order."""
    return _FILES.schema


def queries() -> dict[str, str]:
    """All named queries."""
    return _FILES.queries


def sql(name: str, **slots: str) -> str:
    """The named query with its slots filled."""
    return _FILES.fill(name, slots)


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
