"""Query plans: an index for every documented query; only a full extract scans a table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import shapely

from naksha.model.query import Bbox, Intersects, Op, Query, States, Tile
from naksha.model.query import Test as PropertyTest
from naksha.model.transaction import LogFilter
from naksha.model.version import HEAD
from naksha.sqlite import SqliteStorage
from naksha.sqlite.read import statements
from naksha.sqlite.read.layers import MAIN_ONLY, Layers, readable
from naksha.sqlite.read.log import statement_of
from naksha.sqlite.read.rows import collection_of
from naksha.sqlite.schema.file import connect
from naksha.sqlite.sql import queries
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import Handle, point, with_xyz
from tests.sqlite.support import opened

SELECTIVE = {
    "ids": Query(ids=("k1", "k2")),
    "bbox": Query(spatial=Bbox(0, 0, 1, 1)),
    "bbox over the date line": Query(spatial=Bbox(179, 0, -179, 1)),
    "tile": Query(spatial=Tile("120")),
    "intersects": Query(spatial=Intersects(shapely.Point(1, 1).wkb, 100)),
    "tags": Query(tags=(("a",), ("b", "c"))),
    "mrid": Query(mrid_prefix="c"),
    "qrid": Query(qrid_prefix="123"),
    "author": Query(authors=("ann",)),
    "action": Query(actions=("CREATE",)),
    "author and action": Query(authors=("ann",), actions=("UPDATE",)),
    "txn": Query(txn_from=1, txn_to=2),
    "updated": Query(updated_from=1_930_392_000_000),
    "created": Query(created_from=1_930_392_000_000),
    "page": Query(limit=10),
    "page of a box": Query(limit=10, spatial=Bbox(0, 0, 1, 1)),
}

WHOLE = "SEARCH s USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
"""The step that reads all rows of a collection, and of no other."""

SCANNING = {
    "app": Query(app_ids=("app",)),
    "property": Query(where=PropertyTest(("properties", "n"), Op.EQ, 7)),
    "updated before": Query(updated_to=1_930_392_000_000),
    "created before": Query(created_to=1_930_392_000_000),
}


@pytest.fixture(scope="module")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Path, int]]:
    """Features with some history; the path, and the txn of a version in the middle."""
    async with opened(tmp_path_factory.mktemp("filled") / "test.naksha") as storage:
        yield storage.path, await fill(storage)


async def fill(storage: SqliteStorage) -> int:
    """Gives the txn of a version in the middle."""
    roads = Handle(storage, "roads")
    features = [with_xyz(point(f"k{n}", n / 10, n / 10, n=n), tags=["a", "b"]) for n in range(300)]
    await roads.create(*features, author="ann")
    version = await storage.resolve(HEAD)
    await roads.update(*(point(f"k{n}", n / 10, n / 10, n=-n) for n in range(200)))
    await roads.delete(*(f"k{n}" for n in range(50)))
    return version.txn


def plan_of(path: Path, query: Query, at: int | None, layers: Layers = MAIN_ONLY) -> list[str]:
    """The steps that SQLite takes."""
    connection = connect(path)
    try:
        levels = readable(connection, layers, collection_of(connection, "roads"), at)
        text, values = statements.states(levels, query)
        rows = connection.execute("EXPLAIN QUERY PLAN " + text, values).fetchall()
    finally:
        connection.close()
    return [str(row[3]) for row in rows]


def scans(path: Path, query: Query, at: int | None, layers: Layers = MAIN_ONLY) -> list[str]:
    """The steps of the plan that read all rows of a collection, or more."""
    # A tree is searched by its own rules, and shown as a scan with an index. All that came before
    # a version is half of the history or more, index or not.
    steps = plan_of(path, query, at, layers)
    assert not [step for step in steps if step.startswith(("SCAN s", "BLOOM"))], steps
    pages = query.limit is not None and query.spatial is None
    return [
        step
        for step in steps
        if step.startswith("SEARCH s ")
        and (
            step == WHOLE
            or (step.endswith("(t=?)") and not (pages and "_id " in step))
            or step.endswith("_txn (t=? AND txn<?)")
        )
    ]


@pytest.mark.parametrize("states", States, ids=lambda states: states.name)
@pytest.mark.parametrize("query", SELECTIVE.values(), ids=SELECTIVE)
@pytest.mark.parametrize("past", [False, True], ids=["head", "past"])
async def test_no_scan(filled: tuple[Path, int], query: Query, past: bool, states: States) -> None:
    path, txn = filled
    asked = msgspec.structs.replace(query, states=states)
    assert scans(path, asked, txn if past else None) == []


@pytest.mark.parametrize("states", [States.LIVE, States.DELETED], ids=lambda s: s.name)
@pytest.mark.parametrize("query", SCANNING.values(), ids=SCANNING)
async def test_queries_without_an_index(
    filled: tuple[Path, int], query: Query, states: States
) -> None:
    """The exceptions that docs/sqlite.md names."""
    path, _ = filled
    assert scans(path, msgspec.structs.replace(query, states=states), None) == [WHOLE]


async def test_a_box_of_all_states_is_asked_of_three_trees(filled: tuple[Path, int]) -> None:
    """Those of HEAD, of tombstones and of the history; the history's tombstones have an index."""
    path, txn = filled
    for at in (None, txn):
        plan = plan_of(path, Query(spatial=Bbox(0, 0, 1, 1), states=States.ALL), at)
        assert len([step for step in plan if step.startswith("SCAN b VIRTUAL TABLE INDEX 2")]) == 3
        assert "SEARCH s USING INDEX naksha_hst_action (t=? AND action=?)" in plan


