"""Rows with texts that are not UTF-8, in every kind of read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from naksha.sqlite.schema.file import connect

SELECT = "SELECT n, text FROM t ORDER BY n"
ROWS = [(n, "b\N{REPLACEMENT CHARACTER}d" if n in (3, 7) else "good") for n in range(10)]


def chunks(cursor: sqlite3.Cursor) -> list[Any]:
    found = []
    while chunk := list(islice(cursor, 2)):
        found += chunk
    return found


READS: dict[str, Callable[[sqlite3.Cursor], list[Any]]] = {
    "iterate": list,
    "chunks": chunks,
    "one": lambda cursor: list(iter(cursor.fetchone, None)),
    "many": lambda cursor: cursor.fetchmany(4) + cursor.fetchmany(4) + cursor.fetchmany(4),
    "all": lambda cursor: cursor.fetchall(),
    "one, then all": lambda cursor: [cursor.fetchone(), *cursor.fetchall()],
}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(connect(tmp_path / "test.sqlite")) as connection:
        connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        bad = "CASE WHEN value IN (3, 7) THEN CAST(x'62ff64' AS TEXT) ELSE 'good' END"
        connection.execute(
            f"INSERT INTO t SELECT value, {bad} FROM json_each('[0,1,2,3,4,5,6,7,8,9]')"
        )
        yield connection


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_row_is_read_once(
    connection: sqlite3.Connection, read: Callable[[sqlite3.Cursor], list[Any]]
) -> None:
    assert connection.text_factory is str
    assert read(connection.execute(SELECT)) == ROWS
    assert read(connection.execute(SELECT)) == ROWS


def test_other_errors_are_raised(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
        connection.execute("SELECT json(text) FROM t").fetchall()
    assert connection.text_factory is str
