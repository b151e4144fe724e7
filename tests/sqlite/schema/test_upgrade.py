"""Files of earlier releases: upgraded when they are opened, without loss."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import InvalidArgument, NotSupported, Unavailable
from naksha.model.geo.tile_cells import WORLD_CELL
from naksha.model.query import Bbox, Query, States
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq
from naksha.sqlite import SqliteStorage
from naksha.sqlite.schema.file import APPLICATION_ID, SCHEMA_VERSION
from naksha.sqlite.sql import schema_files
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import APP, Handle, ids_of, point
from naksha.testing.storage.versions.tile_cell_case import EVERYWHERE, around, last_change
from naksha.testing.storage.write.suite_concurrency import check_history
from tests.sqlite.schema.upgrade_record import record
from tests.sqlite.support import ShellError, rows, shell

REWORDED = {
    r"(History before version \d+) is gone( \(collection '(\w+)')": r"\1 of '\3' has expired\2",
    r"No collection ('\w+') on the branch": r"The collection \1 does not exist on the branch",
}
"""Messages that the former release worded otherwise, and their present form."""
DUMP = Path(__file__).parent / "data" / "schema_1.dump"
"""A storage of schema 1, as the program sqlite3 dumps it: the collection `roads` with three
features, of which one was updated and one deleted, and a pin."""
BRANCHES = {
    "one": [(1, None), (0, 2026053000000000002)],
    "two": [(2, None), (1, 2026053000000000007), (0, 2026053000000000002)],
}
"""The branches of the file of schema 6: overlays, each with the transaction that it is read at."""


@pytest.fixture
def old(path: Path) -> Path:
    """A file of schema 1."""
    make(path, DUMP.read_text(), 1)
    return path


def make(path: Path, dump: str, version: int) -> None:
    """Make a file out of a dump, in the mode that files of any release are in."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(dump)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


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
    await storage.run(lambda s: s.store_object("tag", "first", {"seq": 2}), APP)
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


async def test_a_file_of_schema_6_reads_as_it_did(path: Path) -> None:
    """Everything that the release before returned, at every version and on every branch."""
    data = DUMP.parent
    make(path, gzip.decompress((data / "schema_6.dump.gz").read_bytes()).decode(), 6)
    recorded = gzip.decompress((data / "schema_6.json.gz").read_bytes()).decode()
    for former, present in REWORDED.items():
        recorded = re.sub(former, present, recorded)
    expected = msgspec.json.decode(recorded)
    for info in expected["infos"]:
        info["partitions"] = 1  # a member that the release before did not have
    storage = await SqliteStorage.open(path, "town")
    try:
        found = msgspec.json.decode(msgspec.json.encode(await record(storage, BRANCHES)))
        assert found.keys() == expected.keys()
        for key in expected:
            assert found[key] == expected[key], key
        for info in await storage.collections():
            assert await storage.mismatches(info.id, 10) == []
    finally:
        await storage.close()
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "PRAGMA auto_vacuum") == [(2,)]
    tables = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert [name for name in tables if not name.startswith(("naksha_", "sqlite_"))] == []
    views = {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'view'")}
    assert {"roads", "places", "old:name-1", "bin", "reborn", "feature"} <= views
    shell(path, "DELETE FROM roads WHERE id = 'k7'", "DELETE FROM feature WHERE id = 'f'")


async def test_collections_of_an_older_file_count_as_changed_by_its_last_version(
    path: Path,
) -> None:
    """Also if their log rows have expired; later changes are those of cells."""
    dump = (DUMP.parent / "schema_6.dump.gz").read_bytes()
    make(path, gzip.decompress(dump).decode(), 6)
    storage = await SqliteStorage.open(path)
    try:
        last = await storage.resolve(HEAD)
        log = await storage.cell_log(0)
        assert (log.txn, log.is_settled) == (last.txn, True)
        assert log.changes
        assert all(change.cells == [WORLD_CELL] for change in log.changes)
        names = [info.id for info in await storage.collections(dropped=True)]
        for name, overlay in [(name, MAIN) for name in names] + [("roads", 1), ("roads", 2)]:
            for box in (around(8.5, 50.25), EVERYWHERE):
                assert await storage.last_cell_change(name, box, overlay=overlay) == last.txn
        roads = Handle(storage, "roads")
        await roads.create(point("new", 8.5, 50.25))
        await roads.published()
        assert await last_change(roads, around(8.5, 50.25)) > last.txn
        assert await last_change(roads, around(-100, -20)) == last.txn
    finally:
        await storage.close()


async def test_a_file_of_shared_tables_is_not_rebuilt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upgrade adds columns, tables and views only, and needs no room."""
    await (await SqliteStorage.open(path, "town")).close()
    undo = ["DROP TRIGGER naksha_edited_cells_log", "DROP VIEW naksha_edited_cells"]
    undo += ["DROP VIEW naksha_edited_cell", "DROP TABLE naksha_cell"]
    undo += ["DROP TRIGGER naksha_storage_no_update", "ALTER TABLE naksha_tx DROP COLUMN cells"]
    undo += ["ALTER TABLE naksha_storage DROP COLUMN cells_txn", "PRAGMA user_version = 8"]
    shell(path, *undo)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    monkeypatch.setattr("naksha.sqlite.schema.file.shrink", None)
    await (await SqliteStorage.open(path)).close()
    fresh = path.with_name("fresh.naksha")
    await (await SqliteStorage.open(fresh)).close()
    assert schema_of(path) == schema_of(fresh)


async def test_an_upgrade_without_room_is_refused(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = old.stat().st_size

    def usage(_: object) -> Any:
        return SimpleNamespace(free=3 * size - 1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(Unavailable, match=f"needs {3 * size} bytes"):
        await SqliteStorage.open(old)
    assert rows(old, "PRAGMA user_version") == [(1,)]


async def test_an_old_file_is_not_opened_read_only(old: Path) -> None:
    with pytest.raises(NotSupported, match="open it once without read_only"):
        await SqliteStorage.open(old, read_only=True)


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