async def test_a_whole_version_reads_only_what_was_valid(filled: tuple[Path, int]) -> None:
    """HEAD from end to end, but of the history only what the tree gives."""
    path, txn = filled
    assert scans(path, Query(), None) == [WHOLE]
    assert scans(path, Query(), txn) == [WHOLE]


async def test_deleted_features_of_a_version(filled: tuple[Path, int]) -> None:
    path, txn = filled
    assert scans(path, Query(states=States.DELETED, ids=("k1",)), txn) == []
    plan = plan_of(path, Query(states=States.DELETED), txn)
    assert any("_hst_action (t=? AND action=?" in step for step in plan), plan


@pytest.mark.parametrize("kind", States)
@pytest.mark.parametrize("past", [False, True], ids=["head", "past"])
async def test_replaced_states_are_found_by_what_ended_them(
    filled: tuple[Path, int], kind: States, past: bool
) -> None:
    path, txn = filled
    query = Query(replaced_since=txn - 1, states=kind)
    (step,) = plan_of(path, query, txn if past else None)
    assert step.startswith("SEARCH s USING INDEX")
    assert "_hst_next (t=? AND txn_next>" in step


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        (Query(txn_from=1), ["head", "hst"]),
        (Query(txn_from=1, states=States.ALL), ["head", "del", "hst"]),
        (Query(updated_from=1_930_392_000_000, states=States.ALL), ["head", "del", "hst"]),
    ],
    ids=["live", "all", "updated"],
)
async def test_states_between_two_versions_are_a_range_of_the_index(
    filled: tuple[Path, int], query: Query, tables: list[str]
) -> None:
    """States after the second version are not read."""
    path, txn = filled
    found = [step for step in plan_of(path, query, txn) if step.startswith("SEARCH s ")]
    assert found == [
        f"SEARCH s USING INDEX naksha_{table}_txn (t=? AND txn>? AND txn<?)" for table in tables
    ]


async def test_states_that_began_before_a_given_end_are_read_to_that_end(
    filled: tuple[Path, int],
) -> None:
    """The index is read to the nearer end, not to the version."""
    path, txn = filled
    connection = connect(path)
    levels = readable(connection, MAIN_ONLY, collection_of(connection, "roads"), txn)
    connection.close()
    text, _ = statements.states(levels, Query(txn_from=1, txn_to=2))
    assert re.findall(r"(?<!\+)s\.txn <=? \?\d+", text) == re.findall(r"s\.txn < \?\d+", text)


