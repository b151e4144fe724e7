"""`naksha doctor` with each thing wrong in turn: it names the problem and the repair."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from naksha.cli.main import app
from naksha.cli.operations import machine_checks
from naksha.model.collection import CollectionInfo
from naksha.spi.storage_factory import open_storage
from naksha.testing.servers.postgres import PostgresCluster
from tests.cli.command import naksha


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


def diagnose(*arguments: str, code: int = 0) -> dict[str, dict[str, str]]:
    """The problems by the last part of the name of their check; nothing else is wrong."""
    ended = CliRunner().invoke(app, ["doctor", *arguments, "--json"])
    assert ended.exit_code == code, ended.output
    found: list[dict[str, str]] = json.loads(ended.stdout)
    assert len(found) > 3
    return {one["check"].split(": ")[-1]: one for one in found if one["severity"] != "ok"}


@pytest.fixture
def hub(tmp_path: Path) -> list[str]:
    flags = ["--data", str(tmp_path / "data")]
    for arguments in (["realm", "create", "maps"], ["space", "add", '{"id": "roads"}']):
        assert CliRunner().invoke(app, [*arguments, *flags]).exit_code == 0
    return flags


@pytest.fixture
def town(tmp_path: Path) -> list[str]:
    location = f"file:{tmp_path}/town.naksha"
    assert naksha("demo", "--storage", location).returncode == 0
    return ["--storage", location]


# ---- The machine ---------------------------------------------------------------------------------


def test_nothing_is_wrong(hub: list[str], town: list[str]) -> None:
    assert diagnose(*hub) == {}
    assert diagnose(*town) == {}
    shown = CliRunner().invoke(app, ["doctor", *hub])
    assert shown.exit_code == 0
    assert "0 problems" in shown.stdout


def test_java_is_missing_or_too_old(
    town: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = diagnose(*town, code=3)
    assert "not installed" in found["Java"]["message"]
    assert found["Java"]["fix"].startswith("apt install openjdk-17")
    (tmp_path / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (tmp_path / "java").chmod(0o755)
    assert "Java 11 is too old" in diagnose(*town, code=3)["Java"]["message"]


def test_the_limit_of_open_files_is_low(town: list[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, before[1]))
    try:
        found = diagnose(*town)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found["open files"]["fix"].startswith("ulimit -n")


def test_memory_or_disk_are_nearly_full(town: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(100 << 30, 99 << 30, 1 << 30))
    monkeypatch.setattr(machine_checks, "_available_memory", lambda: 1 << 20)
    found = diagnose(*town)
    assert found.keys() == {"disk", "memory"}
    assert found["disk"]["fix"].startswith("du -xh")


def test_the_disk_of_a_storage_elsewhere_is_nearly_full(
    hub: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each storage of the catalog may be on a disk of its own."""
    far = tmp_path / "far"
    far.mkdir()
    added = CliRunner().invoke(app, ["storage", "add", "far", f"file:{far}/a.naksha", *hub])
    assert added.exit_code == 0, added.output

    def usage(place: Path) -> DiskUsage:
        free = 1 << 30 if place == far else 99 << 30
        return DiskUsage(100 << 30, (100 << 30) - free, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(machine_checks, "device_of", lambda path: int(path == far))
    found = diagnose(*hub)
    assert found.keys() == {"disk"}
    assert str(far) in found["disk"]["message"]


# ---- Files ---------------------------------------------------------------------------------------


def test_a_damaged_file_is_restored(town: list[str], tmp_path: Path) -> None:
    path = tmp_path / "town.naksha"
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 20_000)
    content[middle] = os.urandom(20_000)
    path.write_bytes(content)
    found = diagnose(*town, code=70)
    assert "damaged" in found["file"]["message"] or "malformed" in found["file"]["message"]
    assert found["file"]["fix"].startswith("naksha restore")
    path.write_bytes(b"something else " * 1_000)
    assert diagnose(*town, code=3)["file"]["severity"] == "error"


def test_a_storage_that_vanished_is_named(hub: list[str], tmp_path: Path) -> None:
    (tmp_path / "data" / "maps.naksha").unlink()
    found = diagnose(*hub)["file"]
    assert found["severity"] == "warning"
    assert "maps.naksha does not exist" in found["message"]


def test_a_file_of_another_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE a (b)")
    assert "another program" in diagnose("--storage", f"file:{path}", code=70)["file"]["message"]


def test_a_catalog_that_lost_an_object_is_named(hub: list[str], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "data" / "hub.catalog")) as connection:
        assert connection.execute("DELETE FROM o WHERE r = 'maps'").rowcount > 0
        connection.commit()
    assert "is damaged" in diagnose(*hub, code=70)["realm maps"]["message"]


def test_a_realm_without_its_last_commit_is_repaired(hub: list[str], tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, *hub, "--json"])

    for id in ("one", "two"):
        added = run("space", "add", json.dumps({"id": id}), "--realm", "maps")
        assert added.exit_code == 0, added.output
    with closing(sqlite3.connect(tmp_path / "data" / "hub.catalog")) as connection:
        connection.execute(
            "DELETE FROM o WHERE r = 'maps' AND i = (SELECT max(i) FROM o WHERE r = 'maps')"
        )
        connection.commit()
    assert "naksha realm repair maps" in diagnose(*hub, code=70)["realm maps"]["fix"]
    assert run("realm", "repair", "maps").exit_code == 2
    assert json.loads(run("realm", "repair", "maps", "--yes").stdout)["repaired"] == ["config"]
    assert diagnose(*hub) == {}
    listed = run("space", "list", "--realm", "maps")
    assert [one["id"] for one in json.loads(listed.stdout)] == ["one"]
    assert json.loads(run("realm", "repair", "maps").stdout)["repaired"] == []


