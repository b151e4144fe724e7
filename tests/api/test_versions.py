"""`db.versions`, the synchronous form of `naksha.versioning`."""

from __future__ import annotations

from typing import Any

import pytest

from naksha.api import Database
from naksha.model.collection import CollectionChange
from naksha.model.errors import CollectionNotFound, InvalidArgument, MergeConflict, NotFound
from naksha.versioning import MergePolicy
from tests.api.test_database import db, location  # noqa: F401  fixtures

Feature = dict[str, Any]


def place(id_: str, lon: float = 8.0, lat: float = 50.0, **properties: Any) -> Feature:
    geometry = {"type": "Point", "coordinates": [lon, lat]}
    return {"type": "Feature", "id": id_, "geometry": geometry, "properties": properties}


def test_log_and_differences(db: Database) -> None:  # noqa: F811
    places = db["places"]
    with db.transaction("first") as transaction:
        transaction["places"].create([place("a", n=1), place("b", 20, 20)])
    places.update(place("a", 1, 1, n=2))
    log = db.versions.log(newest_first=False)
    assert [each.message for each in log] == [None, "first", None]
    assert [each.message for each in db.versions.log(text="FIRST")] == ["first"]
    here = db.versions.log(area=(7, 49, 9, 51), collections="places")
    assert [each.version.seq_number for each in here] == [3, 2]
    (change,) = db.versions.diff("2..HEAD", "places")
    assert (change.id, change.paths()) == ("a", ["/geometry", "/properties/n"])
    assert [c.id for c in db.versions.diff("2", "places", bbox=(19, 19, 21, 21))] == ["b"]
    assert [c.id for c in db.versions.compare("HEAD", "2", "places")] == ["a"]


def test_every_operation_takes_a_filter(db: Database) -> None:  # noqa: F811
    """Features are found as they were or as they became; authors are those of the change."""
    places = db["places"]
    tagged: dict[str, Any] = {"@ns:com:here:xyz": {"tags": ["hot"]}}
    with db.transaction(author="ann") as transaction:
        transaction["places"].create([place("a", kind="road", **tagged), place("b", 20, 20)])
    with db.transaction(author="ann") as transaction:
        transaction["places"].update([place("a", 30, 30, kind="path")])
    with db.transaction(author="ben") as transaction:
        transaction["places"].update([place("b", 21, 21, n=2)])
    (state,) = places.query(ids="b")
    ben_at = state["properties"]["@ns:com:here:xyz"]["updatedAt"]
    versions = db.versions
    filters: list[dict[str, Any]] = [
        {"where": {"kind": "road"}},
        {"tags": "hot"},
        {"ids": ["a", "nobody"]},
        {"bbox": (7, 49, 9, 51)},
        {"authors": "ann"},
        {"updated_to": ben_at},
        {"where": {"kind": "road"}, "authors": ["ann", "eve"], "bbox": (7, 49, 9, 51)},
    ]
    for query in filters:
        log = versions.log(newest_first=False, after=1, **query)
        assert [each.version.seq_number for each in log] == [2, 3], query
        assert [change.id for change in versions.diff("2..HEAD", "places", **query)] == ["a"]
        assert versions.rollback("2", dry_run=True, **query).updated == {"places": ["a"]}
        assert versions.revert("3", dry_run=True, **query).updated == {"places": ["a"]}
        assert versions.revert("4", dry_run=True, **query).updated == {}
    assert [each.version.seq_number for each in versions.log(authors="ben")] == [4]
    with pytest.raises(InvalidArgument, match="'author' is not a parameter"):
        versions.log(author="ann")


