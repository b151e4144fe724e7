"""`naksha diff`, run as a user runs it: versions, tags, branches and filters, on each storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import naksha
from naksha.model.state import XYZ
from naksha.testing.fixtures import DatabaseFactory
from tests.cli.command import naksha as run


def place(feature_id: str, lon: float, **properties: Any) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [lon, 50.0]}
    return {"type": "Feature", "id": feature_id, "geometry": geometry, "properties": properties}


@pytest.fixture(scope="module", params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The location of a storage with a history of three versions, a tag and a branch."""
    if request.param == "file":
        location = f"file:{tmp_path_factory.mktemp('diff')}/town.naksha"
        fill(location)
        yield location
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        fill(dsn)
        yield dsn


def fill(location: str) -> None:
    with naksha.connect(location, app_id="editor", author="anna") as db:
        places = db.create_collection("places")
        db.create_collection("streets")
        with db.transaction("First survey") as transaction:
            inn = place("inn", 9.0, name="Inn", long="x" * 100)
            transaction["places"].create([place("hall", 8.0, n=1), inn, place("mill", 10.0)])
        db.versions.tag("survey")
        fix = db.versions.create_branch("fix")
        fix["places"].create([place("bridge", 8.5)])
        with db.transaction("The inn has moved", author="ben") as transaction:
            transaction["places"].update(place("inn", 20.0, name="Bakery", long="y"))
        places.delete("mill")
        places.create(place("school", 8.2))


def lines(town: str, *arguments: str) -> list[list[str]]:
    done = run("diff", "--storage", town, "places", *arguments)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_each_line_has_the_changes_of_a_feature_and_their_author(town: str) -> None:
    done = run("diff", "--storage", town, "places", "survey", "HEAD")
    assert done.stderr == "1 created, 1 updated, 1 deleted\n"
    long = '"' + "x" * 39 + "…"
    properties = f'/properties/long: {long} → "y", /properties/name: "Inn" → "Bakery"'
    expected = [
        ["updated", "inn", "ben", f"/geometry, {properties}"],
        ["deleted", "mill", "-", "-"],
        ["created", "school", "anna", "-"],
    ]
    assert [line.split("\t") for line in done.stdout.splitlines()] == expected


def test_any_two_versions_tags_and_branches_are_compared(town: str) -> None:
    assert lines(town, "HEAD", "survey")[1][:2] == ["created", "mill"]
    assert lines(town, "survey", "fix") == [["created", "bridge", "anna", "-"]]
    assert {line[1] for line in lines(town, "fix", "main")} == {"bridge", "inn", "mill", "school"}
    assert lines(town, "HEAD", "main") == []


def test_differences_are_selected_by_author_and_area(town: str) -> None:
    assert [line[1] for line in lines(town, "survey", "HEAD", "--author", "ben")] == ["inn"]
    both = lines(town, "survey", "HEAD", "--author", "ben", "--author", "anna")
    assert [line[1] for line in both] == ["inn", "mill", "school"]
    # The inn was here before.
    box = ("--bbox", "8.1,49,9.1,51")
    assert [line[1] for line in lines(town, "survey", "HEAD", *box)] == ["inn", "school"]


def test_json_is_the_document_of_the_hub(town: str) -> None:
    done = run("diff", "--storage", town, "places", "survey", "HEAD", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["type"] == "Diff"
    assert 0 < found["startVersion"] < found["endVersion"]
    changes = {one["id"]: one for one in found["changes"]}
    assert {name: one["action"] for name, one in changes.items()} == {
        "inn": "updated",
        "mill": "deleted",
        "school": "created",
    }
    assert changes["inn"]["old"]["properties"]["name"] == "Inn"
    assert changes["inn"]["new"]["properties"][XYZ]["author"] == "ben"
    assert "new" not in changes["mill"]
    none = run("diff", "--storage", town, "places", "HEAD", "HEAD", "--json")
    assert json.loads(none.stdout)["changes"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("places", "survey", "--bbox", "1,2,3"), 2, "Missing argument"),
        (("places", "survey", "HEAD", "--bbox", "1,2,3"), 2, "write west,south,east,north"),
        (("places", "nowhere", "HEAD"), 4, "nowhere"),
        (("place", "survey", "HEAD"), 4, "collection 'place' does not exist"),
    ],
)
def test_errors_say_what_is_wrong(
    town: str, arguments: tuple[str, ...], code: int, text: str
) -> None:
    done = run("diff", "--storage", town, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


def test_a_storage_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    done = run("diff", "--storage", f"file:{tmp_path}/none.naksha", "places", "1", "2")
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []
