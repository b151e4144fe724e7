"""Verbs for a hub: the same on its catalog and on the running hub; the life cycle of realms."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from naksha import connect
from naksha.catalog import transfer
from naksha.catalog.catalog import Tuning
from naksha.cli import output
from naksha.cli.hub_client import HubTarget, connected
from naksha.cli.main import app
from naksha.model.errors import Unavailable
from naksha.server.process import open_hub
from naksha.sqlite.schema.file import SCHEMA_VERSION
from naksha.testing.servers.hub_server import HubServer
from naksha.versioning import NameScope
from tests.cli.command import naksha

ROADS = '{"id": "roads", "title": "Roads"}'
Run = Callable[..., Any]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def runner_of(*where: str) -> Run:
    """A function that runs a verb with --json and returns the document, or the error."""

    def run(*arguments: str, code: int = 0) -> Any:
        ended = invoke(*arguments, *where, "--json")
        assert ended.exit_code == code, ended.output
        return json.loads(ended.stderr)["error"] if code else json.loads(ended.stdout)

    return run


@pytest.fixture
def local(tmp_path: Path) -> Run:
    return runner_of("--data", str(tmp_path / "data"))


@pytest.fixture(params=["catalog", "hub"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Verbs of a hub that does not run, or of one that runs."""
    if request.param == "catalog":
        assert invoke("realm", "create", "maps", "--data", str(tmp_path)).exit_code == 0
        yield runner_of("--data", str(tmp_path))
        return
    with HubServer(tmp_path) as server:
        yield runner_of("--hub", server.url)


def test_spaces_connectors_and_storages(hub: Run, tmp_path: Path) -> None:
    assert hub("space", "list") == []
    assert hub("space", "add", ROADS)["id"] == "roads"
    assert hub("space", "change", "roads", '{"title": "Streets"}')["title"] == "Streets"
    assert hub("space", "show", "roads")["title"] == "Streets"
    (listed,) = hub("space", "list")
    assert (listed["id"], listed["title"]) == ("roads", "Streets")
    assert hub("space", "add", ROADS, code=7)["code"] == "conflict"
    assert hub("space", "show", "none", code=4)["code"] == "not_found"
    assert hub("space", "add", "{", code=2)["code"] == "invalid_argument"
    file = tmp_path / "connector.json"
    file.write_text('{"id": "guard", "className": "read-only"}')
    assert hub("connector", "add", f"@{file}")["className"] == "read-only"
    assert [one["id"] for one in hub("connector", "list")] == ["guard"]
    assert hub("connector", "remove", "guard")["id"] == "guard"
    made = hub("storage", "add", "old", f"file:{tmp_path}/old.naksha", "--title", "Old")
    assert made["identity"]["id"]
    assert hub("storage", "show", "old")["title"] == "Old"
    assert "old" in [one["name"] for one in hub("storage", "list")]
    hub("storage", "remove", "old")
    assert (tmp_path / "old.naksha").exists()
    assert "--keep-collection" in hub("space", "remove", "roads", code=2)["message"]
    assert hub("space", "remove", "roads", "--yes")["id"] == "roads"
    assert hub("space", "add", ROADS)["id"] == "roads"
    assert hub("space", "remove", "roads", "--keep-collection")["id"] == "roads"
    assert hub("space", "list") == []


def test_subscriptions_are_moved_and_reset(hub: Run) -> None:
    hub("space", "add", ROADS)
    writer = {"id": "out", "className": "json-lines", "properties": {"path": "out.jsonl"}}
    hub("connector", "add", json.dumps(writer))
    body = {"id": "all", "source": {"spaceId": "roads"}, "eventHandlerIds": ["out"]}
    added = hub("subscription", "add", json.dumps(body))
    assert added["id"] == "all"
    assert [one["id"] for one in hub("subscription", "list")] == ["all"]
    hub("subscription", "change", "all", '{"active": false}')  # a hub would deliver at once
    reset = hub("subscription", "reset", "all", "beginning")
    assert (reset["status"]["state"], reset["status"]["version"]) == ("paused", 0)
    hub("subscription", "change", "all", '{"active": true}')
    assert "'nobody'" in hub("subscription", "move", "all", "nobody", code=2)["message"]
    instance = hub("subscription", "move", "all", code=2)["message"].split("instances are ")[1]
    if instance.startswith("(none)"):  # no hub runs
        assert hub("subscription", "list")[0]["instance"] is None
    else:
        assert hub("subscription", "move", "all", instance.split(" (")[0])["id"] == "all"
    assert hub("subscription", "remove", "all")["id"] == "all"


