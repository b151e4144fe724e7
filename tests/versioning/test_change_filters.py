"""Every filter with every operation that accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import shapely

from naksha.model.collection import CollectionChange
from naksha.model.errors import Expired
from naksha.model.geo.quadkey import qrid
from naksha.model.query import And, Bbox, Intersects, Not, Op, Query, Tile
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ, State
from naksha.model.version import Version
from naksha.spi.storage import Storage, StorageReader
from naksha.versioning import (
    Attribution,
    Line,
    changesets,
    create_branch,
    create_tag,
    diff,
    history,
    line_of,
    place_of,
    revert,
    rollback,
)
from tests.versioning.town import all_of, content, make, place, put

IN, OUT = (8.5, 50.25), (-100.0, -20.0)
OLD, NEW = Attribution("old-app", "ann"), Attribution("new-app", "bob")
RED = PropertyTest(("properties", "colour"), Op.EQ, "red")
FILTERS = {
    "ids": Query(ids=("hit", "nobody")),
    "box": Query(spatial=Bbox(8, 50, 9, 51)),
    "circle": Query(spatial=Intersects(shapely.Point(*IN).wkb, 1_000)),
    "polygon": Query(spatial=Intersects(shapely.box(8, 50, 9, 51).wkb)),
    "tile": Query(spatial=Tile(qrid(*IN)[:4])),
    "tags": Query(tags=(("hot", "dry"), ("nothing",))),
    "property": Query(where=And((RED, Not(PropertyTest(("properties", "colour"), Op.IS_NULL))))),
    "crid": Query(mrid_prefix="mine"),
    "quad key": Query(qrid_prefix=qrid(*IN)[:4]),
    "box and tags": Query(spatial=Bbox(8, 50, 9, 51), tags=(("hot",),)),
}
"""All of them match the feature `hit` as it was first, and no other feature at any time."""


def hit(n: int) -> dict[str, Any]:
    feature = place("hit", *IN, colour="red", n=n)
    feature["properties"][XYZ] = {"tags": ["hot", "dry"], "crid": "mine-1"}
    return feature


def cold(id_: str, n: int) -> dict[str, Any]:
    feature = place(id_, *OUT, colour="blue", n=n)
    feature["properties"][XYZ] = {"tags": ["cold"], "crid": "other"}
    return feature


@pytest.fixture(params=["main", "fix"])
async def line(request: pytest.FixtureRequest, storage: Storage) -> Line:
    """Main, or a branch."""
    await make(storage)
    if request.param != "main":
        await put(storage, cold("below", 0), by=NEW)
        await create_branch(storage, request.param, OLD)
    return await line_of(storage, request.param)


async def story(line: Line) -> tuple[Version, Version]:
    """`hit` matches at first, then no more; `miss` never does. The versions before and after."""
    await put(line.storage, hit(1), by=OLD)
    first = await put(line.storage, cold("miss", 1), by=NEW)
    last = await put(line.storage, cold("hit", 2), cold("miss", 2), by=NEW)
    return first, last


def ref(line: Line, version: Version) -> str:
    return f"{line.name}:{version.seq_number}"


@pytest.mark.parametrize("query", FILTERS.values(), ids=FILTERS)
async def test_filter(line: Line, query: Query) -> None:
    first, last = await story(line)
    old = await place_of(line.root, ref(line, first))
    new = await place_of(line.root, ref(line, last))
    # Reading: at each of the two versions.
    assert sorted(await content(old.storage, at=old.at, query=query)) == ["hit"]
    wanted = ["hit"] if query.ids else []
    assert sorted(await content(new.storage, at=new.at, query=query)) == wanted
    # Differences: it matched before, and does no more.
    assert [each.id async for each in diff(old, new, "places", query)] == ["hit"]
    assert [each.id async for each in diff(new, old, "places", query)] == ["hit"]
    # History: the states that match.
    start = await place_of(line.root, f"{line.name}:1")
    steps = await all_of(history(start, new, "places", query))
    assert [(each.id, each.action) for each in steps][:1] == [("hit", "CREATE")]
    assert {each.id for each in steps} == {"hit"}
    # Rollback: what matched at some time, and nothing else.
    # Log: what made it, and what made it something else.
    log = (await changesets(line, query=query, newest_first=False)).changesets
    assert [each.version for each in log] == [
        (await place_of(line.root, f"{line.name}:{v}")).version
        for v in (first.seq_number - 1, last.seq_number)
    ]
    # Revert: the change of the feature that matched before it.
    undone = await revert(line, new, NEW, query=query, dry_run=True)
    assert undone.updated == {"places": ["hit"]}
    dry = await rollback(line, old, NEW, query=query, dry_run=True)
    done = await rollback(line, old, NEW, query=query)
    assert dry.updated == done.updated == {"places": ["hit"]}
    found = await content(line.storage)
    assert (found["hit"], found["miss"]["n"]) == ({"colour": "red", "n": 1}, 2)


CHANGES = {
    "author": Query(authors=("ann",)),
    "app": Query(app_ids=("old-app",)),
    "author and property": Query(authors=("ann", "eve"), where=RED),
    "author and box": Query(authors=("ann",), spatial=Bbox(8, 50, 9, 51)),
    "action": Query(actions=("UPDATE",), ids=("hit",)),
}
"""All of them match the change of `hit`, and no change of another feature."""


@pytest.mark.parametrize("query", CHANGES.values(), ids=CHANGES)
async def test_filter_on_changes(line: Line, query: Query) -> None:
    """Authors and apps are those of the change, not those of what was there before it."""
    first = await put(line.storage, hit(1), {**hit(1), "id": "other"}, by=OLD)
    by_ann = await put(line.storage, cold("hit", 2), by=OLD)
    last = await put(line.storage, cold("other", 2), by=NEW)
    old = await place_of(line.root, ref(line, first))
    new = await place_of(line.root, ref(line, last))
    assert [each.id async for each in diff(old, new, "places", query)] == ["hit"]
    assert [each.id async for each in diff(new, old, "places", query)] == ["hit"]
    log = await changesets(line, query=query, after=first.seq_number, newest_first=False)
    assert [each.version for each in log.changesets] == [by_ann]
    for version, found in ((by_ann, {"places": ["hit"]}), (last, {})):
        place = await place_of(line.root, ref(line, version))
        assert (await revert(line, place, NEW, query=query, dry_run=True)).updated == found
    done = await rollback(line, old, NEW, query=query)
    assert done.updated == {"places": ["hit"]}
    assert {
        id_: each["n"] for id_, each in (await content(line.storage)).items() if id_ != "below"
    } == {"hit": 1, "other": 2}


async def test_filter_on_the_time_of_changes(line: Line) -> None:
    first = await put(line.storage, hit(1), {**hit(1), "id": "other"}, by=OLD)
    times = []
    for id_ in ("hit", "other"):
        await asyncio.sleep(0.005)
        await put(line.storage, cold(id_, 2), by=NEW)
        (state,) = await all_of(line.storage.states("places", Query(ids=(id_,))))
        times.append(state.xyz["updatedAt"])
    old = await place_of(line.root, ref(line, first))
    for query, found in (
        (Query(updated_from=times[0]), ["hit", "other"]),
        (Query(updated_to=times[1]), ["hit"]),
        (Query(updated_from=times[0] + 1), ["other"]),
        (Query(updated_from=times[0], updated_to=times[1]), ["hit"]),
        (Query(updated_from=times[1] + 1), []),
    ):
        new = await place_of(line.root, f"{line.name}:HEAD")
        assert [each.id async for each in diff(old, new, "places", query)] == found
        log = await changesets(line, query=query, after=first.seq_number, newest_first=False)
        assert len(log.changesets) == len(found)
        back = await rollback(line, old, NEW, query=query, dry_run=True)
        assert back.updated.get("places", []) == found


async def test_filter_on_the_time_of_creation(line: Line) -> None:
    """It is a time of the feature, not of the change."""
    first = await put(line.storage, hit(1), by=OLD)
    await asyncio.sleep(0.005)
    middle = await put(line.storage, {**hit(1), "id": "other"}, by=OLD)
    (state,) = await all_of(line.storage.states("places", Query(ids=("other",))))
    born = state.xyz["createdAt"]
    last = await put(line.storage, cold("hit", 2), cold("other", 2), by=NEW)
    old = await place_of(line.root, ref(line, middle))
    new = await place_of(line.root, ref(line, last))
    for query, found in ((Query(created_to=born), "hit"), (Query(created_from=born), "other")):
        assert [each.id async for each in diff(old, new, "places", query)] == [found]
        back = await rollback(line, old, NEW, query=query, dry_run=True)
        assert back.updated == {"places": [found]}
    log = await changesets(
        line, query=Query(created_from=born), after=first.seq_number, newest_first=False
    )
    assert [each.version for each in log.changesets] == [middle, last]


class CountingStorage:
    """A storage that counts the states that are read from it."""

    def __init__(self, storage: StorageReader) -> None:
        self._storage = storage
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def states(self, *asked: Any) -> AsyncIterator[State]:
        async for state in self._storage.states(*asked):
            self.count += 1
            yield state


@pytest.mark.parametrize("ref", ["HEAD", "3"])
async def test_the_cost_of_a_filtered_difference_follows_the_changes(
    storage: Storage, ref: str
) -> None:
    """However many features match that did not change."""
    await make(storage)
    await put(storage, *({**hit(1), "id": f"{n}"} for n in range(500)), by=OLD)
    await put(storage, {**hit(2), "id": "7"}, by=OLD)
    old, new = await place_of(storage, "2"), await place_of(storage, ref)
    for query in (*FILTERS.values(), *CHANGES.values()):
        if query.ids is not None:
            continue
        counting = CountingStorage(storage)
        line = replace(new.line, storage=cast(Storage, counting))
        before, after = replace(old, line=line), replace(new, line=line)
        assert [each.id async for each in diff(before, after, "places", query)] == ["7"]
        assert counting.count <= 10


async def test_a_log_is_searched_in_pages(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a page, and of what is held in memory at once."""
    wanted = []
    for n in range(6):
        features = [cold(f"cold-{i}", n) for i in range(4)]
        if n % 3 == 1:
            features.append(hit(n))
        version = await put(line.storage, *features, by=OLD if n < 3 else NEW)
        if n % 3 == 1:
            wanted.append(version)
    for at_once in (1, 3, 10_000):
        monkeypatch.setattr("naksha.versioning.log.CHANGES_AT_ONCE", at_once)
        for query in (FILTERS["property"], FILTERS["tags"], FILTERS["box"], FILTERS["ids"]):
            for limit in (1, 4, 100):
                log = await changesets(line, query=query, limit=limit)
                assert [each.version for each in log.changesets] == wanted[::-1][:limit]
        by_ann = Query(authors=("ann",), where=RED)
        log = await changesets(line, query=by_ann, newest_first=False)
        assert [each.version for each in log.changesets] == wanted[:1]


