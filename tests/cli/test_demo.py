"""`naksha demo`: its promised output, on any database and repeatedly."""

import json
from pathlib import Path
from typing import Any

import pytest

from naksha.model.state import XYZ
from tests.cli.command import environment, naksha


def told(database: str, **changes: str) -> dict[str, Any]:
    result = naksha("demo", "--json", "--storage", database, env=environment(**changes))
    assert result.returncode == 0, result.stderr
    story: dict[str, Any] = json.loads(result.stdout)
    return story


def test_it_shows_every_part_and_can_be_repeated(database: str) -> None:
    first = naksha("demo", env=environment(NAKSHA_STORAGE=database))
    assert (first.returncode, first.stderr) == (0, "")
    shown = " ".join(first.stdout.split())  # narrow columns wrap
    for words in (
        "The change log",
        "Flowers moved to New Road",
        "then: version 3, 35 features",
        "now: version 7, 26 features",
        "One feature through time",
        "conflict: Feature 'town-hall' was changed since it was read",
        "UPDATE town",
        "Timings",
    ):
        assert words in shown
    second = naksha("demo", "--storage", database)
    assert second.returncode == 0, second.stderr
    assert "collection town_2" in second.stdout


def test_json_output(database: str) -> None:
    story = told(database)
    changes = story["changes"]
    assert [change["version"] for change in changes] == [1, 2, 3, 4, 5, 6, 7]
    assert {change["author"] for change in changes} == {"anna", "ben", "chen", "dora"}
    assert all(isinstance(change["txn"], str) for change in changes)
    assert changes[3]["deleted"] == 12
    assert changes[6]["app_id"] == "psql"
    assert (len(story["then"]["features"]), len(story["now"]["features"])) == (35, 26)
    names = [state["properties"]["name"] for state in story["history"]]
    assert names == ["Town Hall", "Old Town Hall", "Fire Station"]
    assert story["clash"]["code"] == "conflict"
    head = story["clash"]["head"]["properties"]
    assert (head["name"], head[XYZ]["author"]) == ("Fire Station", "dora")
    assert story["plain_edit"]["skipped"] is None
    assert all(timing["ms"] > 0 for timing in story["timings"])


def test_without_psql_the_plain_edit_is_left_out_and_the_rest_goes_on(database: str) -> None:
    story = told(database, PATH="")
    assert "psql, which is not on the PATH" in story["plain_edit"]["skipped"]
    assert story["clash"]["head"]["properties"]["name"] == "Fire Station"
    assert len(story["changes"]) == 7


def test_without_a_storage_it_makes_a_file(tmp_path: Path) -> None:
    for collection in ("town", "town_2"):
        told = naksha("demo", cwd=tmp_path)
        assert (told.returncode, told.stderr) == (0, "")
        for words in (f"collection {collection}", "One feature through time", "Fire Station"):
            assert words in told.stdout
        assert "demo.naksha" in told.stdout
    result = naksha("demo", "--json", cwd=tmp_path)
    story = json.loads(result.stdout)
    # In a shell every statement is a transaction of its own.
    assert [change["app_id"] for change in story["changes"]][-2:] == ["sqlite3", "sqlite3"]
    assert len(story["changes"]) == 8
    assert (len(story["then"]["features"]), len(story["now"]["features"])) == (35, 26)
    assert story["clash"]["head"]["properties"]["name"] == "Fire Station"


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help_names_the_demonstration(arguments: list[str]) -> None:
    result = naksha(*arguments)
    assert result.returncode == 0
    assert "small town" in result.stdout
