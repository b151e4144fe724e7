"""Keep the planner's statistics, which are the same in every file."""

from __future__ import annotations

import sqlite3
from typing import Final

from naksha.sqlite.sql import queries, sql

_TABLE: Final = "sqlite_stat1"
_SAMPLES: Final = "sqlite_stat4"
"""Written by ANALYZE in builds of SQLite that have it."""


def restore_statistics(connection: sqlite3.Connection) -> bool:
    """Restore the fixed statistics if they were changed; return whether they were.

    The caller begins and commits the transaction. All other connections read the statistics again.
    """
    if not is_changed(connection):
        return False
    if not _has(connection, _TABLE):
        connection.execute(queries()["planner_create"])
    for table in (_TABLE, _SAMPLES):
        if _has(connection, table):
            connection.execute(sql("planner_forget", table=table))
    connection.execute(sql("planner_restore", fixed=queries()["planner_fixed"]))
    connection.execute(queries()["planner_changed"])
    connection.execute(queries()["planner_changed_again"])
    connection.execute(queries()["planner_reload"])
    return True


def is_changed(connection: sqlite3.Connection) -> bool:
    """Whether the statistics differ from the fixed ones."""
    if not _has(connection, _TABLE):
        return True
    text = sql("planner_differs", fixed=queries()["planner_fixed"])
    return bool(connection.execute(text).fetchone()[0])


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute(queries()["planner_has"], (table,)).fetchone()[0])