def test_files_of_a_running_hub_are_left_alone(tmp_path: Path) -> None:
    with HubServer(tmp_path) as server:
        files = ("--catalog", f"file:{tmp_path}/hub.catalog")
        for arguments in (
            ("space", "list", *files),
            ("realm", "list", *files),
            ("storage", "show", f"file:{tmp_path}/default.naksha"),
            ("storage", "fork", f"file:{tmp_path}/default.naksha"),
        ):
            ended = invoke(*arguments)
            assert ended.exit_code == 69, ended.output
            assert f"The hub at {server.url} (process " in ended.stderr
            way_out = "Stop it first" if arguments[0] == "realm" else f"--hub {server.url}"
            assert way_out in " ".join(ended.stderr.split())
    assert invoke("storage", "show", f"file:{tmp_path}/default.naksha").exit_code == 0


def test_a_hub_is_named_by_its_variable_and_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    token = invoke("token", "ops", "--key", f"secret:{tmp_path}/key").stdout.strip()
    with HubServer(tmp_path, arguments=["--keys", f"secret:{tmp_path}/key"]) as server:
        monkeypatch.setenv("NAKSHA_HUB", f"{server.url}/hub/")
        refused = invoke("space", "list", "--json")
        assert refused.exit_code == 77
        assert json.loads(refused.stderr)["error"]["code"] == "unauthorized"
        monkeypatch.setenv("NAKSHA_TOKEN", token)
        assert invoke("space", "list", "--json").stdout == "[]\n"
        combined = invoke("space", "list", "--data", str(tmp_path))
        assert combined.exit_code == 2
        assert "cannot be combined with --hub" in " ".join(combined.stderr.split())
    ended = invoke("space", "list")
    assert (ended.exit_code, "cannot be reached" in ended.stderr) == (69, True)
    wrong = invoke("space", "list", "--hub", "localhost:8080")
    assert wrong.exit_code == 2


def test_a_token_is_not_sent_in_clear_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubServer(tmp_path) as server:
        # Not a loopback address, although it leads to this machine. The hub refuses it as a host.
        where = ("--hub", server.url.replace("127.0.0.1", "0.0.0.0"))
        assert invoke("space", "list", *where).exit_code == 77
        monkeypatch.setenv("NAKSHA_TOKEN", "secret")
        refused = invoke("space", "list", *where)
        assert refused.exit_code == 2
        assert "unencrypted" in refused.stderr
        assert invoke("space", "list", *where, "--insecure").exit_code == 77
        monkeypatch.delenv("NAKSHA_TOKEN")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert invoke("space", "list", "--hub", server.url).exit_code == 0


def test_options_take_precedence_over_the_environment(
    local: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"file:{tmp_path}/town.naksha"
    assert naksha("demo", "--storage", place).returncode == 0
    (tmp_path / "hub").mkdir()
    with HubServer(tmp_path / "hub") as server:
        monkeypatch.setenv("NAKSHA_STORAGE", place)
        assert "health" in runner_of("--hub", server.url)("status")
        assert "storages" in runner_of("--hub", server.url)("maintain")
        both = invoke("status", "--hub", server.url, "--storage", place)
        assert both.exit_code == 2
        assert "--storage cannot be combined with --hub" in " ".join(both.stderr.split())
        monkeypatch.delenv("NAKSHA_STORAGE")
        monkeypatch.setenv("NAKSHA_HUB", server.url)
        assert "lastVersion" in runner_of("--storage", place)("status")


def test_reading_a_storage_does_not_upgrade_it(tmp_path: Path) -> None:
    file = tmp_path / "town.naksha"
    assert naksha("demo", "--storage", f"file:{file}").returncode == 0
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")
        connection.commit()
    for arguments in (("storage", "show", f"file:{file}"), ("status", "--storage", f"file:{file}")):
        refused = invoke(*arguments)
        assert refused.exit_code == 3
        assert "older Naksha" in refused.stderr
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION - 1,)


