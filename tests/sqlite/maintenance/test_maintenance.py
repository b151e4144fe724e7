"""Maintenance of a file: short steps, also after a failed one; the file shrinks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from naksha.model.errors import NakshaError
from naksha.model.query import Query
from naksha.sqlite import SqliteStorage
from naksha.sqlite.maintenance import rounds
from naksha.testing.storage.suite_support import Handle, point
from tests.sqlite.support import rows, shell

REFUSE = (
    "CREATE TRIGGER keep BEFORE DELETE ON naksha_collection WHEN old.id = 'places'"
    " BEGIN SELECT RAISE(ABORT, 'places must stay'); END"
)


async def test_a_collection_that_cannot_be_removed_delays_nothing_else(
    storage: SqliteStorage, path: Path
) -> None:
    await storage.run(lambda session: session.drop_collection("places"), "app")
    await Handle(storage, "roads").create(point("a"))
    shell(path, REFUSE)
    with pytest.raises(NakshaError, match=r"removal of places: .*places must stay"):
        await storage.maintain()
    info = await storage.collection("roads")
    assert info.estimated_feature_count == 1
    shell(path, "DROP TRIGGER keep")
    await storage.maintain()
    assert await storage.count("roads", Query()) == 1
    assert shell(path, "SELECT count(*) FROM naksha_collection WHERE id = 'places'") == "0"


async def test_a_dropped_collection_is_removed_some_rows_at_a_time_and_the_file_shrinks(
    storage: SqliteStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROWS_MAX", 100)
    monkeypatch.setattr(rounds, "PAGES_MAX", 50)
    places, roads = Handle(storage, "places"), Handle(storage, "roads")
    await roads.create(point("a"))
    await places.create(*(point(f"k{n}", n / 10, n / 10, text="x" * 2000) for n in range(450)))
    await places.update(*(point(f"k{n}", n / 10, n / 10, text="y" * 2000) for n in range(450)))
    await places.delete(*(f"k{n}" for n in range(50)))
    before = rows(path, "PRAGMA page_count")[0][0]
    await storage.run(lambda session: session.drop_collection("places"), "app")
    deleted: list[int] = []
    step = rounds._empty_trash

    def counted(connection: sqlite3.Connection) -> bool:
        changes = connection.total_changes
        more = step(connection)
        deleted.append(connection.total_changes - changes)
        return more

    monkeypatch.setattr(rounds, "_empty_trash", counted)
    await storage.maintain()
    # A state, its box, three rows of the tree's own tables, and no tags.
    assert max(deleted) <= 1000
    assert len(deleted) > 10
    for table in ("head", "del", "hst", "box", "gone", "past"):
        assert {n >> 40 for (n,) in rows(path, f"SELECT n FROM naksha_{table}")} <= {1}
    after = rows(path, "PRAGMA page_count")[0][0]
    assert after < before / 4
    assert rows(path, "PRAGMA freelist_count") == [(0,)]
    assert await roads.live()
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
