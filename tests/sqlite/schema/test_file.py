"""Files that are not storages, read-only or full: clear errors, and no damage."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import naksha
from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    NakshaError,
    NotFound,
    NotSupported,
    ReadOnly,
    Unavailable,
)
from naksha.model.query import Bbox, Query
from naksha.model.version import AtSeq
from naksha.spi.locations import path_of
from naksha.sqlite import SqliteStorage
from naksha.sqlite.connection.errors import WriteLockTimeout
from naksha.sqlite.schema.file import SCHEMA_VERSION
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.bulk.suite_staging import written
from naksha.testing.storage.suite_support import APP, Handle, ids_of, point
from naksha.testing.storage.write.suite_concurrency import check_history, check_log
from tests.sqlite.connection import out_of_room
from tests.sqlite.support import rows, shell

NOBODY = 65534


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:town.naksha", "town.naksha"),
        ("file:sub/town.naksha", "sub/town.naksha"),
        ("file:///data/a%20b.naksha", "/data/a b.naksha"),
        ("file:/data/town.naksha", "/data/town.naksha"),
        ("town.naksha", "town.naksha"),
    ],
)
def test_locations(location: str, path: str) -> None:
    assert path_of(location) == Path(path)


@pytest.mark.parametrize("location", ["file:", "file://host/x", "file:x?mode=ro", "file:x#y"])
def test_no_locations(location: str) -> None:
    with pytest.raises(InvalidArgument):
        path_of(location)


async def test_a_file_of_another_program(path: Path) -> None:
    shell(path, "CREATE TABLE mine (x)", "INSERT INTO mine VALUES (1)")
    with pytest.raises(NotSupported, match="not a Naksha storage"):
        await SqliteStorage.open(path)
    assert rows(path, "SELECT * FROM mine") == [(1,)]


async def test_no_database_at_all(path: Path) -> None:
    path.write_text("just a text, long enough to be looked at " * 10)
    before = path.read_bytes()
    with pytest.raises(NotSupported, match="not an SQLite database"):
        await SqliteStorage.open(path)
    assert path.read_bytes() == before


async def test_written_by_a_newer_naksha(storage: SqliteStorage, path: Path) -> None:
    await storage.close()
    shell(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(NotSupported, match="newer Naksha"):
        await SqliteStorage.open(path)


async def test_of_another_storage(storage: SqliteStorage, path: Path) -> None:
    await storage.close()
    with pytest.raises(InvalidArgument, match="holds storage 'test'"):
        await SqliteStorage.open(path, "other")
    again = await SqliteStorage.open(path)
    assert (again.id, again.number) == ("test", 7)
    await again.close()


async def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened"):
        await SqliteStorage.open(tmp_path / "none" / "x.naksha")


async def test_damaged(storage: SqliteStorage, path: Path) -> None:
    await Handle(storage, "roads").create(*(point(f"k{n}", n=n) for n in range(100)))
    await storage.close()
    whole = bytearray(path.read_bytes())
    whole[4096:40_000] = b"\xff" * (40_000 - 4096)
    path.write_bytes(whole)
    with pytest.raises(NakshaError):
        opened = await SqliteStorage.open(path)
        await Handle(opened, "roads").live()


READ_ONLY = """
import asyncio, os, sys
from naksha.model.errors import NakshaError
from naksha.sqlite import SqliteStorage
from naksha.sqlite.sql import queries, schema_files

async def main():
    with open(sys.argv[1], "rb") as file:
        print(file.read(15).decode())
    try:
        storage = await SqliteStorage.open(sys.argv[1], busy_s=1)
        async with storage.write("app") as session:
            await session.create("roads", [{"type": "Feature", "id": "x", "geometry": None}])
    except NakshaError as error:
        print(error.code, error.message)

