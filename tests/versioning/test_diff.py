"""Differences between versions of main."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Op, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ, State
from naksha.spi.storage import Storage
from naksha.versioning import (
    DiffAction,
    FeatureDiff,
    diff,
    diff_all,
    line_of,
    place_of,
    range_of,
    rollback,
)
from tests.versioning.town import BOB, all_of, delete, make, place, put, seen


async def changes(
    storage: Storage, ref: str, query: Query | None = None, name: str = "places"
) -> dict[str, FeatureDiff]:
    old, new = await range_of(storage, ref)
    return {each.id: each async for each in diff(old, new, name, query)}


async def test_created_updated_deleted_with_both_states_and_paths(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("same", n=1), place("changed", n=1, name="x"), place("gone", n=1))
    await put(storage, place("new", n=1), place("changed", n=2, name="x", more=True))
    await delete(storage, "gone")
    found = await changes(storage, "2..HEAD")
    assert {id_: each.action for id_, each in found.items()} == {
        "changed": DiffAction.UPDATED,
        "gone": DiffAction.DELETED,
        "new": DiffAction.CREATED,
    }
    changed = found["changed"]
    assert changed.old is not None
    assert changed.new is not None
    assert changed.old.feature["properties"]["n"] == 1
    assert changed.new.feature["properties"]["n"] == 2
    assert changed.paths() == ["/properties/more", "/properties/n"]
    assert changed.patch() == [
        {"op": "add", "path": "/properties/more", "value": True},
        {"op": "replace", "path": "/properties/n", "value": 2},
    ]
    assert found["gone"].new is None
    assert found["new"].old is None


async def test_backwards_it_is_the_opposite(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    await put(storage, place("a", n=2), place("c"))
    await delete(storage, "b")
    forth, back = await changes(storage, "2..4"), await changes(storage, "4..2")
    assert {id_: (c.old, c.new) for id_, c in forth.items()}.keys() == back.keys()
    for id_, change in forth.items():
        for one, other in ((change.old, back[id_].new), (change.new, back[id_].old)):
            assert (one and one.raw) == (other and other.raw)


async def test_changes_that_were_undone_are_not_differences(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=1))
    await put(storage, place("a", n=2), place("x"))
    await delete(storage, "b", "x")
    await put(storage, place("a", n=1), place("b", n=1), place("c", n=2))
    assert sorted(await changes(storage, "2..HEAD")) == ["c"]
    assert sorted(await changes(storage, "2..3")) == ["a", "x"]
    assert await changes(storage, "2..2") == {}


async def test_tags_and_crid_are_content_the_rest_of_the_namespace_is_not(
    storage: Storage,
) -> None:
    await make(storage)
    await put(storage, place("a", n=1), place("b", n=1))
    tagged = place("a", n=1)
    tagged["properties"][XYZ] = {"tags": ["new"], "crid": "mine"}
    await put(storage, tagged, by=BOB)
    found = await changes(storage, "2..HEAD")
    assert found["a"].paths() == [f"/properties/{XYZ}/crid", f"/properties/{XYZ}/tags"]


async def test_a_filter_may_be_met_by_any_state_in_between(storage: Storage) -> None:
    await make(storage)
    # Moves through the box, from one side to the other.
    await put(storage, place("through", 0, 0), place("from", 10, 10), place("never", 0, 0))
    await put(storage, place("through", 10, 10), place("never", 1, 1))
    await put(storage, place("through", 20, 20), place("from", 20, 20), place("to", 10, 10))
    box = Query(spatial=Bbox(9, 9, 11, 11))
    assert sorted(await changes(storage, "2..HEAD", box)) == ["from", "through", "to"]
    assert sorted(await changes(storage, "3..HEAD", box)) == ["from", "through", "to"]
    assert sorted(await changes(storage, "2..3", box)) == ["through"]


async def test_filters_by_id_property_tag_and_author(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1) for id_ in "abc"))
    tagged = place("b", n=3)
    tagged["properties"][XYZ] = {"tags": ["hot"]}
    await put(storage, place("a", n=2), tagged)
    await put(storage, place("c", n=9), by=BOB)
    n_is_2 = PropertyTest(("properties", "n"), Op.EQ, 2)
    for query, expected in (
        (Query(ids=("a", "c", "nobody")), ["a", "c"]),
        (Query(where=n_is_2), ["a"]),
        (Query(tags=(("hot",),)), ["b"]),
        (Query(authors=("bob",)), ["c"]),
        (Query(where=n_is_2, ids=("b",)), []),
    ):
        assert sorted(await changes(storage, "2..HEAD", query)) == expected


async def test_over_several_collections(storage: Storage) -> None:
    await make(storage, "places", "roads")
    await put(storage, place("a", n=1))
    await put(storage, place("r", n=1), into="roads")
    old, new = await range_of(storage, "1..HEAD")
    found = await all_of(diff_all(old, new))
    assert [(c.collection, c.id) for c in found] == [("places", "a"), ("roads", "r")]
    found = await all_of(diff_all(old, new, collections=["roads"]))
    assert [(c.collection, c.id) for c in found] == [("roads", "r")]


async def test_a_collection_that_was_not_there_is_all_new(storage: Storage) -> None:
    await make(storage)
    await put(storage, place("a", n=1))
    await make(storage, "roads")
    await put(storage, place("r"), into="roads")
    assert sorted(await changes(storage, "0..HEAD", name="roads")) == ["r"]
    assert sorted(await changes(storage, "2..HEAD", name="roads")) == ["r"]


async def test_the_order_is_that_of_ids(storage: Storage) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1) for id_ in ("b", "é", "a", "B", "10", "9")))
    old, new = await range_of(storage, "1..HEAD")
    found = [change.id async for change in diff(old, new, "places")]
    assert found == sorted(found)


@pytest.mark.parametrize("ref", ["2..5", "5..2", "2..HEAD"])
async def test_more_than_can_be_kept_is_looked_up(
    storage: Storage, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(storage)
    await put(storage, *(place(id_, n=1) for id_ in "abcde"))
    await put(storage, *(place(id_, n=2) for id_ in "bcdx"))
    await delete(storage, "e")
    await put(storage, place("c", n=1), place("d", n=3))
    kept = await changes(storage, ref)
    assert sorted(kept) == ["b", "d", "e", "x"]
    module = sys.modules[diff.__module__]
    monkeypatch.setattr(module, "KEPT_MAX", 1)
    monkeypatch.setattr(module, "CHUNK", 2)
    looked_up = await changes(storage, ref)
    assert [(id_, _raw(c)) for id_, c in kept.items()] == [
        (id_, _raw(c)) for id_, c in looked_up.items()
    ]


def _raw(change: FeatureDiff) -> tuple[bytes | None, bytes | None]:
    old, new = change.old, change.new
    return None if old is None else old.raw, None if new is None else new.raw


class BusyStorage:
    """Storage to which another client writes after each read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._turn = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def states(self, *asked: Any) -> AsyncIterator[State]:
        async for state in self._storage.states(*asked):
            yield state
        self._turn += 1
        await put(self._storage, place("untouched", n=self._turn), place("changed", n=-self._turn))


