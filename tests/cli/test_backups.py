"""Backup and restore: under load, of a hub, and of files that are damaged."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from naksha.cli.main import app
from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.model.version import HEAD
from naksha.spi.storage import Storage
from naksha.spi.storage_factory import open_storage
from naksha.sqlite.maintenance import backup as sqlite_backup
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.hub_server import HubServer
from naksha.testing.servers.postgres import PostgresCluster
from tests.cli.command import naksha

WRITES_BEFORE = 20
COLLECTIONS = ("roads", "places")


class Locations(NamedTuple):
    """The location of a storage, and an empty one to restore it to."""

    original: str
    restored: str


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def locations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Locations]:
    if request.param == "sqlite":
        yield Locations(f"file:{tmp_path}/town.naksha", f"file:{tmp_path}/restored.naksha")
        return
    databases: DatabaseFactory = request.getfixturevalue("database_factory")
    with databases.fresh() as one, databases.fresh() as other:
        yield Locations(one, other)


def feature(id: str, n: int) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [8 + n / 1000, 50]}
    return {"type": "Feature", "id": id, "geometry": point, "properties": {"n": n}}


class LoadWriter:
    """A client that writes the same number to both collections, and journals what is confirmed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.journal: list[int] = []
        self._warm = asyncio.Event()
        self._stopped = False

    async def run(self) -> None:
        n = 0
        while not self._stopped:
            n += 1

            async def write(session: Any, n: int = n) -> None:
                for collection in COLLECTIONS:
                    await session.create(collection, [feature(f"f{n}", n)])

            await self._storage.run(write, "load")
            self.journal.append(n)
            if n == WRITES_BEFORE:
                self._warm.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            await self._warm.wait()
            yield
        finally:
            self._stopped = True
            await task


async def numbers(storage: Storage, collection: str) -> set[int]:
    page = await storage.page(collection, Query())
    return {json.loads(state.raw)["properties"]["n"] for state in page.states}


