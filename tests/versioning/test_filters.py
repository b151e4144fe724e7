"""Every filter with every operation that takes one: reading, differences, history, rollback."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import shapely

from naksha.model.quadkey import qrid
from naksha.model.query import And, Bbox, Intersects, Not, Op, Query, Tile
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from naksha.model.version import Version
from naksha.spi.storage import Storage
from naksha.versioning import (
    Line,
    Signed,
    create_branch,
    create_tag,
    diff,
    history,
    line_of,
    place_of,
    rollback,
)
from tests.versioning.town import all_of, content, make, place, put

IN, OUT = (8.5, 50.25), (-100.0, -20.0)
OLD, NEW = Signed("old-app", "ann"), Signed("new-app", "bob")
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
    "author": Query(authors=("ann",)),
    "app": Query(app_ids=("old-app",)),
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
    dry = await rollback(line, old, NEW, query=query, dry_run=True)
    done = await rollback(line, old, NEW, query=query)
    assert dry.updated == done.updated == {"places": ["hit"]}
    found = await content(line.storage)
    assert (found["hit"], found["miss"]["n"]) == ({"colour": "red", "n": 1}, 2)


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