def test_going_back(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create([place("a", n=1), place("b", n=1)])
    places.update([place("a", n=2), place("b", n=2)])
    assert db.versions.rollback("2", ids="a", dry_run=True).updated == {"places": ["a"]}
    assert db.versions.rollback("2", ids="a", message="only a").updated == {"places": ["a"]}
    assert [f["properties"]["n"] for f in places.query(limit=5)] == [1, 2]
    assert db.versions.log(limit=1)[0].message == "only a"
    assert db.versions.revert("4").updated == {"places": ["a"]}
    assert [f["properties"]["n"] for f in places.query(limit=5)] == [2, 2]


def test_tags_and_versions_as_text(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create(place("a", n=1))
    tag = db.versions.tag("first", message="the first one")
    assert tag.description == "the first one"
    places.update(place("a", n=2))
    for text in ("first", "2", str(tag.version.txn)):
        found = places.at(text).get("a")
        assert found is not None
        assert found["properties"]["n"] == 1
    assert [each.name for each in db.versions.tags()] == ["first"]
    db.versions.untag("first")
    with pytest.raises(NotFound):
        places.at("first")
    with db.transaction() as transaction, pytest.raises(InvalidArgument, match="number"):
        transaction["places"].at("HEAD")


def test_branches(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create([place("a", n=1), place("b", n=1)])
    fix = db.versions.create_branch("fix", message="try")
    fix["places"].update(place("a", n=2))
    places.update(place("b", n=2))
    assert [f["properties"]["n"] for f in fix["places"].query(limit=5)] == [2, 1]
    assert [f["properties"]["n"] for f in places.at("fix").query(limit=5)] == [2, 1]
    assert [f["properties"]["n"] for f in places.at("fix:2").query(limit=5)] == [1, 1]
    assert [c.id for c in fix.versions.diff("2..HEAD", "places")] == ["a"]
    assert len(fix.versions.log()) == 1
    fix.versions.rollback("2")
    assert [f["properties"]["n"] for f in fix["places"].query(limit=5)] == [1, 1]
    fix.close()
    fix["places"].update(place("a", n=3))
    assert db.versions.merge("fix", message="in").updated == {"places": ["a"]}
    db.versions.rebase("fix")
    db.versions.rename_branch("fix", "repair")
    repair = db.branch("repair")
    repair["places"].update(place("a", n=4))
    places.update(place("a", n=5))
    with pytest.raises(MergeConflict):
        db.versions.merge("repair")
    (conflict,) = db.versions.conflicts()
    db.versions.resolve(conflict.id, {("places", "a"): MergePolicy.OURS})
    assert [f["properties"]["n"] for f in places.query(limit=5)] == [5, 2]
    assert [each.name for each in db.versions.branches()] == ["repair"]
    db.versions.delete_branch("repair")
    assert db.branch("main").branch_name is None


def test_a_branch_that_was_opened_before_a_rebase(db: Database) -> None:  # noqa: F811
    db["places"].create(place("a", n=1))
    fix = db.versions.create_branch("fix")
    fix["places"].update(place("a", n=2))
    db["places"].create(place("b"))
    db.versions.rebase("fix")
    fix["places"].create(place("new"))
    assert [f["id"] for f in db.branch("fix")["places"].query(limit=9)] == ["a", "b", "new"]


def test_a_branch_may_have_a_capital_t(db: Database) -> None:  # noqa: F811
    db["places"].create(place("a", n=1))
    fix = db.versions.create_branch("Test")
    fix["places"].update(place("a", n=2))
    (change,) = fix.versions.compare("2", "Test:HEAD", "places")
    assert change.id == "a"


def test_a_collection_that_is_not_there_has_no_differences_either(
    db: Database,  # noqa: F811
) -> None:
    places = db["places"]
    places.create(place("a", n=1))
    places.update(place("a", n=2))
    versions = db.versions
    for ask in (
        lambda: versions.diff("2..HEAD", "plaecs"),
        lambda: versions.compare("2", "HEAD", "plaecs"),
        lambda: versions.history("*", "plaecs"),
        lambda: versions.rollback("2", collections=["plaecs"]),
        lambda: versions.revert("3", collections="plaecs"),
    ):
        with pytest.raises(CollectionNotFound) as caught:
            ask()
        assert caught.value.collection_id == "plaecs"
    assert versions.rollback("2", collections="places", dry_run=True).updated == {"places": ["a"]}


def test_a_revert_by_a_filter(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create([place("a", n=1), place("b", n=1)])
    places.update([place("a", n=2), place("b", n=2)])
    assert db.versions.revert("3", ids="a", dry_run=True).updated == {"places": ["a"]}
    assert db.versions.revert("3", collections="places", ids="a").updated == {"places": ["a"]}
    assert [f["properties"]["n"] for f in places.query(limit=5)] == [1, 2]


def test_a_tag_that_protects_nothing_goes_with_maintenance(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create(place("a", n=1))
    db.versions.tag("loose", protects=False)
    db.maintain()
    assert [each.name for each in db.versions.tags()] == ["loose"]
    off = CollectionChange(history_enabled=False)
    db.call(db.storage.run(lambda session: session.change_collection("places", off), "app"))
    places.update(place("a", n=2))
    db.versions.tag("now", protects=False)
    db.maintain()
    assert [each.name for each in db.versions.tags()] == ["now"]


def test_a_rebase_is_tried_decided_and_given_up(db: Database) -> None:  # noqa: F811
    places = db["places"]
    places.create([place("a", n=1), place("b", n=1)])
    fix = db.versions.create_branch("fix")
    fix["places"].update([place("a", n=2), place("b", n=2)])
    places.update([place("a", n=3), place("b", n=3)])
    dry = db.versions.rebase("fix", dry_run=True)
    assert [each.id for each in dry.conflicts] == ["a", "b"]
    assert db.versions.conflicts() == []
    with pytest.raises(MergeConflict) as caught:
        db.versions.rebase("fix")
    db.versions.give_up(caught.value.id or "")
    assert db.versions.conflicts() == []
    db.versions.rebase(
        "fix",
        policy=MergePolicy.OURS,
        choices={("places", "a"): MergePolicy.THEIRS},
        message="onto the new survey",
    )
    fix = db.branch("fix")
    assert [f["properties"]["n"] for f in fix["places"].query(limit=5)] == [2, 3]
    assert fix.versions.log(limit=1)[0].message == "onto the new survey"


def test_a_log_with_a_filter_that_it_does_not_have(db: Database) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument, match="give only one of them"):
        db.versions.log(area=(1, 2, 3, 4), bbox=(1, 2, 3, 4))
    with pytest.raises(InvalidArgument, match="'overlays' is not a parameter"):
        db.versions.log(overlays=None)