async def test_a_backup_under_load_has_every_confirmed_write(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process, it begins right after the last confirmed write, and copies in many steps.
    monkeypatch.setattr(sqlite_backup, "PAGES", 4)
    folder = str(tmp_path / "copy")
    async with open_storage(locations.original) as storage:
        async with storage.write("test") as session:
            for collection in COLLECTIONS:
                await session.create_collection(CollectionInfo(id=collection))
        writer = LoadWriter(storage)
        async with writer.running():
            confirmed = set(writer.journal)
            done = await asyncio.to_thread(run, "backup", folder, "--storage", locations.original)
        later = set(writer.journal) - confirmed
        assert later, "there was no load during the backup"
    restored = await asyncio.to_thread(
        naksha, "restore", folder, "--storage", locations.restored, "--json"
    )
    assert restored.returncode == 0, restored.stderr
    (facts,) = (one["facts"] for one in done["storages"])
    async with open_storage(locations.restored, must_exist=True) as copy:
        roads, places = [await numbers(copy, collection) for collection in COLLECTIONS]
        assert roads == places, "a transaction is in the copy in part"
        assert confirmed <= roads <= confirmed | later
        assert facts["features"] == {"roads": len(roads), "places": len(roads)}
        assert (await copy.resolve(HEAD)).seq_number >= facts["lastVersion"]
        for collection in COLLECTIONS:
            assert await copy.mismatches(collection, 10) == []
        await copy.run(lambda s: s.create("roads", [feature("new", -1)]), "test")
    again = naksha("restore", folder, "--storage", locations.restored)
    assert again.returncode == 7, again.stderr


# ---- A hub ---------------------------------------------------------------------------------------


def run(*arguments: str, code: int = 0) -> Any:
    ended = CliRunner().invoke(app, [*arguments, "--json"])
    assert ended.exit_code == code, ended.output
    return json.loads(ended.stderr)["error"] if code else json.loads(ended.stdout)


def test_a_running_hub_is_backed_up_and_restored(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    files = ("--data", str(tmp_path / "hub"))
    run("realm", "create", "maps", *files)
    run("realm", "create", "old", *files)
    run("realm", "deactivate", "old", *files)
    flags = ["--data", str(tmp_path / "hub")]
    catalog = f"file:{tmp_path}/hub/hub.catalog"
    with HubServer(tmp_path / "hub", catalog=catalog, arguments=flags) as server:
        where = ("--hub", server.url)
        run("space", "add", '{"id": "roads", "title": "Roads"}', *where)
        made = run("backup", str(tmp_path / "copy"), *files)
        assert {(one["realm"], one["name"]) for one in made["storages"]} == {
            ("default", "default"),
            ("maps", "default"),
            ("old", "default"),
        }
        assert made["catalog"]["bytes"] > 0
    restored = ("--data", str(tmp_path / "restored"))
    run("restore", str(tmp_path / "copy"), *restored)
    assert [one["id"] for one in run("space", "list", *restored)] == ["roads"]
    assert {one["id"]: one["status"] for one in run("realm", "list", *restored)} == {
        "default": "ACTIVE",
        "maps": "ACTIVE",
        "old": "INACTIVE",
    }
    assert (tmp_path / "restored" / "maps.naksha").exists()
    assert run("restore", str(tmp_path / "copy"), *restored, code=7)["code"] == "conflict"


@pytest.mark.postgres
async def test_a_hub_in_a_database_is_backed_up_and_restored(
    database_factory: DatabaseFactory, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    with database_factory.fresh() as dsn:
        flags = ["--realm-storage", dsn, "--data", str(tmp_path / "data")]
        for arguments in (
            ["realm", "create", "maps", *flags],
            ["space", "add", '{"id": "roads"}', "--realm", "maps", *flags],
            ["space", "add", '{"id": "places"}', *flags],
            ["backup", str(tmp_path / "copy"), *flags],
        ):
            done = await asyncio.to_thread(naksha, *arguments)
            assert done.returncode == 0, done.stderr
        refused = await asyncio.to_thread(naksha, "restore", str(tmp_path / "copy"), *flags)
        assert refused.returncode == 7, refused.stderr
        for schema in ("naksha", "naksha_maps", "naksha_catalog"):
            postgres_cluster.execute(f"DROP SCHEMA {schema} CASCADE", urlsplit(dsn).path[1:])
        done = await asyncio.to_thread(naksha, "restore", str(tmp_path / "copy"), *flags)
        assert done.returncode == 0, done.stderr
        listed = await asyncio.to_thread(
            naksha, "space", "list", "--realm", "maps", "--json", *flags
        )
        assert [one["id"] for one in json.loads(listed.stdout)] == ["roads"]


def test_no_file_is_restored_below_a_running_hub(tmp_path: Path) -> None:
    """The hub would keep writing to the file that was removed."""
    catalog = f"file:{tmp_path}/hub/hub.catalog"
    data = tmp_path / "hub"
    data.mkdir()
    (tmp_path / "link").symlink_to(data)
    with HubServer(data, catalog=catalog, arguments=["--data", str(data)]) as server:
        run("space", "add", '{"id": "roads"}', "--hub", server.url)
        stored = f"file:{data}/default.naksha"
        run("backup", str(tmp_path / "copy"), "--storage", stored)
        (data / "default.naksha").rename(tmp_path / "kept")
        (tmp_path / "alias").symlink_to(data / "default.naksha")
        for name in ("hub/default.naksha", "link/default.naksha", "alias"):
            target = f"file:{tmp_path}/{name}"
            refused = run("restore", str(tmp_path / "copy"), "--storage", target, code=69)
            assert server.url in refused["message"]
        assert not (data / "default.naksha").exists()


def test_a_storage_that_vanished_fails_the_backup(tmp_path: Path) -> None:
    files = ("--data", str(tmp_path / "hub"))
    run("realm", "create", "maps", *files)
    run("space", "add", '{"id": "roads"}', *files)
    (tmp_path / "hub" / "maps.naksha").rename(tmp_path / "moved")
    copy = tmp_path / "copy"
    error = run("backup", str(copy), *files, code=4)
    assert "'maps'" in error["message"]
    assert "--allow-missing" in error["message"]
    assert not copy.exists()
    made = run("backup", str(copy), *files, "--allow-missing")
    assert made["missing"] == ["maps/default"]
    assert [one["realm"] for one in made["storages"]] == ["default"]


@pytest.fixture
def bare(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """A database without PostGIS."""
    postgres_cluster.execute("CREATE DATABASE bare_copy TEMPLATE template0")
    yield postgres_cluster.dsn("bare_copy")
    postgres_cluster.drop_database("bare_copy")


@pytest.mark.postgres
async def test_a_catalog_is_restored_without_postgis(
    bare: str, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    """A role that cannot create PostGIS restores a hub whose storages are files."""
    flags = ("--catalog", bare, "--data", str(tmp_path / "data"))
    for arguments in (
        ("realm", "create", "maps"),
        ("space", "add", '{"id": "roads"}'),
        ("backup", str(tmp_path / "c")),
    ):
        await asyncio.to_thread(run, *arguments, *flags)
    postgres_cluster.execute("DROP SCHEMA naksha_catalog CASCADE", "bare_copy")
    postgres_cluster.execute("CREATE ROLE lowly LOGIN")
    postgres_cluster.execute("GRANT CREATE ON DATABASE bare_copy TO lowly")
    try:
        lowly = ("--catalog", bare.replace("//postgres@", "//lowly@"))
        await asyncio.to_thread(
            run, "restore", str(tmp_path / "c"), *lowly, "--data", str(tmp_path / "restored")
        )
        restored = await asyncio.to_thread(run, "realm", "list", *lowly, *flags[2:])
        assert {one["id"] for one in restored} == {"default", "maps"}
    finally:
        postgres_cluster.execute("DROP OWNED BY lowly", "bare_copy")
        postgres_cluster.execute("DROP ROLE lowly")


@pytest.mark.postgres
async def test_postgis_is_expected_in_the_schema_of_the_backup(
    bare: str, database: str, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    async with open_storage(database):
        pass
    made = await asyncio.to_thread(run, "backup", copy, "--storage", database)
    assert made["storages"][0]["facts"]["extensions"] == {"postgis": "public"}
    restore = ("restore", copy, "--storage", bare)
    postgres_cluster.execute("CREATE SCHEMA gis", "bare_copy")
    postgres_cluster.execute("CREATE EXTENSION postgis SCHEMA gis", "bare_copy")
    error = await asyncio.to_thread(lambda: run(*restore, code=3))
    assert "PostGIS is in the schema 'gis'" in error["message"]
    postgres_cluster.execute("DROP EXTENSION postgis", "bare_copy")
    postgres_cluster.execute("CREATE ROLE humble LOGIN")
    postgres_cluster.execute("GRANT CREATE ON DATABASE bare_copy TO humble")
    try:
        humble = bare.replace("//postgres@", "//humble@")
        error = await asyncio.to_thread(lambda: run("restore", copy, "--storage", humble, code=3))
        assert "CREATE EXTENSION postgis SCHEMA" in error["message"]
    finally:
        postgres_cluster.execute("DROP OWNED BY humble", "bare_copy")
        postgres_cluster.execute("DROP ROLE humble")
    await asyncio.to_thread(run, *restore)


# ---- What is refused -----------------------------------------------------------------------------


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    assert naksha("demo", "--storage", f"file:{tmp_path}/town.naksha").returncode == 0
    run("backup", str(tmp_path / "copy"), "--storage", f"file:{tmp_path}/town.naksha")
    return tmp_path / "copy"


def test_a_damaged_backup_is_refused(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored.naksha"
    restore = ("restore", str(backup), "--storage", f"file:{target}")
    (file,) = backup.glob("storage-*")
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    assert "bytes instead of" in run(*restore, code=2)["message"]
    file.write_bytes(content[:-100] + bytes(100))
    assert "has changed" in run(*restore, code=2)["message"]
    file.unlink()
    assert "is missing" in run(*restore, code=2)["message"]
    file.write_bytes(content)
    manifest = (backup / "manifest.json").read_text()
    (backup / "manifest.json").write_text(manifest[:-10])
    assert "manifest.json is not valid" in run(*restore, code=2)["message"]
    (backup / "manifest.json").unlink()
    assert "was interrupted" in run(*restore, code=2)["message"]
    assert not list(tmp_path.glob("restored*"))
    (backup / "manifest.json").write_text(manifest)
    run(*restore)
    assert target.exists()


def test_a_backup_is_private_and_replaces_nothing(backup: Path, tmp_path: Path) -> None:
    assert backup.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in backup.iterdir()} == {0o600}
    place = f"file:{tmp_path}/town.naksha"
    assert "exists" in run("backup", str(backup), "--storage", place, code=2)["message"]
    assert run("restore", str(backup), "--storage", place, code=7)["code"] == "conflict"
    other = run("restore", str(backup), "--storage", "postgresql:///none", code=3)
    assert "of the same kind" in other["message"]
    missing = run("backup", str(tmp_path / "x"), "--storage", "file:none.naksha", code=4)
    assert missing["code"] == "not_found"


def test_a_copy_is_private_from_its_first_byte(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = shutil.copyfile

    def watched(source: Path, part: Path) -> None:
        seen.append(part.stat().st_mode & 0o777)
        real(source, part)

    monkeypatch.setattr(shutil, "copyfile", watched)
    run("restore", str(backup), "--storage", f"file:{tmp_path}/restored.naksha")
    assert seen == [0o600]


def test_a_location_in_the_environment_is_not_that_of_a_hub(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags on the command line take precedence; what contradicts them is refused."""
    place = f"file:{tmp_path}/other.naksha"
    data = ("--data", str(tmp_path / "data"))
    run("realm", "create", "maps", *data)
    run("space", "add", '{"id": "roads"}', *data)
    run("backup", str(tmp_path / "hub"), *data)
    error = run("restore", str(tmp_path / "hub"), "--storage", place, code=2)
    assert "is of a hub" in error["message"]
    monkeypatch.setenv("NAKSHA_STORAGE", place)
    error = run("restore", str(backup), *data, code=2)
    assert "is of one storage" in error["message"]
    run("restore", str(tmp_path / "hub"), "--data", str(tmp_path / "restored"))
    assert not (tmp_path / "other.naksha").exists()


def test_an_interrupted_backup_is_refused(backup: Path, tmp_path: Path) -> None:
    """Whatever was written: without a manifest it is refused."""
    killed = tmp_path / "killed"
    script = (
        "import os, naksha.cli.operations.backups as b\n"
        "b.write_manifest = lambda *_: os.kill(os.getpid(), 9)\n"
        f"from naksha.cli.main import app; app(['backup', {str(killed)!r}, '--storage', "
        f"'file:{tmp_path}/town.naksha'])"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", script]) == -9
    assert list(killed.glob("storage-*"))
    target = f"file:{tmp_path}/restored.naksha"
    assert "interrupted" in run("restore", str(killed), "--storage", target, code=2)["message"]
