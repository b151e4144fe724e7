"""File names given by clients: every file that a job reads is below the realm's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from naksha.hub.jobs.files import JobFiles
from naksha.model import limits
from naksha.model.errors import Forbidden, LimitExceeded


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The directory of a realm: with files, and links that lead elsewhere or stay."""
    mine, other = tmp_path / "default", tmp_path / "other"
    for path in (mine / "roads" / "north", mine / "plain", other):
        path.mkdir(parents=True)
    for path in (mine / "plain" / "a.json", mine / "roads" / "b.json", other / "a.json"):
        path.touch()
    (mine / "link").symlink_to(other)
    (mine / "roads" / "north" / "deep").symlink_to(other)
    (mine / "way").symlink_to(mine / "roads")
    (mine / "same").symlink_to(mine / "plain")
    (mine / "plain" / "again").symlink_to(mine / "plain")
    (mine / "later.json").symlink_to(other / "not-yet.json")
    return mine


def paths_of(mine: Path, name: str) -> str:
    found: str = JobFiles(mine.parent).paths_of("default", name, "spec.files")
    return found


@pytest.mark.parametrize(
    "name",
    [
        "link",
        "li*",
        "l?nk/a.json",
        "li*/../other/a.json",
        "*",
        "*/*.json",
        "**/a.json",
        "later.json",
        "later.*",
        "roads",
        "roads/north",
        "ro*",
        "roads/*/deep/a.json",
        "roads/north/deep/a.json",
        "way",
        "way/north/d*",
        "w*/b.json/../north/deep",
    ],
)
def test_no_name_or_pattern_leads_out_by_a_link(mine: Path, name: str) -> None:
    with pytest.raises(Forbidden, match="not below the directory") as caught:
        paths_of(mine, name)
    assert caught.value.field == "spec.files"


@pytest.mark.parametrize(
    "name", ["plain", "pl*", "plain/*.json", "same", "sa*/a.json", "way/b.json", "new", "new-*"]
)
def test_names_inside_the_directory_are_accepted(mine: Path, name: str) -> None:
    assert paths_of(mine, name) == str(mine / name)


@pytest.mark.parametrize("name", [".", "./", "./.", "round", "plain/up"])
def test_the_directory_of_a_realm_is_not_a_file_name(mine: Path, name: str) -> None:
    """A result of that name would replace all of its files."""
    (mine / "link").unlink()
    (mine / "later.json").unlink()
    (mine / "roads" / "north" / "deep").unlink()
    (mine / "round").symlink_to(mine)
    (mine / "plain" / "up").symlink_to("..")
    with pytest.raises(Forbidden, match="not below the directory"):
        paths_of(mine, name)
    assert paths_of(mine, "*") == str(mine / "*")


def test_more_files_than_can_be_looked_at_are_refused(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOB_FILES_MAX", 5)
    for n in range(6):
        (mine / "plain" / f"{n}.json").touch()
    with pytest.raises(LimitExceeded, match="5"):
        paths_of(mine, "plain")
    assert paths_of(mine, "plain/1.json")


def test_a_directory_is_looked_at_once_however_many_links_lead_to_it(mine: Path) -> None:
    for n in range(8):
        (mine / "plain" / f"round{n}").symlink_to(mine / "plain")
    assert paths_of(mine, "plain/**/a.json")
    assert paths_of(mine, "plain/**/**/nothing*")
