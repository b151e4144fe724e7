"""The sample of a new hub: loaded once by the pipeline, and served."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import naksha
from naksha.cli import sample
from naksha.model.errors import Unavailable
from naksha.testing.servers.hub_server import HubServer
from tests.cli.command import environment
from tests.cli.command import naksha as command

SECONDS_MAX = 600


@pytest.mark.timeout(SECONDS_MAX)
def test_a_new_hub_has_the_sample_with_its_true_versions(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path)]
    made = command("sample", *flags, seconds_max=SECONDS_MAX)
    assert made.returncode == 0, made.stderr
    assert "Space 'airports' contains the sample" in made.stdout
    files = {path.name for path in tmp_path.iterdir()}
    assert {"airports.naksha", "airports.sample"} <= files
    assert not [name for name in files if ".part" in name]
    with naksha.connect(f"file:{tmp_path}/airports.naksha", app_id="test") as db:
        assert len(list(db.versions.log())) == 16
    again = command("sample", *flags)
    assert (again.returncode, again.stdout) == (0, made.stdout)
    with HubServer(tmp_path, arguments=flags) as hub:
        base = f"{hub.url}/hub/spaces/airports"
        assert httpx.get(f"{base}/count").json()["count"] == 596
        then = httpx.get(f"{base}/count", params={"versionRef": "2020-12-01T00:00"})
        assert then.json()["count"] == 600
        storage = httpx.get(f"{hub.url}/hub/storages/airports").json()
        assert storage["identity"]["id"] == "airports"


KILLED = """
import os, sys, naksha
db = naksha.connect(sys.argv[1], app_id="test")
db.create_collection("airports").create([{"type": "Feature", "id": "x"}])
os._exit(0)
"""


Run = Callable[..., None]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A job whose process is gone before it has closed the file, though it was done."""

    def run(spec: dict[str, Any], **_: Any) -> None:
        subprocess.run([sys.executable, "-c", KILLED, spec["place"]["location"]], check=True)

    monkeypatch.setattr(sample, "run_job", run)
    return run


@pytest.mark.usefixtures("killed")
def test_no_data_remains_outside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "airports.naksha"
    sample._make(path)
    assert {each.name for each in tmp_path.iterdir() if each.is_file()} == {path.name}
    with naksha.connect(f"file:{path}", app_id="test") as db:
        (only,) = db["airports"].query()
        assert only["id"] == "x"
        assert only["properties"]["@ns:com:here:xyz"]["uuid"].startswith("airports:airports:")


def test_a_file_in_use_is_not_replaced_by_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: Run
) -> None:
    users: list[sqlite3.Connection] = []

    def run_and_stay(spec: dict[str, Any], **more: Any) -> None:
        killed(spec, **more)
        users.append(sqlite3.connect(next(tmp_path.glob("*.part"))))
        users[0].execute("SELECT count(*) FROM sqlite_schema").fetchone()

    monkeypatch.setattr(sample, "run_job", run_and_stay)
    with pytest.raises(Unavailable, match="in use"):
        sample._make(tmp_path / "airports.naksha")
    users[0].close()
    assert not list(tmp_path.glob("airports*"))


def test_it_needs_no_java(tmp_path: Path) -> None:
    alone = environment(PATH=str(tmp_path))
    alone.pop("JAVA_HOME", None)
    made = command("sample", "--data", str(tmp_path), env=alone, seconds_max=SECONDS_MAX)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "airports.naksha").exists()