queries(), schema_files()  # Loaded while we may read them.
if os.geteuid() == 0:  # Root may write everywhere.
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
asyncio.run(main())
"""


async def test_a_read_only_disk(storage: SqliteStorage, path: Path, tmp_path: Path) -> None:
    await Handle(storage, "roads").create(point("a"))
    await storage.close()
    folder = Path("/var/tmp") / f"naksha-read-only-{os.getpid()}"
    folder.mkdir()
    try:
        place = folder / path.name
        shutil.copy(path, place)
        place.chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(place), str(NOBODY)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        readable, refused = done.stdout.splitlines()
        assert readable == "SQLite format 3"
        assert refused.startswith("not_supported "), refused
        assert "read-only" in refused
        assert place.read_bytes() == path.read_bytes()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def test_a_full_disk(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=0))
    pages = rows(path, "PRAGMA page_count")[0][0]

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")

    await storage._writer.task(fill)
    told = []
    with pytest.raises(Unavailable, match="disk is full"):
        for n in range(1000):
            await roads.create(point(f"k{n}", text="x" * 1000))
            told.append(f"k{n}")
    both = asyncio.gather(
        *(roads.create(point(f"late {n}", text="x" * 5000)) for n in range(5)),
        return_exceptions=True,
    )
    assert all(isinstance(error, Unavailable) for error in await both)
    await storage._writer.task(
        lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone() and None
    )
    assert set(told) | {"a"} == set(ids_of(await roads.live()))
    await roads.create(point("after"))
    await check_history(roads)
    await check_log(storage)


async def test_a_disk_that_takes_no_more_writes(storage: SqliteStorage, path: Path) -> None:
    """The system itself refuses a write to the log, in the middle of it."""
    await Handle(storage, "roads").create(point("a"))
    await storage.close()
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", out_of_room.__name__, str(path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await done.communicate()
    assert err.decode() == ""
    lines = [line.partition(" ")[::2] for line in out.decode().splitlines()]
    told = [value for word, value in lines if word == "written"]
    refused = [value for word, value in lines if word == "refused"]
    assert len(told) > 10
    assert len(refused) == 4
    for text in refused:
        assert text.startswith("unavailable The disk"), text
    (read,) = [value.split() for word, value in lines if word == "read"]
    assert told[-1] == "after"
    assert set(read) == {"a", *told[:-1]}
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    opened = await SqliteStorage.open(path, "test")
    assert set(ids_of(await Handle(opened, "roads").live())) == {"a", *told}
    await check_history(Handle(opened, "roads"))
    await check_log(opened)
    await opened.close()


async def test_another_process_that_writes_for_too_long(storage: SqliteStorage, path: Path) -> None:
    await storage.close()
    impatient = await SqliteStorage.open(path, busy_s=0.3)
    roads = Handle(impatient, "roads")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(WriteLockTimeout, match="Another process"):
        await roads.create(point("a"))
    assert await roads.live() == []
    other.execute("ROLLBACK")
    other.close()
    await roads.create(point("a"))
    await impatient.close()


async def test_another_process_that_writes_is_waited_for(
    storage: SqliteStorage, path: Path
) -> None:
    roads = Handle(storage, "roads")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(roads.create(point("a")))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    assert await roads.live() == []
    other.execute("COMMIT")
    other.close()
    await waiting
    assert ids_of(await roads.live()) == ["a"]


async def test_a_copy_of_vacuum_into_is_in_wal_mode_once_it_was_opened(
    storage: SqliteStorage, path: Path, tmp_path: Path
) -> None:
    await Handle(storage, "roads").create(point("a"))
    copy = tmp_path / "copy.naksha"
    rows(path, f"VACUUM INTO '{copy}'")
    assert rows(copy, "PRAGMA journal_mode") == [("delete",)]
    opened = await SqliteStorage.open(copy, "test")
    assert rows(copy, "PRAGMA journal_mode") == [("wal",)]
    reader = sqlite3.connect(copy, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM roads").fetchone() == (1,)
    await Handle(opened, "roads").create(point("b"))  # the write does not wait for the reader
    reader.close()
    await opened.close()


async def test_a_file_is_opened_read_only(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", n=1))
    before = await roads.published()
    reader = await SqliteStorage.open(path, read_only=True)
    seen = Handle(reader, "roads")
    await roads.update(point("a", n=2))
    after = await roads.published()
    for version, n in ((before, 1), (after, 2)):
        (state,) = await seen.live(AtSeq(version.seq_number))
        assert state.feature["properties"]["n"] == n
    assert await reader.wait_beyond(before.seq_number, 5) == after.seq_number
    with pytest.raises(ReadOnly):
        await seen.create(point("b"))
    with pytest.raises(ReadOnly):
        await reader.pin("p", before)
    with pytest.raises(ReadOnly):
        await reader.maintain()
    await reader.close()
    with naksha.connect(f"file:{path}", app_id="app", read_only=True) as database:
        assert database.collection("roads").get("a") is not None
        with pytest.raises(ReadOnly):
            database.collection("roads").create(point("b"))
    with pytest.raises(NotFound):
        await SqliteStorage.open(path.with_name("none"), read_only=True)
    assert not path.with_name("none").exists()


async def test_collections_and_branches_are_rows(storage: SqliteStorage, path: Path) -> None:
    """No connection has to read the schema again when they come and go."""
    before = rows(path, "PRAGMA schema_version")
    for name in ("one", "two"):
        info = CollectionInfo(id=name)
        await storage.run(lambda s, info=info: s.create_collection(info), APP)  # type: ignore[misc]
    one = Handle(storage, "one")
    await one.create(point("a"))
    await (await branch_of(storage)).on(one).update(point("a", n=1))
    await written(storage, "three", [point("b")])
    await storage.run(lambda s: s.drop_collection("one"), APP)
    await storage.maintain()
    assert rows(path, "PRAGMA schema_version") == before
    assert ids_of(await Handle(storage, "three").live()) == ["b"]


async def test_table_numbers_end_where_trees_are_not_exact(
    storage: SqliteStorage, path: Path
) -> None:
    def near_the_end(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE naksha_storage SET last_table = ?", (2**22 - 2,))

    await storage._writer.task(near_the_end)
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="last")), APP)
    last = Handle(storage, "last")
    await last.create(point("a"), point("b", 20, 20))
    assert ids_of(await last.states(Query(spatial=Bbox(8, 50, 9, 51)))) == ["a"]
    assert await storage.mismatches("last", 10) == []
    with pytest.raises(LimitExceeded, match="table numbers of the file are used"):
        await storage.run(lambda s: s.create_collection(CollectionInfo(id="more")), APP)