def test_a_verb_that_takes_long_shows_progress(
    local: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SILENT_SECONDS_MAX", 1e6)
    assert invoke("realm", "create", "maps", "--data", str(tmp_path / "data")).stderr == ""
    monkeypatch.setattr(output, "SILENT_SECONDS_MAX", 0.0)
    shown = invoke("backup", str(tmp_path / "copy"), "--data", str(tmp_path / "data"))
    assert "naksha backup (0 s)" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("space", "show"),
        ("space", "show", "roads", "--nonsense"),
        ("maintain", "more"),
        ("nonsense",),
        ("job", "load"),
        ("token", "app", "--key", "x", "--hours", "many"),
    ],
)
def test_a_wrong_call_is_an_error_in_json(arguments: tuple[str, ...]) -> None:
    ended = invoke(*arguments, "--json")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert json.loads(ended.stderr)["error"]["code"] == "invalid_argument"


def test_a_hub_that_does_not_exist_is_not_created(local: Run, tmp_path: Path) -> None:
    assert local("space", "list", code=4)["code"] == "not_found"
    assert local("realm", "list", code=4)["code"] == "not_found"
    assert not (tmp_path / "data").exists()


# ---- Realms --------------------------------------------------------------------------------------


def statuses(local: Run) -> dict[str, str]:
    return {one["id"]: one["status"] for one in local("realm", "list")}


def test_a_realm_is_deactivated_and_activated(local: Run) -> None:
    assert local("realm", "create", "maps") == {"id": "maps", "created": True}
    assert local("realm", "create", "maps") == {"id": "maps", "created": False}
    local("space", "add", ROADS, "--realm", "maps")
    assert local("realm", "deactivate", "maps")["status"] == "INACTIVE"
    assert local("space", "list", "--realm", "maps", code=9)["code"] == "realm_inactive"
    assert local("realm", "delete", "maps", code=7)["code"] == "conflict"
    assert local("realm", "activate", "maps")["status"] == "ACTIVE"
    assert [one["id"] for one in local("space", "list", "--realm", "maps")] == ["roads"]
    assert local("realm", "purge", "maps", "--yes", code=7)["code"] == "conflict"  # it is ACTIVE
    local("realm", "deactivate", "maps")
    assert "quarantine" in local("realm", "purge", "maps", "--yes", code=7)["message"]
    assert "--yes" in local("realm", "purge", "maps", code=2)["message"]
    assert statuses(local) == {"default": "ACTIVE", "maps": "INACTIVE"}


def test_the_default_realm_can_be_deactivated_and_activated(local: Run) -> None:
    local("realm", "create", "maps")
    local("realm", "deactivate", "default")
    assert statuses(local) == {"default": "INACTIVE", "maps": "ACTIVE"}
    local("realm", "activate", "default")
    assert local("space", "list") == []


def test_an_export_says_that_it_has_no_features(local: Run, tmp_path: Path) -> None:
    local("realm", "create", "maps")
    local("space", "add", ROADS, "--realm", "maps")
    done = local("realm", "export", "maps", str(tmp_path / "maps.realm"))
    assert (done["includesFeatures"], done["storages"]) == (False, ["default"])
    assert done["bytes"] == (tmp_path / "maps.realm").stat().st_size
    assert local("realm", "export", "maps", str(tmp_path / "maps.realm"), code=2)
    other = runner_of("--data", str(tmp_path / "other"))
    made = other("realm", "import", "maps", str(tmp_path / "maps.realm"))
    assert made == {"id": "maps", "status": "ACTIVE"}
    assert [one["id"] for one in other("space", "list", "--realm", "maps")] == ["roads"]
    beside = local("realm", "import", "twin", str(tmp_path / "maps.realm"), code=77)
    assert "stays INACTIVE" in beside["message"]
    assert statuses(local)["twin"] == "INACTIVE"
    assert local("realm", "import", "new", str(tmp_path / "none"), code=4)