async def test_a_box_of_a_version_is_read_as_the_tree_gives_it(filled: tuple[Path, int]) -> None:
    """Without a list of all states first; the tree compares the box before the rest.

    Both trees compare times (column 6 and 7), so that states of other times are not looked up.
    """
    path, txn = filled
    plan = plan_of(path, Query(spatial=Bbox(0, 0, 1, 1)), txn)
    assert [step for step in plan if "naksha_version" not in step and "SCALAR" not in step] == [
        "COMPOUND QUERY",
        "LEFT-MOST SUBQUERY",
        "SCAN b VIRTUAL TABLE INDEX 2:B0D1B2D3B6B4D5",
        "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
        "UNION ALL",
        "SCAN b VIRTUAL TABLE INDEX 2:B0D1B2D3B6D7B4D5",
        "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "update_heads",
        "update_heads_signed",
        "update_heads_moved",
        "heads_to_history",
        "delete_heads",
        "delete_tombs",
    ],
)
async def test_a_write_looks_up_what_is_staged(filled: tuple[Path, int], name: str) -> None:
    """And does not read all of HEAD for it."""
    connection = connect(filled[0])
    connection.execute(queries()["stage_table"])
    text = queries()[name]
    values = (1,) * max((int(n) for n in re.findall(r"\?(\d)", text)), default=0)
    rows = connection.execute("EXPLAIN QUERY PLAN " + text, values).fetchall()
    connection.close()
    steps = [str(row[3]) for row in rows]
    assert [step for step in steps if step.startswith("SCAN") and "stage" not in step] in (
        [],
        ["SCAN s"],
    )
    assert any(step.startswith("SEARCH") for step in steps), steps


async def test_the_connection_that_made_the_file_plans_like_others(storage: SqliteStorage) -> None:
    def plan(connection: sqlite3.Connection) -> list[str]:
        levels = readable(connection, MAIN_ONLY, collection_of(connection, "roads"), None)
        text, values = statements.states(levels, SELECTIVE["tags"])
        return [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]

    found = await storage._writer.task(plan)
    assert "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)" in found, found


@pytest.fixture(scope="module")
async def branched(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Path, int, list[Layers]]]:
    """A branch and a branch of it, both with changes of their own; and a version of both."""
    async with opened(tmp_path_factory.mktemp("branched") / "test.naksha") as storage:
        await fill(storage)
        yield storage.path, *await branch_off(storage)


async def branch_off(storage: SqliteStorage) -> tuple[int, list[Layers]]:
    """Gives the txn of a version of both branches, and what they are read through."""
    one = await branch_of(storage)
    features = [with_xyz(point(f"k{n}", n / 10, n / 10, n=0), tags=["a"]) for n in range(100)]
    await one.on(Handle(storage, "roads")).upsert(*features)
    two = await one.branch()
    await two.on(Handle(storage, "roads")).delete(*(f"k{n}" for n in range(60, 90)))
    version = await storage.resolve(HEAD)
    await Handle(storage, "roads").update(*(point(f"k{n}", n=7) for n in range(150, 200)))
    return version.txn, [one.layers, two.layers]


@pytest.mark.parametrize("states", States, ids=lambda states: states.name)
@pytest.mark.parametrize("query", SELECTIVE.values(), ids=SELECTIVE)
@pytest.mark.parametrize("past", [False, True], ids=["head", "past"])
async def test_no_scan_on_a_branch(
    branched: tuple[Path, int, list[Layers]], query: Query, past: bool, states: States
) -> None:
    path, txn, branches = branched
    asked = msgspec.structs.replace(query, states=states)
    for layers in branches:
        at = txn if past else None
        assert scans(path, asked, at, layers) == []
        masks = [s for s in plan_of(path, asked, at, layers) if s.split()[1] == "m"]
        assert masks
        assert all(step.startswith("SEARCH m USING") for step in masks), masks


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        LogFilter(),
        LogFilter(overlays=None, authors=("ann",), collections=("roads",), text="x"),
        LogFilter(overlays=(1, 2), collections=("roads",)),
    ],
    ids=["main", "filtered", "branches"],
)
async def test_the_log_is_read_along_its_versions(
    branched: tuple[Path, int, list[Layers]], where: LogFilter, newest_first: bool
) -> None:
    """Never all of its entries; that of a branch not even along all versions."""
    connection = connect(branched[0])
    text, values = statement_of(3, 10, where, [], newest_first=newest_first)
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]
    connection.close()
    steps = [step.split()[:2] for step in plan]
    assert ["SCAN", "t"] not in steps
    assert ["SCAN", "e"] not in steps
    if where.overlays == (1, 2):
        assert ["SCAN", "v"] not in steps
        assert any("naksha_tx_overlay" in step for step in plan), plan
