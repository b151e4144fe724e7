"""The history of features: who, when and what."""

from __future__ import annotations

from naksha.model.query import Bbox, Query
from naksha.spi.storage import Storage
from naksha.versioning import history, range_of
from tests.versioning.town import BOB, all_of, delete, make, place, put


async def test_every_state_with_its_author_and_what_changed(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b"))
    await put(storage, place("a", n=2), by=BOB)
    await delete(storage, "a")
    await put(storage, place("a", n=3))
    first, last = await range_of(storage, "0..HEAD")
    steps = await all_of(history(first, last, "places", Query(ids=("a",))))
    assert [(s.action, s.who) for s in steps] == [
        ("CREATE", ("ann", "editor")),
        ("UPDATE", ("bob", "editor")),
        ("DELETE", ("ann", "editor")),
        ("CREATE", ("ann", "editor")),
    ]
    assert [s.when_ms for s in steps] == sorted(s.when_ms for s in steps)
    assert steps[1].paths() == ["/properties/n"]
    assert steps[1].patch() == [{"op": "replace", "path": "/properties/n", "value": 2}]
    assert steps[2].paths() == []
    assert "/properties" in steps[3].paths()


async def test_a_part_of_it_knows_what_was_before(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await put(storage, place("a", n=2))
    await put(storage, place("a", n=3))
    first, last = await range_of(storage, "3..4")
    (step,) = await all_of(history(first, last, "places"))
    assert step.previous is not None
    assert step.previous.feature["properties"]["n"] == 2
    assert step.paths() == ["/properties/n"]


async def test_of_all_features_that_match_a_filter(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", 0, 0, n=1), place("b", 5, 5, n=1))
    await put(storage, place("a", 5, 5, n=1), place("b", 0, 0, n=2))
    await put(storage, place("a", 5, 5, n=2))
    first, last = await range_of(storage, "0..HEAD")
    steps = await all_of(history(first, last, "places", Query(spatial=Bbox(4, 4, 6, 6))))
    assert [(s.id, s.state.feature["properties"]["n"], s.paths()) for s in steps[:2]] == [
        ("a", 1, ["/geometry"]),
        ("a", 2, ["/properties/n"]),
    ]
    assert [s.id for s in steps] == ["a", "a", "b"]
