"""Mapping of SQLite's errors to ours."""

from __future__ import annotations

import sqlite3

import pytest

from naksha.model.errors import LimitExceeded
from naksha.sqlite.connection.errors import translated


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("SELECT " + " OR ".join(["1"] * 2_000), 0),
        ("SELECT ?", 40_000),
        (" UNION ALL ".join(["SELECT 1"] * 2_000), 0),
        ("SELECT " + ", ".join("1" * 3_000), 0),
    ],
)
def test_a_statement_beyond_a_limit_is_not_reported_as_damage(statement: str, count: int) -> None:
    connection = sqlite3.connect(":memory:")
    text = statement.replace("?", ", ".join("?" * count)) if count else statement
    with pytest.raises(LimitExceeded), translated():
        connection.execute(text, (1,) * count)
    connection.close()