def test_an_imported_realm_gets_no_storage_of_another_realm(local: Run, tmp_path: Path) -> None:
    """Two paths to one file are the same location."""
    other = runner_of("--data", str(tmp_path / "other"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    local("realm", "create", "maps")
    local("storage", "add", "x", f"file:{tmp_path}/real/x.naksha", "--realm", "maps")
    other("realm", "create", "thief")
    link = ("x", f"file:{tmp_path}/link/x.naksha", "--no-check")
    other("storage", "add", *link, "--realm", "thief")
    file = str(tmp_path / "thief.realm")
    other("realm", "export", "thief", file)
    refused = local("realm", "import", "thief", file, code=77)
    assert "'thief' stays INACTIVE, because of its storage 'x'" in refused["message"]
    assert statuses(local)["thief"] == "INACTIVE"
    assert local("realm", "activate", "thief", code=77)["code"] == "forbidden"


def test_an_imported_realm_gets_no_location_that_is_not_allowed(
    local: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local("realm", "create", "maps")
    local("realm", "export", "maps", str(tmp_path / "maps.realm"))
    monkeypatch.setenv("NAKSHA_ALLOWED_LOCATIONS", "file:{realm}.naksha")
    other = runner_of("--data", str(tmp_path / "other"))
    refused = other("realm", "import", "twin", str(tmp_path / "maps.realm"), code=77)
    assert "not allowed for this realm" in refused["message"]
    third = runner_of("--data", str(tmp_path / "third"))
    assert third("realm", "import", "maps", str(tmp_path / "maps.realm"))["status"] == "ACTIVE"


def test_an_export_is_private_and_complete(
    local: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local("realm", "create", "maps")
    file = tmp_path / "maps.realm"
    local("realm", "export", "maps", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists" in local("realm", "export", "maps", str(file), code=2)["message"]

    async def interrupted(*_: object) -> AsyncIterator[bytes]:
        yield b"half"
        raise Unavailable("the database is gone")

    monkeypatch.setattr(transfer, "export_realm", interrupted)
    local("realm", "export", "maps", str(tmp_path / "half.realm"), code=69)
    assert not (tmp_path / "half.realm").exists()
    assert file.exists()


# ---- Status and maintenance ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", pytest.param("database", marks=pytest.mark.postgres)])
def test_a_storage_is_maintained(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    location = f"file:{tmp_path}/town.naksha"
    if place == "database":
        location = request.getfixturevalue("database")
    where = ("--storage", location)
    assert naksha("demo", *where, "--schema", "naksha").returncode == 0
    before = runner_of()("status", *where)
    assert before["lastVersion"] > 5
    assert before["unpublished"] == 0
    assert before["collections"] == {"town": -1}
    assert [one["outcome"] for one in runner_of()("maintain", *where)] == ["done"]
    assert runner_of()("status", *where)["collections"]["town"] > 10
    assert [one["outcome"] for one in runner_of()("maintain", *where, "--dry-run")] == ["done"]


def test_a_catalog_and_its_storages_are_maintained(local: Run, tmp_path: Path) -> None:
    local("realm", "create", "maps")
    local("realm", "create", "gone")
    local("space", "add", ROADS)
    done = {one["subject"]: one["outcome"] for one in local("maintain")}
    assert done == dict.fromkeys(
        ("default/default", "gone/default", "maps/default", "(catalog)"), "done"
    )
    found = local("status")
    assert found["health"]["status"]["result"] == "OK"
    shown = invoke("status", "--data", str(tmp_path / "data"))
    assert shown.stdout.startswith("hub: OK\n")
    (tmp_path / "data" / "gone.naksha").write_bytes(b"not a storage" * 1_000)
    broken = CliRunner().invoke(app, ["maintain", "--data", str(tmp_path / "data"), "--json"])
    assert broken.exit_code == 75
    assert json.loads(broken.stderr)["error"]["hint"] is None  # parts of the round are done
    outcomes = {one["subject"]: one["outcome"] for one in json.loads(broken.stdout)}
    assert outcomes == {
        "default/default": "done",
        "gone/default": "failed",
        "maps/default": "done",
        "(catalog)": "done",
    }


def test_a_round_offline_is_that_of_a_hub(local: Run, tmp_path: Path) -> None:
    """It removes tags, creates no file that is missing, and verifies the catalog."""
    local("realm", "create", "maps")
    local("space", "add", ROADS)
    expire_a_tag(f"file:{tmp_path}/data/default.naksha")
    (tmp_path / "data" / "maps.naksha").unlink()

    def rounds(*arguments: str) -> dict[str, tuple[str, str]]:
        found = local("maintain", *arguments)
        return {one["subject"]: (one["outcome"], one["note"]) for one in found}

    removal = "removal of 1 tags whose version has expired"
    assert removal in rounds("--dry-run")["default/default"][1]
    done = rounds()
    assert removal in done["default/default"][1]
    assert (done["maps/default"][0], done["(catalog)"][0]) == ("skipped", "done")
    assert not (tmp_path / "data" / "maps.naksha").exists()
    with closing(sqlite3.connect(tmp_path / "data" / "hub.catalog")) as connection:
        assert connection.execute("DELETE FROM o WHERE r = 'maps'").rowcount > 0
        connection.commit()
    damaged = invoke("maintain", "--data", str(tmp_path / "data"))
    assert damaged.exit_code == 70, damaged.output


def test_a_round_of_a_storage_removes_tags(tmp_path: Path) -> None:
    location = f"file:{tmp_path}/town.naksha"
    with connect(location, app_id="test"):
        pass
    expire_a_tag(location)
    (done,) = runner_of()("maintain", "--storage", location)
    assert (done["outcome"], "removal of 1 tags" in done["note"]) == ("done", True)


def expire_a_tag(location: str) -> None:
    """Tag a version that a collection without history cannot read any more."""
    with connect(location, app_id="test") as database:
        paths = database.create_collection("paths")
        paths.upsert({"type": "Feature", "id": "a", "geometry": None, "properties": {}})
        scope = NameScope(collections=("paths",))
        database.versions.tag("loose", protects=False, scope=scope)
        database.change_collection("paths", history_enabled=False)
        paths.upsert({"type": "Feature", "id": "a", "geometry": None, "properties": {"n": 1}})


def test_a_dry_round_changes_nothing_and_skips_inactive_storages(
    local: Run, tmp_path: Path
) -> None:
    local("realm", "create", "maps")
    local("storage", "add", "off", f"file:{tmp_path}/off.naksha")
    local("space", "add", ROADS)
    local("maintain")
    with closing(sqlite3.connect(tmp_path / "data" / "default.naksha")) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        local("maintain", "--dry-run")
        assert connection.execute("PRAGMA data_version").fetchone() == before
    target = HubTarget(None, None, [f"--data={tmp_path}/data"], "test")
    with connected(target) as client:
        found = client.request("GET", "/hub/storages/off")
        client.request("PUT", "/hub/storages/off", {**found, "active": False})
    done = {one["subject"]: one["outcome"] for one in local("maintain")}
    assert done["default/off"] == "skipped"
    assert done["(catalog)"] == "done"


def test_a_purged_realm_is_gone_after_maintenance(
    local: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_hub, "Tuning", partial(Tuning, quarantine_seconds=0))
    local("realm", "create", "maps")
    local("realm", "deactivate", "maps")
    done = local("realm", "purge", "maps", "--yes")
    assert (done["status"], len(done["storagesKept"])) == ("PURGING", 1)
    assert local("realm", "activate", "maps", code=7)["code"] == "conflict"
    for _ in range(2):  # one deletes the rows, the next one finds none
        local("maintain")
    assert statuses(local) == {"default": "ACTIVE", "maps": "PURGED"}
    assert local("realm", "delete", "maps")["deleted"]
    assert statuses(local) == {"default": "ACTIVE"}
    assert (tmp_path / "data" / "maps.naksha").exists()


def test_a_running_hub_maintains_its_storages(tmp_path: Path) -> None:
    with HubServer(tmp_path) as server:
        on_hub = runner_of("--hub", server.url)
        on_hub("space", "add", ROADS)
        found = on_hub("maintain", "--dry-run")
        assert found["storages"][0]["lastDryRun"]["outcome"] == "done"
        found = on_hub("maintain")
        assert {one["lastRound"]["outcome"] for one in (*found["storages"], found["catalog"])} == {
            "done"
        }
        state = on_hub("status")
        assert state["health"]["status"]["result"] == "OK"
        assert state["maintenance"]["enabled"] is True
        shown = invoke("status", "--hub", server.url)
        assert "default\t20" in shown.stdout
