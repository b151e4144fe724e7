"""The SQL of the SQLite storage; see `naksha.spi.support.sql_files`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from naksha.spi.support.sql_files import SqlFiles, ident

__all__ = ["ident", "queries", "schema_files", "sql", "statements_of", "text_literal"]

_FILES = SqlFiles(__package__)


def schema_files() -> list[tuple[str, str]]:
    """Return (name, text) of the schema files, in the order they run."""
    return _FILES.schema


def queries() -> dict[str, str]:
    """Return all named queries."""
    return _FILES.queries


def sql(name: str, **slots: str) -> str:
    """Return the named query with its slots filled."""
    return _FILES.fill(name, slots)


def text_literal(text: str) -> str:
    """Quote a text for statements that take no parameters (definitions)."""
    return "'" + text.replace("'", "''") + "'"


def statements_of(script: str) -> Iterator[str]:
    """Split a script into statements; running it as a whole would end the transaction."""
    gathered = ""
    for line in script.splitlines():
        gathered += line + "\n"
        if line.rstrip().endswith(";") and sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
    if gathered.strip():
        yield gathered