async def test_concurrent_writes_do_not_change_the_kind_of_a_difference(
    storage: Storage,
) -> None:
    """Before and after they wrote it is a difference or none, but nothing is created or deleted."""
    await make(storage)
    await put(storage, place("untouched", n=0), place("changed", n=0))
    await put(storage, place("changed", n=1))
    old, new = await range_of(storage, "2..HEAD")
    busy = replace(new, line=replace(new.line, storage=cast(Storage, BusyStorage(storage))))
    found = {each.id: each async for each in diff(old, busy, "places")}
    assert found.keys() == {"changed"}
    change = found["changed"]
    assert change.action is DiffAction.UPDATED
    assert change.old is not None
    assert change.new is not None
    assert [s.feature["properties"]["n"] for s in (change.old, change.new)] == [0, 1]


@pytest.mark.parametrize(
    "query", [Query(limit=3), Query(states=States.ALL), Query(replaced_since=1)]
)
async def test_pages_and_kinds_of_states_are_refused(storage: Storage, query: Query) -> None:
    await make(storage)
    with pytest.raises(InvalidArgument):
        await changes(storage, "0..HEAD", query)


async def test_changes_undone_in_one_transaction_are_not_differences(
    storage: Storage,
) -> None:
    """There is a state of it, with another author perhaps, and nothing else."""
    await make(storage)
    tagged = place("tags", n=1)
    tagged["properties"][XYZ] = {"tags": ["old"], "crid": "mine"}
    await put(storage, place("back", 1, 2, n=1, more={"x": [1]}), place("moved", n=1), tagged)
    async with storage.write("editor", "bob") as session:
        await session.update("places", [place("back", 3, 4, n=2), place("moved", n=2)])
        other = place("tags", n=1)
        other["properties"][XYZ] = {"tags": ["new"], "crid": "mine"}
        await session.update("places", [other])
        await session.update("places", [place("back", 1, 2, n=1, more={"x": [1]})])
        await session.update("places", [place("moved", 9, 9, n=1)])
    await seen(storage, session.txn)
    found = await changes(storage, "2..HEAD")
    assert {id_: each.paths() for id_, each in found.items()} == {
        "moved": ["/geometry"],
        "tags": [f"/properties/{XYZ}/tags"],
    }
    assert await changes(storage, "2..HEAD", Query(ids=("back",))) == {}
    assert sorted(await changes(storage, "3..2")) == ["moved", "tags"]


async def test_states_in_between_that_are_not_published_yet(storage: Storage) -> None:
    await make(storage, "places", "roads")
    last = await put(storage, place("a", 0, 0), place("b", 0, 0))
    box = Query(spatial=Bbox(9, 9, 11, 11))
    async with storage.write("slow") as slow:
        await slow.create("roads", [place("r")])
        for lon in (10, 20):
            async with storage.write("app") as session:
                await session.upsert("places", [place("a", lon, lon)])
        for ref in (f"{last.seq_number}..HEAD", "2..HEAD"):
            assert sorted(await changes(storage, ref)) == ["a"]
            assert sorted(await changes(storage, ref, box)) == ["a"]
        line = await line_of(storage, "main")
        to = await place_of(storage, str(last.seq_number))
        assert (await rollback(line, to, BOB, query=box, dry_run=True)).count == 1
