"""The SQL of this storage; see `naksha.spi.support.sql_files`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from naksha.spi.support.sql_files import SqlFiles, ident

__all__ = ["ident", "queries", "schema_files", "sql", "statements_of", "text_literal"]

_FILES = SqlFiles(__package__)


def schema_files() -> list[tuple[str, str]]:
    """(name, text) of the files that make up the schema, in order."""
    return _FILES.schema


def queries() -> dict[str, str]:
    """All named queries."""
    return _FILES.queries


def sql(name: str, **slots: str) -> str:
    """The named query with its slots filled."""
    return _FILES.fill(name, slots)


def text_literal(text: str) -> str:
    """A text for statements that take no parameters: definitions."""
    return "'" + text.replace("'", "''") + "'"


def statements_of(script: str) -> Iterator[str]:
    """The single statements of a script; running it as a whole would end the transaction."""
    gathered = ""
    for line in script.splitlines():
        gathered += line + "\n"
        if line.rstrip().endswith(";") and sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
    if gathered.strip():
        yield gathered
