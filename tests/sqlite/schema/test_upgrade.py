"""Files of earlier releases: upgraded when they are opened, without loss."""

from __future__ import annotations

import asyncio
import gzip
import logging
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
from naksha.spi.storage import BranchLayer
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
    r"(History before version (\d+)) is gone( \(collection '(\w+)')": (
        r"\1 of '\4' has expired; read version \2 or a later one\3"
    ),
    r"No collection ('\w+') on the branch": r"The collection \1 does not exist on the branch",
}
"""Messages that the former release worded otherwise, and their present form."""
DUMP = Path(__file__).parent / "data" / "schema_1.dump"
"""A storage of schema 1, as the program sqlite3 dumps it: the collection `roads` with three
features, of which one was updated and one deleted, and a pin."""
DUMP_8 = DUMP.parent / "schema_8.dump.gz"
"""A storage of schema 8: six roads at (0, 0) to (5, 5), created in version 2. Version 3 moves `a`
and changes a property of `b`, version 4 deletes `c`, version 5 moves `d` on a branch, and version 6
creates `nowhere`, which has no geometry."""
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


@pytest.fixture
def old_8(path: Path) -> Path:
    """A file of schema 8."""
    make(path, gzip.decompress(DUMP_8.read_bytes()).decode(), 8)
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


async def test_progress_is_logged_collection_by_collection(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "naksha.sqlite.schema.upgrade"):
        await (await SqliteStorage.open(old)).close()
    found = re.search(r"collection roads \((\d) of (\d), (\d+) rows\)", caplog.text)
    assert found is not None
    states = sum(
        rows(old, f"SELECT count(*) FROM naksha_{t}")[0][0] for t in ("head", "del", "hst")
    )
    assert found[1] == found[2] == "1"
    assert int(found[3]) >= states > 0  # with the rows of trees and tags


@pytest.mark.parametrize("version", [1, 8])
async def test_old_and_new_files_have_the_same_schema(
    path: Path, tmp_path: Path, version: int
) -> None:
    dump = DUMP.read_bytes() if version == 1 else gzip.decompress(DUMP_8.read_bytes())
    make(path, dump.decode(), version)
    fresh = tmp_path / "fresh.naksha"
    for each in (path, fresh):
        await (await SqliteStorage.open(each)).close()
    new = schema_of(fresh)
    assert new
    assert [entry for entry in schema_of(path) if entry in new] == new


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


async def test_the_boxes_of_a_file_of_schema_8_get_their_times(old_8: Path) -> None:
    storage = await SqliteStorage.open(old_8, "town")
    try:
        roads = Handle(storage, "roads")
        south = Query(spatial=Bbox(0, 0, 3, 3))
        found = [ids_of(await roads.states(south, AtSeq(n))) for n in range(2, 7)]
        assert found == [["a", "b", "c", "d"]] * 2 + [["a", "b", "d"]] * 3
        corner = Query(spatial=Bbox(0, 0, 0.1, 0.1))
        assert [ids_of(await roads.states(corner, AtSeq(n))) for n in (2, 3)] == [["a"], []]
        layers = [BranchLayer(1, None), BranchLayer(MAIN, (await storage.resolve(AtSeq(4))).txn)]
        there = Handle(storage.on_branch(layers), "roads")
        assert ids_of(await there.states(south)) == ["a", "b"]
        assert await storage.mismatches("roads", 10) == []
    finally:
        await storage.close()
    times = "SELECT s.id, b.since FROM naksha_box b JOIN naksha_head s ON s.n = b.n ORDER BY b.n"
    assert dict(rows(old_8, times)) == {"a": 3, "b": 3, "d": 5, "e": 2, "f": 2}
    assert rows(old_8, "SELECT count(*) FROM naksha_box") == [(6,)]
    assert rows(old_8, "PRAGMA integrity_check") == [("ok",)]


async def test_a_file_with_shared_tables_needs_little_room(
    old_8: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = old_8.stat().st_size
    free = size - 1

    def usage(_: object) -> Any:
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(Unavailable, match=f"needs {size} bytes"):
        await SqliteStorage.open(old_8)
    free = size
    await (await SqliteStorage.open(old_8)).close()
    assert rows(old_8, "PRAGMA user_version") == [(SCHEMA_VERSION,)]


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
