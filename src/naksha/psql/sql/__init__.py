"""SQL of this storage; see `naksha.spi.support.sql_files`.

Values are parameters of the statement, except in COPY, which takes none (`inlined`).
"""

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
    """Return (name, text) of the schema files, in execution order."""
    return _FILES.schema


def queries() -> dict[str, str]:
    """Return all named queries."""
    return _FILES.queries


def sql(name: str, **slots: str) -> str:
    """Return the named query with its slots filled."""
    return _FILES.fill(name, slots)


def literal(value: Any) -> str:
    """Return a value as an SQL literal; the cast that follows it determines its type.

    For statements that cannot have parameters, such as COPY. Backslashes are escaped such that the
    literal is the same under every setting of `standard_conforming_strings`.
    """
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return "ARRAY[" + ", ".join(literal(each) for each in value) + "]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"E'\\\\x{bytes(value).hex()}'"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"a value of type {type(value).__name__} has no SQL literal")
    text = value if isinstance(value, str) else repr(value)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidArgument(
            "A text of the query contains a NUL or an unpaired surrogate, which PostgreSQL cannot "
            "store",
            field="query",
        )
    mark = "E" if "\\" in text else ""
    return mark + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def inlined(text: str, values: Sequence[Any]) -> str:
    """Replace the parameters of a statement, each written as `$n::type`, by literals."""
    return _PARAMETER.sub(lambda match: literal(values[int(match.group(1)) - 1]), text)