async def test_a_log_whose_states_are_gone(storage: Storage) -> None:
    """Properties of what is not kept cannot be tested; an area is decided by the box."""
    await make(storage)
    version = await put(storage, hit(1), by=OLD)
    async with storage.write("setup") as session:
        await session.change_collection("places", CollectionChange(history_enabled=False))
    await put(storage, hit(2), by=OLD)
    line = await line_of(storage, "main")
    with pytest.raises(Expired):
        await changesets(line, query=FILTERS["property"])
    found = await changesets(line, query=FILTERS["box"], newest_first=False)
    assert found.changesets[0].version == version
    async with storage.write("setup") as session:
        await session.drop_collection("places")
    assert (await changesets(line, query=FILTERS["property"])).changesets == []


async def test_a_filter_at_a_time_and_at_a_tag(line: Line) -> None:
    """However the version is said."""
    first, _ = await story(line)
    await create_tag(line.root, "then", OLD, ref(line, first))
    time = datetime.fromtimestamp(first.published_ms / 1000, UTC).isoformat()
    said = [f"{line.name}:{time}", f"{line.name}:{first.txn}", f"{line.name}:{first.seq_number}"]
    if line.name == "main":
        said.append("then")
    for text in said:
        found = await place_of(line.root, text)
        for query in FILTERS.values():
            if found.version == first:
                assert sorted(await content(found.storage, at=found.at, query=query)) == ["hit"]
    tagged = await place_of(line.root, "then")
    assert sorted(await content(tagged.storage, at=tagged.at, query=FILTERS["box"])) == ["hit"]


async def test_rollback_brings_back_and_takes_away_by_filter(line: Line) -> None:
    await put(line.storage, hit(1), cold("miss", 1), by=OLD)
    first = await put(line.storage, cold("other", 1), by=NEW)
    async with line.storage.write(NEW.app_id, NEW.author) as session:
        await session.delete("places", ["hit", "miss"])
        await session.create("places", [{**hit(9), "id": "born"}, cold("born-cold", 9)])
    await line.storage.wait_published(session.txn or 0, 60)
    to = await place_of(line.root, ref(line, first))
    done = await rollback(line, to, NEW, query=FILTERS["box and tags"])
    assert (done.created, done.deleted) == ({"places": ["hit"]}, {"places": ["born"]})
    assert {"hit", "other", "born-cold"} <= set(await content(line.storage))
