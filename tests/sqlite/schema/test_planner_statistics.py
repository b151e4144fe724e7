"""The planner's statistics are fixed: ANALYZE by a user must not change plans for good."""

import itertools
import sqlite3
from pathlib import Path

import pytest

from naksha.model.query import Query
from naksha.sqlite import SqliteStorage
from naksha.sqlite.read import statements
from naksha.sqlite.read.layers import MAIN_ONLY, readable
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.schema.file import connect
from naksha.testing.storage.suite_support import Handle, new_collection, point, with_xyz
from tests.sqlite.support import opened, rows, shell

TAGGED = Query(tags=(("a",),))
FIGURES = "SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY 1, 2"
_numbers = itertools.count()
BY_ROW = "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)"
"""The rows that have the tag are read, not all of the collection."""
OWN = "CREATE TABLE mine AS SELECT value AS a FROM json_each('[1, 2, 3]')"


async def fill(storage: SqliteStorage) -> None:
    """A large collection among small ones: on average, a collection is small."""
    features = [with_xyz(point(f"k{n}", n / 10, n / 10), tags=["a"]) for n in range(300)]
    await Handle(storage, "roads").create(*features)
    for _ in range(50):
        await (await new_collection(storage)).create(point("x"))


def plan(connection: sqlite3.Connection) -> list[str]:
    """The steps of a query by tags."""
    levels = readable(connection, MAIN_ONLY, collection_of(connection, "roads"), None)
    text, values = statements.states(levels, TAGGED)
    # EXPLAIN alone does not look whether the schema was changed.
    connection.execute(text, values).fetchall()
    asked = f"EXPLAIN QUERY PLAN {text} -- {next(_numbers)}"
    return [row[3] for row in connection.execute(asked, values)]


def plan_of(path: Path) -> list[str]:
    """The steps on a new connection."""
    connection = connect(path)
    try:
        return plan(connection)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "statement",
    ["ANALYZE", "ANALYZE; DELETE FROM sqlite_stat1", "DROP TABLE sqlite_stat1"],
    ids=["analyze", "empty", "dropped"],
)
async def test_opening_restores_them(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "a.naksha"
    async with opened(path) as storage:
        await fill(storage)
    fixed = rows(path, FIGURES)
    assert len(fixed) > 20
    assert plan_of(path)[0] == BY_ROW
    shell(path, *statement.split("; "))
    assert plan_of(path)[0] != BY_ROW
    await (await SqliteStorage.open(path)).close()
    assert rows(path, FIGURES) == fixed
    assert plan_of(path)[0] == BY_ROW


async def test_maintenance_restores_them_for_all_connections(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.naksha") as storage:
        await fill(storage)
        fixed = rows(storage.path, FIGURES)
        shell(storage.path, "ANALYZE")
        reader = connect(storage.path)
        try:
            assert plan(reader)[0] != BY_ROW
            await storage.maintain()
            assert rows(storage.path, FIGURES) == fixed
            assert plan(reader)[0] == BY_ROW
        finally:
            reader.close()


async def test_a_new_file_is_planned_with_them_at_once(tmp_path: Path) -> None:
    """Not only by connections that are opened later."""
    async with opened(tmp_path / "a.naksha") as storage:
        assert (await storage._writer.task(plan))[0] == BY_ROW


async def test_statistics_of_user_tables_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.naksha"
    async with opened(path):
        pass
    fixed = rows(path, FIGURES)
    shell(path, OWN, "CREATE INDEX mine_a ON mine (a)", "ANALYZE")
    await (await SqliteStorage.open(path)).close()
    assert rows(path, FIGURES) == [("mine", "mine_a", "3 1"), *fixed]


async def test_a_file_that_is_read_only_is_read_with_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.naksha"
    async with opened(path) as storage:
        await fill(storage)
    shell(path, "ANALYZE")
    analyzed = rows(path, FIGURES)
    storage = await SqliteStorage.open(path, read_only=True)
    try:
        assert len([state async for state in storage.states("roads", TAGGED)]) == 300
    finally:
        await storage.close()
    assert rows(path, FIGURES) == analyzed


async def test_a_busy_file_is_opened_without_them(tmp_path: Path) -> None:
    """Maintenance restores them later."""
    path = tmp_path / "a.naksha"
    async with opened(path):
        pass
    shell(path, "ANALYZE")
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        storage = await SqliteStorage.open(path, busy_s=0.1)
        try:
            assert len(await storage.collections()) == 2
        finally:
            other.execute("ROLLBACK")
            await storage.close()
    finally:
        other.close()
