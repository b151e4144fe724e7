"""`naksha diff --map`: one file with the viewer and all changes."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import naksha
from naksha.cli.diff import map_file
from naksha.model.errors import NotSupported
from naksha.model.state import XYZ
from tests.cli.command import naksha as run

BYTES_MAX = 3_000_000
CHANGES = 10_000


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A storage with 10,000 changes: one in five created or deleted, the others changed."""
    location = f"file:{tmp_path_factory.mktemp('map')}/town.naksha"
    fill(location, CHANGES)
    return location


def fill(location: str, count: int) -> None:
    chance = random.Random(22)
    with naksha.connect(location, app_id="editor", author="anna") as db:
        streets = db.create_collection("streets")
        tenth = count // 10
        streets.create([street(chance, n) for n in range(count - tenth)])
        db.versions.tag("survey")
        with db.transaction("Edits", author="ben") as transaction:
            edited = transaction["streets"]
            edited.update([street(chance, n) for n in range(tenth, count - tenth)])
            edited.create([street(chance, n) for n in range(count - tenth, count)])
            edited.delete([f"street-{n}" for n in range(tenth)])


def street(chance: random.Random, number: int) -> dict[str, Any]:
    x, y = chance.uniform(8.5, 8.9), chance.uniform(50, 50.3)
    line = [[round(x + n * 0.001, 6), round(y + chance.uniform(0, 0.001), 6)] for n in range(5)]
    return {
        "type": "Feature",
        "id": f"street-{number}",
        "geometry": {"type": "LineString", "coordinates": line},
        "properties": {
            "name": f"Street {number}",
            "kind": chance.choice(["road", "path", "lane"]),
            "lanes": chance.randrange(1, 5),
            "surface": chance.choice(["asphalt", "gravel"]),
        },
    }


def comparison(path: Path) -> dict[str, Any]:
    packed = re.search(r'id="comparison">([^<]+)<', path.read_text())
    assert packed
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return found


def test_ten_thousand_changes_fit_into_a_small_file(town: str, tmp_path: Path) -> None:
    path = tmp_path / "town.html"
    arguments = ("diff", "--storage", town, "streets", "survey", "HEAD", "--map", str(path))
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    counts = {"created": 1_000, "updated": 8_000, "deleted": 1_000}
    assert msgspec.json.decode(done.stdout) == {"file": str(path), **counts}
    assert path.stat().st_size <= BYTES_MAX
    found = comparison(path)
    assert (found["collection"], found["from"]["ref"]) == ("streets", "survey")
    assert len(found["changes"]) == CHANGES
    updated = next(one for one in found["changes"] if one["action"] == "updated")
    assert updated["new"]["properties"][XYZ]["author"] == "ben"
    assert "uuid" not in updated["old"]["properties"][XYZ]


def test_the_file_loads_nothing(town: str, tmp_path: Path) -> None:
    path = tmp_path / "town.html"
    done = run("diff", "--storage", town, "streets", "HEAD", "HEAD", "--map", str(path))
    assert done.stdout == f"{path}: 0 created, 0 updated, 0 deleted\n", done.stderr
    text = path.read_text()
    assert "default-src 'none'" in text
    assert re.findall(r'(?:src|href)="', text) == []


def test_a_directory_that_does_not_exist_is_an_error(town: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "town.html"
    done = run("diff", "--storage", town, "streets", "0", "HEAD", "--map", str(path))
    assert done.returncode == 2
    assert "does not exist; create it" in done.stderr


def test_a_viewer_that_is_not_built_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_file, "_VIEWER", ("server", "web", "static", "none.html"))
    with pytest.raises(NotSupported, match=r"run scripts/setup\.sh web"):
        map_file.viewer()
