"""The commands `naksha storage list`, `show`, `fork` and `view`, run as a user runs them."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from naksha.model.collection import CollectionInfo
from naksha.psql import PsqlStorage
from naksha.sqlite import SqliteStorage
from tests.cli.command import naksha
from tests.psql.support import connect_to, until_elected


async def test_storages_of_a_catalog_are_listed_with_their_ids(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    assert naksha("realm", "create", "maps", *data).returncode == 0
    done = naksha("storage", "list", *data)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [line[:3] for line in lines] == [
        ["default", "default", "default"],
        ["maps", "default", "maps-default"],
    ]
    assert len({line[3] for line in lines}) == 2
    (file,) = tmp_path.rglob("*maps*.naksha")
    shown = naksha("storage", "show", f"file:{file}", "--json")
    assert json.loads(shown.stdout) == {
        "id": "maps-default",
        "number": int(lines[1][3]),
        "former": [],
    }


async def test_a_copied_file_is_forked(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "town.naksha", number=7)
    await storage.close()
    shutil.copy(tmp_path / "town.naksha", tmp_path / "copy.naksha")
    refused = naksha("storage", "fork", "file:copy.naksha", "--id", "town", cwd=tmp_path)
    assert refused.returncode != 0
    assert "an id that the storage never had" in refused.stderr
    done = naksha("storage", "fork", "file:copy.naksha", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "id: copy"
    assert lines[2] == "former id: town (number 7)"
    shown = naksha("storage", "show", "file:copy.naksha", cwd=tmp_path)
    assert shown.stdout == done.stdout
    assert naksha("storage", "show", "file:none.naksha", cwd=tmp_path).returncode != 0
    assert not (tmp_path / "none.naksha").exists()


async def test_a_collection_gets_a_view(tmp_path: Path, database: str) -> None:
    path = tmp_path / "town.naksha"
    storage = await SqliteStorage.open(path)
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "app")
    await storage.close()
    done = naksha("storage", "view", "file:town.naksha", "roads", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM roads").fetchall() == []
    missing = naksha("storage", "view", "file:town.naksha", "none", cwd=tmp_path)
    assert "The collection 'none' does not exist" in missing.stderr
    await (await PsqlStorage.open(database, "maps")).close()
    refused = naksha("storage", "view", database, "roads")
    assert "Views are supported for files only" in refused.stderr


async def test_a_copied_schema_is_forked(database: str) -> None:
    storage = await PsqlStorage.open(database, "maps", schema="maps", number=7)
    watcher = await connect_to(database, "maps")
    await until_elected(watcher)
    busy = naksha("storage", "fork", database, "--schema", "maps", "--id", "copy")
    await storage.close()
    await watcher.close()
    assert busy.returncode != 0
    assert "in use" in busy.stderr
    done = naksha("storage", "fork", database, "--schema", "maps", "--id", "copy", "--json")
    assert done.returncode == 0, done.stderr
    forked = json.loads(done.stdout)
    assert (forked["id"], forked["former"]) == ("copy", [{"id": "maps", "number": 7}])


async def test_the_log_is_kept_for_the_days_that_are_set(tmp_path: Path, database: str) -> None:
    path = tmp_path / "town.naksha"
    await (await SqliteStorage.open(path)).close()
    await (await PsqlStorage.open(database, "maps")).close()
    for location in (f"file:{path}", database):
        done = naksha("storage", "keep-log", location, "30", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"days": 30}), done.stderr
        assert naksha("storage", "keep-log", location, "--", "-1").returncode == 2
    query = "SELECT tx_log_days FROM naksha_storage"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(query).fetchone() == (30,)
    connected = await connect_to(database)
    assert await connected.fetchval(query) == 30
    await connected.close()
    missing = naksha("storage", "keep-log", f"file:{tmp_path}/none.naksha", "30")
    assert missing.returncode == 4
