"""Every documented query goes through an index; only a whole extract reads a whole table."""

from __future__ import annotations

from pathlib import Path

import pytest
import shapely

from naksha.model.query import Bbox, Intersects, Query, States, Tile
from naksha.model.version import HEAD
from naksha.sqlite import SqliteStorage, statements
from naksha.sqlite.files import connect
from naksha.sqlite.rows import collection_of
from naksha.testing.suite_support import Handle, point, with_xyz

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
    "page": Query(limit=10),
    "page of a box": Query(limit=10, spatial=Bbox(0, 0, 1, 1)),
}


@pytest.fixture
async def filled(storage: SqliteStorage) -> tuple[Path, int]:
    """Features with some history; the path, and the txn of a version in the middle."""
    roads = Handle(storage, "roads")
    features = [with_xyz(point(f"k{n}", n / 10, n / 10, n=n), tags=["a", "b"]) for n in range(300)]
    await roads.create(*features, author="ann")
    version = await storage.resolve(HEAD)
    await roads.update(*(point(f"k{n}", n / 10, n / 10, n=-n) for n in range(200)))
    await roads.delete(*(f"k{n}" for n in range(50)))
    return storage.path, version.txn


def scans(path: Path, query: Query, at: int | None) -> list[str]:
    """The steps of the plan that read a table of features from end to end."""
    connection = connect(path)
    try:
        collection = collection_of(connection, "roads")
        text, values = statements.states(collection, query, at)
        rows = connection.execute("EXPLAIN QUERY PLAN " + text, values).fetchall()
    finally:
        connection.close()
    plan = [str(row[3]) for row in rows]
    # A tree is searched by its own rules, and shown as a scan with an index.
    return [step for step in plan if step == "SCAN s" or step.startswith("SCAN s USING INTEGER")]


@pytest.mark.parametrize("query", SELECTIVE.values(), ids=SELECTIVE)
@pytest.mark.parametrize("past", [False, True], ids=["head", "past"])
async def test_no_scan_for_live_features(
    filled: tuple[Path, int], query: Query, past: bool
) -> None:
    path, txn = filled
    assert scans(path, query, txn if past else None) == []


async def test_a_whole_version_reads_only_what_was_valid(filled: tuple[Path, int]) -> None:
    """HEAD from end to end, but of the history only what the tree gives."""
    path, txn = filled
    assert scans(path, Query(), None) == ["SCAN s"]
    assert scans(path, Query(), txn) == ["SCAN s"]


async def test_deleted_features_of_a_version(filled: tuple[Path, int]) -> None:
    path, txn = filled
    assert scans(path, Query(states=States.DELETED, ids=("k1",)), txn) == []
    connection = connect(path)
    collection = collection_of(connection, "roads")
    text, values = statements.states(collection, Query(states=States.DELETED), txn)
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, values)]
    connection.close()
    assert any("roads_hst" not in step and "_hst_action" in step for step in plan), plan
