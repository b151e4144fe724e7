"""`naksha.connect` on every storage, with the same calls and the same results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from shapely.geometry import Point

import naksha
from naksha.api import Database
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    FeatureExists,
    InvalidArgument,
    NotSupported,
    NotYetPublished,
    Unavailable,
)
from naksha.model.query import Op
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.storage.suite_support import feature, point, with_xyz


@pytest.fixture(params=["file", "postgresql"])
def location(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory
) -> Iterator[str]:
    if request.param == "file":
        yield f"file:{tmp_path / 'town.naksha'}"
        return
    with database_factory.fresh() as dsn:
        yield dsn


@pytest.fixture
def db(location: str) -> Iterator[Database]:
    with naksha.connect(location, app_id="test", author="ann") as opened:
        opened.create_collection("places")
        yield opened


def numbers(features: Iterator[dict[str, Any]]) -> list[Any]:
    return [f["properties"]["n"] for f in features]


def test_write_and_read(db: Database) -> None:
    places = db["places"]
    outcomes = places.create([point("a", n=1), point("b", n=2)])
    assert [outcome.action for outcome in outcomes] == ["CREATED", "CREATED"]
    found = places.get("a")
    assert found is not None
    assert found["properties"]["n"] == 1
    assert found["properties"][XYZ]["author"] == "ann"
    assert places.get("nobody") is None
    assert sorted(numbers(places.query())) == [1, 2]
    assert places.count() == 2
    places.upsert(point("a", n=3))
    places.delete("b")
    assert numbers(places.query()) == [3]
    assert numbers(places.query(deleted=True)) == [2]
    places.restore(["b"])
    assert places.count() == 2
    with pytest.raises(FeatureExists):
        places.create(point("a"))


def test_a_transaction_is_all_or_nothing(db: Database) -> None:
    db.create_collection("roads")
    with db.transaction("two at once") as transaction:
        transaction["places"].create(point("a", n=1))
        transaction["roads"].create(point("r", n=1))
        assert transaction["places"].count() == 1
        assert db["places"].count() == 0
        inside = transaction["places"].get("a")
        assert inside is not None
        txn = transaction.txn
    assert db["places"].count() == 1
    entry = db.log()[-1]
    assert (entry.txn, entry.app_id) == (txn, "test")
    assert [s.text for s in entry.signals if s.action == "MESSAGE"] == ["two at once"]
    with pytest.raises(ZeroDivisionError), db.transaction("never") as transaction:
        transaction["places"].delete("a")
        raise ZeroDivisionError
    assert db["places"].count() == 1
    with pytest.raises(FeatureExists), db.transaction() as transaction:
        transaction["roads"].delete("r")
        transaction["places"].create(point("a"))
    assert db["roads"].count() == 1
    with pytest.raises(InvalidArgument, match="not open"):
        transaction["places"].delete("a")


def test_the_past(db: Database) -> None:
    places = db["places"]
    places.create(point("a", n=1))
    first = db.version()
    places.update(point("a", n=2))
    second = db.version()
    assert second.seq_number == first.seq_number + 1
    for at in (first, first.seq_number, first.txn):
        assert numbers(places.at(at).query()) == [1]
    moment = datetime.fromtimestamp(second.published_ms / 1000 + 0.0005, UTC)
    assert db.version(moment - timedelta(hours=1)).seq_number == 0
    assert [f["properties"]["n"] for f in places.history("a")] == [1, 2]
    assert [f["properties"][XYZ]["version"] for f in places.history("a")] == [1, 2]
    with pytest.raises(InvalidArgument, match="past"):
        places.at(first).delete("a")
    with pytest.raises(NotYetPublished):
        list(places.at(99).query())


def test_queries(db: Database) -> None:
    places = db["places"]
    places.create(
        with_xyz(
            point(f"k{n:02}", n, n, n=n, kind="even" if n % 2 == 0 else "odd"), tags=[f"t{n % 3}"]
        )
        for n in range(20)
    )
    assert sorted(numbers(places.query(bbox=(0, 0, 3, 3)))) == [0, 1, 2, 3]
    assert sorted(numbers(places.query(tags="t0", limit=3))) == [0, 3, 6]
    assert sorted(numbers(places.query(tags=["t0", "t1"], bbox=(0, 0, 4, 4)))) == [0, 1, 3, 4]
    assert sorted(numbers(places.query(where={"kind": "odd"}, bbox=(0, 0, 4, 4)))) == [1, 3]
    assert numbers(places.query(where=PropertyTest(("properties", "n"), Op.GT, 18))) == [19]
    assert numbers(places.query(intersects=Point(5, 5))) == [5]
    assert numbers(places.query(intersects={"type": "Point", "coordinates": [5, 5]})) == [5]
    assert numbers(places.query(ids="k07")) == [7]
    assert sorted(numbers(places.query(ids=["k07", "k08"]))) == [7, 8]
    assert places.count(authors="ann") == 20
    assert places.count(authors=["bob"]) == 0
    first, *_ = places.query()  # The rest is left.
    assert first["type"] == "Feature"


@pytest.mark.parametrize(
    "parts",
    [
        {"bbox": (1, 2, 3)},
        {"bbox": (1, 2, 3, 4), "tile": "1"},
        {"colour": "red"},
        {"intersects": {"type": "Nothing"}},
        {"limit": 0},
    ],
)
def test_queries_that_are_none(db: Database, parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        list(db["places"].query(**parts))


def test_merge(db: Database) -> None:
    places = db["places"]
    places.create(feature("a", x=1, y=1))
    base = places.get("a")
    assert base is not None
    places.update(feature("a", x=2, y=1))
    mine = {**base, "properties": {**base["properties"], "y": 2}}
    with pytest.raises(Conflict):
        places.update(mine)
    places.update(mine, merge=True)
    merged = places.get("a")
    assert merged is not None
    assert (merged["properties"]["x"], merged["properties"]["y"]) == (2, 2)


def test_missing_arguments_are_named(location: str) -> None:
    with naksha.connect(location) as db:
        assert db.collections() == []
        with pytest.raises(CollectionNotFound):
            _ = db["nothing"]
        with pytest.raises(InvalidArgument, match="app id"):
            db.create_collection("places")
        with db.transaction(app_id="other") as transaction:
            transaction.create_collection("places", max_age=7)
        assert [info.max_age for info in db.collections()] == [7]


def test_it_stays(location: str) -> None:
    with naksha.connect(location, app_id="test", storage_id="town") as db:
        db.create_collection("places").create(point("a", n=1))
        assert repr(db) == "<naksha.Database 'town'>"
    with naksha.connect(location) as db:
        assert numbers(db["places"].query()) == [1]
        db.maintain()
    with pytest.raises(InvalidArgument, match="town"):
        naksha.connect(location, storage_id="village")


def test_from_many_threads(db: Database) -> None:
    def write(number: int) -> None:
        for n in range(5):
            db["places"].create(point(f"{number}/{n}", n=n))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db["places"].count() == 20


def test_closed(location: str) -> None:
    before = threading.active_count()
    db = naksha.connect(location, app_id="test")
    db.close()
    db.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread ends a moment after its last task
    assert threading.active_count() <= before + 1


def test_no_storage_there(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database, but long enough to look like something" * 20)
    with pytest.raises(NotSupported, match="not an SQLite database"):
        naksha.connect(f"file:{other}")
    with pytest.raises(InvalidArgument, match="scheme"):
        naksha.connect("town.naksha")
    with pytest.raises(InvalidArgument, match="the installed schemes are"):
        naksha.connect("oracle://here")


def test_a_new_collection_inside_its_transaction(db: Database) -> None:
    with db.transaction() as transaction:
        roads = transaction.create_collection("roads")
        roads.create(point("a", n=1))
        assert roads.count() == 1
    assert db["roads"].count() == 1


def test_iterations_left_half_way(db: Database) -> None:
    db["places"].create(point(f"k{n:03}", n=n) for n in range(200))
    for _ in range(30):
        next(db["places"].query(limit=100))
    open_ones = [db["places"].query() for _ in range(3)]
    assert all(next(each) for each in open_ones)
    assert db["places"].count() == 200


def test_after_the_end(location: str) -> None:
    db = naksha.connect(location, app_id="test")
    places = db.create_collection("places")
    places.create(point("a"))
    half = places.query()
    next(half)
    db.close()
    with pytest.raises(Unavailable):
        places.count()
    with pytest.raises((Unavailable, StopIteration)):
        next(half)


def test_notes_beside_a_collection(location: str) -> None:
    with naksha.connect(location, app_id="app") as db:
        roads = db.create_collection("roads")
        note = {"type": "Feature", "id": "survey", "properties": {"by": "ann"}}
        roads.put_meta(note)
        roads.put_meta(note | {"properties": {"by": "ben"}})
        found = roads.meta("survey")
        assert found is not None
        assert found["properties"] == {"by": "ben"}
        assert roads.all_meta() == [found]
        assert roads.remove_meta("survey")
        assert roads.meta("survey") is None


def test_deleted_features_are_listed_and_purged(db: Database) -> None:
    places = db["places"]
    places.create([point("a", n=1), point("b", n=2), point("c", n=3)])
    places.delete(["a", "b"])
    assert sorted(each["id"] for each in places.deleted()) == ["a", "b"]
    assert [each["id"] for each in places.deleted(where={"n": 2})] == ["b"]
    outcomes = places.purge(["a", "nobody"])
    assert [(each.id, each.action) for each in outcomes] == [
        ("a", "PURGED"),
        ("nobody", "RETAINED"),
    ]
    assert [each["id"] for each in places.deleted()] == ["b"]
    with pytest.raises(Conflict):
        places.purge("c")


def test_a_deletion_is_scheduled_and_a_dropped_collection_restored(db: Database) -> None:
    db["places"].create(point("a"))
    later = datetime.now(UTC) + timedelta(days=1)
    info = db.change_collection("places", delete_at=later)
    assert (info.delete_at, info.dropped_at) == (int(later.timestamp() * 1000), 0)
    db.maintain()
    assert db["places"].count() == 1
    db.drop_collection("places", later)
    assert db.collections() == []
    (dropped,) = db.collections(dropped=True)
    assert dropped.delete_at == info.delete_at
    assert dropped.dropped_at > 0
    db.maintain()
    assert db.restore_collection("places").delete_at == 0
    assert db["places"].count() == 1
    db.change_collection("places", delete_at=1)
    db.maintain()
    assert db.collections(dropped=True) == []
