"""Files that former releases made: they are upgraded when they are opened, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Query, States
from naksha.model.transaction import MAIN
from naksha.model.version import AtSeq
from naksha.sqlite import SqliteStorage
from naksha.sqlite.files import APPLICATION_ID, SCHEMA_VERSION
from naksha.sqlite.sql import schema_files
from naksha.testing.branch_support import branch_of
from naksha.testing.suite_concurrency import check_history
from naksha.testing.suite_support import APP, Handle, ids_of, point
from tests.sqlite.support import ShellError, rows, shell

DUMP = Path(__file__).parent / "data" / "schema_1.dump"
"""A storage of schema 1, as the program sqlite3 dumps it: the collection `roads` with three
features, of which one was updated and one deleted, and a pin."""


@pytest.fixture
def old(path: Path) -> Path:
    """A file of schema 1, in the mode that files of any release are in."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(DUMP.read_text())
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    return path


def schema_of(path: Path) -> list[tuple[str, str]]:
    """All tables, indices and triggers of a storage's own, with the columns of tables."""
    found = rows(path, "SELECT type, name, sql FROM sqlite_master WHERE name LIKE 'naksha_%'")
    own = [(kind, name, text) for kind, name, text in found if not name[7].isdigit()]
    columns = [
        (name, str(rows(path, "SELECT name, type, dflt_value FROM pragma_table_info(?)", name)))
        for kind, name, _ in own
        if kind == "table"
    ]
    return sorted([*columns, *((name, str(text)) for kind, name, text in own if kind != "table")])


def test_there_is_a_file_for_each_step() -> None:
    assert len(schema_files()) == SCHEMA_VERSION


async def test_everything_is_still_there(old: Path) -> None:
    storage = await SqliteStorage.open(old)
    assert rows(old, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert (storage.id, storage.number) == ("town", 7)
    roads = Handle(storage, "roads")
    assert ids_of(await roads.live()) == ["a", "c"]
    assert ids_of(await roads.live(AtSeq(2))) == ["a", "b", "c"]
    assert ids_of(await roads.states(Query(tags=(("old",),)))) == ["a", "c"]
    for asked in (Query(tags=(("old",),)), Query(spatial=Bbox(-180, -90, 180, 90))):
        deleted = msgspec.structs.replace(asked, states=States.DELETED)
        assert ids_of(await roads.states(deleted)) == ["b"]
    log = await storage.transactions()
    assert [(t.seq_number, t.author, t.overlay) for t in log] == [
        (1, None, MAIN),
        (2, "ann", MAIN),
        (3, "bob", MAIN),
        (4, None, MAIN),
    ]
    assert rows(old, "SELECT name, guards FROM naksha_pin") == [("tag:first", 0)]
    await storage.close()


async def test_it_works_like_a_new_one(old: Path) -> None:
    storage = await SqliteStorage.open(old)
    roads = Handle(storage, "roads")
    there = (await branch_of(storage)).on(roads)
    await there.update(point("a", n=9))
    await there.restore("b")
    await roads.delete("a")
    await storage.run(lambda s: s.keep("tag", "first", {"seq": 2}), APP)
    assert ids_of(await there.live()) == ["a", "b", "c"]
    assert ids_of(await roads.live()) == ["c"]
    for place in (roads, there):
        await check_history(place)
    await storage.close()
    shell(old, "UPDATE roads SET jsondata = json_set(jsondata, '$.properties.n', 5)")
    for table in ("naksha_kept", "naksha_overlay", "naksha_overlaid", "naksha_pin"):
        with pytest.raises(ShellError, match="not allowed"):
            shell(old, f"DELETE FROM {table}")
    again = await SqliteStorage.open(old)
    assert (await Handle(again, "roads").get("c")).feature["properties"]["n"] == 5
    await check_history(Handle(again, "roads"))
    await again.close()


async def test_old_and_new_files_have_the_same_schema(old: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.naksha"
    for path in (old, fresh):
        await (await SqliteStorage.open(path)).close()
    new = schema_of(fresh)
    assert new
    assert [entry for entry in schema_of(old) if entry in new] == new


async def test_old_and_new_collections_have_the_same_tables_and_indices(
    old: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh.naksha"
    await (await SqliteStorage.open(old)).close()
    storage = await SqliteStorage.open(fresh)
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), APP)
    await storage.close()
    text = "SELECT type, name FROM sqlite_master WHERE name LIKE 'roads%' OR name GLOB '*_1*'"
    assert sorted(rows(old, text)) == sorted(rows(fresh, text))


async def test_several_at_once_upgrade_it_once(old: Path) -> None:
    opened = await asyncio.gather(*(SqliteStorage.open(old) for _ in range(4)))
    for storage in opened:
        assert ids_of(await Handle(storage, "roads").live()) == ["a", "c"]
        await storage.close()


async def test_a_file_that_is_not_meant_is_left_alone(old: Path) -> None:
    with pytest.raises(InvalidArgument):
        await SqliteStorage.open(old, "other")
    assert rows(old, "PRAGMA user_version") == [(1,)]


async def test_dropped_collections_of_an_older_file_are_marked(old: Path) -> None:
    connection = sqlite3.connect(old)
    connection.execute("UPDATE naksha_shell SET managed = 1")
    connection.execute("UPDATE naksha_collection SET delete_at = 4102444800000")
    connection.execute("UPDATE naksha_shell SET managed = 0")
    connection.commit()
    connection.close()
    storage = await SqliteStorage.open(old)
    try:
        assert await storage.collections() == []
        dropped = await storage.collection("roads", dropped=True)
        assert dropped.dropped_at > 0
        with pytest.raises(ShellError, match="The collection is dropped"):
            shell(old, "DELETE FROM roads")
        await storage.run(lambda s: s.restore_collection("roads"), APP)
        await storage.run(
            lambda s: s.change_collection("roads", CollectionChange(delete_at=4102444800000)), APP
        )
        shell(old, "DELETE FROM roads WHERE id = 'a'")
        assert ids_of(await Handle(storage, "roads").live()) == ["c"]
    finally:
        await storage.close()
