"""The names in databases.

SQLite's are read from a fresh file, PostgreSQL's and MariaDB's from the schema files.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from naksha.mariadb import sql as mariadb
from naksha.psql import sql as psql
from naksha.psql.catalog import sql as psql_catalog
from naksha.spi.support.sql_files import SqlFiles
from naksha.sqlite import sql as sqlite
from naksha.sqlite.catalog import sql as sqlite_catalog
from naksha.sqlite.connection import functions

_COMMENT = re.compile(r"--.*")
_ROUTINE = re.compile(
    r"^CREATE (?:OR REPLACE )?(?P<kind>FUNCTION|PROCEDURE|AGGREGATE) (?P<name>[\w.{}]+)\s*(?=\()",
    re.MULTILINE,
)
_RETURNS = re.compile(
    r"\s*RETURNS\s+(?P<type>.+?)"
    r"(?=\s+(?:LANGUAGE|IMMUTABLE|STABLE|VOLATILE|PARALLEL|STRICT|SECURITY|SET|AS|RETURN|BEGIN|"
    r"ROWS|COST|CALLED|LEAKPROOF)\b)",
    re.DOTALL,
)
_TABLE = re.compile(
    r"^CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(?P<name>[\w.{}]+)\s*(?=\()", re.MULTILINE
)
_COLUMN = re.compile(
    r"ALTER TABLE (?:IF EXISTS )?(?P<name>[\w.{}]+)\s+ADD COLUMN (?:IF NOT EXISTS )?(?P<column>\w+)"
)
_OTHER = re.compile(
    r"^CREATE (?:OR REPLACE )?(?P<kind>VIEW|SEQUENCE|TYPE|DOMAIN|EVENT TRIGGER|TRIGGER) "
    r"(?:IF NOT EXISTS )?(?P<name>[\w.{}]+)",
    re.MULTILINE,
)
_NO_COLUMNS = {"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "LIKE", "EXCLUDE", "KEY"}
_NO_COLUMNS |= {"INDEX"}


def collected() -> dict[str, Any]:
    """All of it, by database."""
    return {
        "functions of connections to SQLite": connection_functions(),
        "mariadb catalog": written(mariadb),
        "psql catalog": written(psql_catalog),
        "psql storage": written(psql),
        "sqlite catalog": created(sqlite_catalog),
        "sqlite storage": created(sqlite),
    }


def connection_functions() -> list[str]:
    """Return the functions that the library adds to its own connections."""
    found: list[str] = []

    class Listener:
        def create_function(self, name: str, count: int, *_: object, **__: object) -> None:
            found.append(f"{name}({count})")

    functions.add_functions(Listener())  # type: ignore[arg-type] # all of it that is used
    return sorted(found)


def created(package: ModuleType) -> dict[str, Any]:
    """Return the schema of a new file: tables and views with columns, indices and triggers."""
    connection = sqlite3.connect(":memory:")
    try:
        for _, text in SqlFiles(package.__name__).schema:
            connection.executescript(text)
        rows = connection.execute("SELECT type, name FROM sqlite_master ORDER BY 1, 2").fetchall()
        found: dict[str, Any] = {}
        for kind, name in rows:
            if name.startswith("sqlite_"):
                continue
            if kind in ("table", "view"):
                columns = connection.execute("SELECT name FROM pragma_table_info(?)", [name])
                found.setdefault(f"{kind}s", {})[name] = [row[0] for row in columns]
            else:
                found.setdefault("triggers" if kind == "trigger" else "indices", []).append(name)
        return found
    finally:
        connection.close()


def written(package: ModuleType) -> dict[str, Any]:
    """Return the routines (with signatures) and tables (with columns) of the schema files."""
    text = _COMMENT.sub("", "\n".join(text for _, text in SqlFiles(package.__name__).schema))
    tables = {
        match["name"]: [*_columns(_bracketed(text, match.end()))] for match in _TABLE.finditer(text)
    }
    for match in _COLUMN.finditer(text):
        if match["name"] in tables and match["column"] not in tables[match["name"]]:
            tables[match["name"]].append(match["column"])
    others: dict[str, Any] = {}
    for match in _OTHER.finditer(text):
        others.setdefault(f"{match['kind'].lower()}s", set()).add(match["name"])
    return {
        "routines": sorted(set(_routines(text))),
        "tables": tables,
        **{kind: sorted(names) for kind, names in others.items()},
    }


def _routines(text: str) -> Iterator[str]:
    for match in _ROUTINE.finditer(text):
        arguments = _bracketed(text, match.end())
        end = match.end() + len(arguments) + 2
        returns = _RETURNS.match(text, end)
        answer = f" returns {_plain(returns['type'])}" if returns else ""
        yield f"{match['name']}({_plain(arguments)}){answer}"


def _bracketed(text: str, start: int) -> str:
    """Return the text between the bracket at an offset and its closing bracket."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return text[start + 1 : place]
    raise AssertionError("a bracket that is not closed")


def _columns(body: str) -> Iterator[str]:
    depth, piece = 0, ""
    for sign in body + ",":
        if sign == "," and not depth:
            words = piece.split()
            if words and words[0].upper() not in _NO_COLUMNS:
                yield words[0]
            piece = ""
            continue
        depth += (sign == "(") - (sign == ")")
        piece += sign


def _plain(text: str) -> str:
    return " ".join(text.split())