def test_a_realm_that_is_not_finished_is_named(hub: list[str], tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"no export")
    broken = ["realm", "import", "half", str(tmp_path / "part"), *hub]
    assert CliRunner().invoke(app, broken).exit_code == 2
    found = diagnose(*hub)["realm half"]
    assert "LOADING" in found["message"]
    assert found["fix"] == "naksha realm import half FILE --repeat"


def test_there_is_no_hub(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path / "none")])
    assert ended.exit_code == 4


# ---- Databases -----------------------------------------------------------------------------------


def test_nothing_is_created_or_changed(
    database: str, postgres_cluster: PostgresCluster, tmp_path: Path
) -> None:
    """A database without a catalog, as after a typing error, and then with one."""

    def run(*arguments: str, code: int = 0) -> None:
        ended = CliRunner().invoke(app, [*arguments, *flags])
        assert ended.exit_code == code, ended.output

    def dump() -> str:
        name = database.rpartition("/")[2].partition("?")[0]
        rows = "SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM naksha_catalog."
        pointers, objects = (postgres_cluster.execute(f"{rows}{one} t", name) for one in "po")
        return f"{pointers} {objects}"

    flags = ["--catalog", database, "--data", str(tmp_path / "data")]
    (tmp_path / "data").mkdir()
    run("doctor", code=4)
    run("backup", str(tmp_path / "copy"), code=4)
    run("space", "list", code=4)
    run("realm", "list", code=4)
    run("realm", "create", "maps")  # fails if one of these has left a schema without a catalog
    run("space", "add", '{"id": "roads"}')
    before = dump()
    run("doctor")
    run("backup", str(tmp_path / "copy"))
    assert dump() == before


def test_a_server_is_down(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        location = f"postgresql://127.0.0.1:{taken.getsockname()[1]}/maps"
        found = diagnose("--storage", location, code=69)
    assert "start the server" in found["connection"]["fix"]


@pytest.fixture
def plain(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """A database without PostGIS, of a user who may not create anything."""
    postgres_cluster.execute("CREATE ROLE weak LOGIN")
    postgres_cluster.execute("CREATE DATABASE bare TEMPLATE template0")
    yield postgres_cluster.dsn("bare").replace("//postgres@", "//weak@")
    postgres_cluster.drop_database("bare")
    postgres_cluster.execute("DROP ROLE weak")


def test_postgis_and_rights_are_missing(plain: str) -> None:
    found = diagnose("--storage", plain, code=3)
    assert found.keys() == {"PostGIS", "rights"}
    assert found["PostGIS"]["fix"].startswith("psql -c 'CREATE EXTENSION postgis'")
    assert found["rights"]["fix"].startswith(
        'psql -c \'GRANT CREATE ON DATABASE "bare" TO "weak"\''
    )


def test_the_repairs_repair(plain: str, postgres_cluster: PostgresCluster) -> None:
    for one in diagnose("--storage", plain, code=3).values():
        statement = one["fix"].split("psql -c '")[1].split("'")[0]
        postgres_cluster.execute(statement, "bare")
    assert diagnose("--storage", plain) == {}


def test_a_role_that_cannot_maintain_is_named(
    database: str, postgres_cluster: PostgresCluster
) -> None:
    assert naksha("demo", "--storage", database, "--schema", "naksha").returncode == 0
    name = database.rpartition("/")[2].partition("?")[0]
    postgres_cluster.execute("CREATE ROLE reader LOGIN")
    try:
        reader = database.replace("//postgres@", "//reader@")
        assert "may not use" in diagnose("--storage", reader, code=77)["rights"]["message"]
        postgres_cluster.execute("GRANT USAGE ON SCHEMA naksha TO reader", name)
        found = diagnose("--storage", reader)
        assert found["rights"]["severity"] == "warning"
        assert "cannot maintain" in found["rights"]["message"]
    finally:
        postgres_cluster.execute("DROP OWNED BY reader", name)
        postgres_cluster.execute("DROP ROLE reader")


def test_locks_and_connections_do_not_suffice(tmp_path: Path) -> None:
    small = {"max_connections": 15, "max_locks_per_transaction": 10, "max_wal_senders": 0}
    with PostgresCluster(small) as cluster:
        location = cluster.create_database("maps")
        cluster.execute("CREATE SCHEMA naksha", "maps")
        cluster.execute(
            "DO $$ BEGIN FOR i IN 1..200 LOOP"
            " EXECUTE format('CREATE TABLE naksha.t%s ()', i); COMMIT; END LOOP; END $$",
            "maps",
        )
        found = diagnose("--storage", location, code=3)
        assert found.keys() == {"locks", "connections", "PostGIS", "rights"}
        assert "holds no storage" in found["rights"]["message"]
        assert "max_locks_per_transaction = 17'" in found["locks"]["fix"]
        assert "max_connections = 20'" in found["connections"]["fix"]


def test_clocks_differ(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 300 * 10**9)
    found = diagnose("--storage", database)
    assert "300 s ahead of the clock of the database" in found["clock"]["message"]
    assert found["clock"]["fix"].startswith("timedatectl set-ntp true")


async def test_a_held_publication_is_named(database: str) -> None:
    def point(id: str) -> dict[str, Any]:
        return {"type": "Feature", "id": id, "geometry": None, "properties": {}}

    async with open_storage(database) as storage:
        await storage.run(lambda s: s.create_collection(CollectionInfo(id="roads")), "test")
        async with storage.write("test") as holder:
            await holder.create("roads", [point("held")])
            await storage.run(lambda s: s.create("roads", [point("waits")]), "test")
            found = await asyncio.to_thread(diagnose, "--storage", database)
    assert "1 transactions wait for" in found["publication"]["message"]
    assert "pg_terminate_backend" in found["publication"]["fix"]
