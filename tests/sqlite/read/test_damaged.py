"""Damaged rows of kinds that only SQLite allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import shapely

from naksha.model.damage import DAMAGED
from naksha.model.errors import StorageCorrupt
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Bbox, Intersects, Op, Query, SortKey, States
from naksha.model.query import Test as PropertyTest
from naksha.model.version import HEAD, AtSeq
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import Handle, content, ids_of, point
from tests.damage import damage
from tests.sqlite.support import shell

MARKED = {"text": "document", "depth": "document", "coordinates": "geometry"}
KINDS = (*MARKED, "bytes", "curve", "finite")
"""The unreadable part of a feature, by the kind of damage. Geometries for predicates and tiles are
stored beside those for clients; damage of only the former is not visible to clients."""


@pytest.mark.parametrize("kind", KINDS)
async def test_damaged_features_are_read(storage: SqliteStorage, path: Path, kind: str) -> None:
    roads = Handle(storage, "roads")
    await roads.create(*(point(id, text="good", n=1) for id in ("a", "bad", "z")))
    await damage(path, "roads", "bad", kind)
    first = await roads.published()
    await roads.update(point("a", text="good", n=2))
    area = Intersects(shapely.to_wkb(shapely.box(0, 0, 90, 89)))
    near = Intersects(shapely.to_wkb(shapely.Point(8.5, 50.25)), radius=1000)
    for at in (HEAD, AtSeq(first.seq_number)):
        for query in (Query(), Query(states=States.ALL), Query(limit=9, space="s")):
            found = {state.id: state for state in await roads.states(query, at)}
            assert found.keys() == {"a", "bad", "z"}
            for state in found.values():
                state.raw.decode()
            assert found["bad"].feature.get(DAMAGED, {}).get("field") == MARKED.get(kind)
        for spatial in (area, near, Bbox(0, 0, 90, 89)):
            assert {"a", "z"} <= set(ids_of(await roads.states(Query(spatial=spatial), at)))
        where = Query(where=PropertyTest(("properties", "n"), Op.CONTAINS, 1))
        assert "bad" in ids_of(await roads.states(where, at))
        odd = (SortKey(("properties", 'a "name"')),)
        assert len(await storage.matching_states("roads", Query(), at, sort=odd)) == 3
        rows = [
            row
            for split in await storage.plan("roads", Query(), at)
            async for batch in storage.read(split)
            for row in batch.to_pylist()
        ]
        broken = {row["id"] for row in rows if row["geometry"] is None}
        assert broken == ({"bad"} if kind in ("bytes", "curve", "finite") else set())
        assert await storage.tile("roads", Query(), at, VectorTile.web(0, 0, 0, layer="x"))
    assert {m.id for m in await storage.mismatches("roads", 9)} == {"bad"}
    await roads.update(point("bad", text="good", n=3))
    assert content(await roads.get("bad")) == point("bad", text="good", n=3)


async def test_a_geometry_broken_in_the_middle_stops_only_itself(
    storage: SqliteStorage, path: Path
) -> None:
    """Statements look at the ends of the text alone."""
    roads = Handle(storage, "roads")
    await roads.create(point("a", text="good"), point("bad", text="good"))
    await damage(path, "roads", "bad", "middle")
    good, bad = await roads.states(Query(limit=9))
    assert content(good) == point("a", text="good")
    with pytest.raises(StorageCorrupt, match="not JSON"):
        assert bad.feature
    kinds = Query(where=PropertyTest(("geometry", "type"), Op.EQ, "Point"))
    assert ids_of(await roads.states(kinds)) == ["a"]
    assert (await storage.statistics("roads")).count.value == 2
    assert {m.id for m in await storage.mismatches("roads", 9)} == {"bad"}
    (outcome,) = await roads.update(point("bad", text="good"))
    assert outcome.action == "UPDATED"
    assert content(await roads.get("bad")) == point("bad", text="good")


@pytest.mark.parametrize("kind", ["geometry", "middle"])
async def test_plain_sql_writes_over_a_broken_geometry(
    storage: SqliteStorage, path: Path, kind: str
) -> None:
    roads = Handle(storage, "roads")
    ids = ["changed", "moved", "deleted"]
    await roads.create(*(point(id_, text="good") for id_ in ids))
    for id_ in ids:
        await damage(path, "roads", id_, kind)
    moved = json.dumps(point("moved", 3, 4)["geometry"])
    shell(
        path,
        """UPDATE feature SET properties = '{"n": 1}' WHERE id = 'changed'""",
        f"UPDATE feature SET geometry = '{moved}' WHERE id = 'moved'",
        "DELETE FROM feature WHERE id = 'deleted'",
    )
    assert content(await roads.get("changed")) == point("changed", n=1) | {"geometry": None}
    assert content(await roads.get("moved")) == point("moved", 3, 4, text="good")
    everywhere = Query(spatial=Bbox(-180, -90, 180, 90), limit=9)
    assert ids_of(await roads.states(everywhere)) == ["moved"]


async def test_an_id_that_is_not_utf8_stops_nothing(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a", text="good"), point("bad", text="good"))
    await damage(path, "roads", "bad", "id")
    assert ids_of(await roads.live()) == ["a", "b\N{REPLACEMENT CHARACTER}d"]
    page = await storage.page("roads", Query(limit=1))
    rest = await storage.page("roads", Query(limit=1, cursor=page.cursor))
    assert len(rest.states) == 1
    assert await storage.plan("roads", Query())


@pytest.mark.parametrize("kind", ["geometry", "text", "number"])
async def test_a_damaged_row_of_plain_sql_is_completed(
    storage: SqliteStorage, path: Path, kind: str
) -> None:
    """The library computes the WKB of what plain SQL wrote, before it reads anything."""
    places = Handle(storage, "places")
    document = json.dumps(point("bad", text="good"))
    shell(path, f"INSERT INTO feature (collection, jsondata) VALUES ('places', '{document}')")
    await damage(path, "places", "bad", kind)
    state = await places.get("bad")
    assert state.feature[DAMAGED]["field"] == ("geometry" if kind == "geometry" else "document")
    assert (state.feature["geometry"] is None) == (kind == "geometry")
    (found,) = await storage.mismatches("places", 9)
    assert found.message.startswith(
        f"the {state.feature[DAMAGED]['field']} of the state is damaged: "
    )
    (outcome,) = await places.update(point("bad", text="good"))
    assert outcome.uuid != state.uuid
    assert content(await places.get("bad")) == point("bad", text="good")


async def test_the_mark_stays_until_the_feature_is_written(
    storage: SqliteStorage, path: Path
) -> None:
    """The readable rest of a damaged feature is new content, although clients get the same."""
    places = Handle(storage, "places")
    await places.create(point("bad", text="good"))
    await damage(path, "places", "bad", "number")
    await places.delete("bad")
    await places.restore("bad")
    state = await places.get("bad")
    assert state.feature[DAMAGED]["field"] == "document"
    (outcome,) = await places.update(content(state))
    assert outcome.action == "UPDATED"
    assert DAMAGED not in (await places.get("bad")).feature
