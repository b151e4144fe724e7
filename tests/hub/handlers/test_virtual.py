"""Combined spaces that hide nothing, and virtual spaces, which use the same handlers.

Features are merged property by property, or written where they come from.
"""

import asyncio
from typing import Any

import pytest
import shapely

from naksha.hub.config.objects import Space
from naksha.hub.config.space_changes import create_space, remove_space
from naksha.hub.pipeline.request_context import RequestContext
from naksha.hub.pipeline.requests import DeleteFeatures, IfExists, IfNotExists, ReadFeatures
from naksha.model.errors import (
    FeatureNotFound,
    Forbidden,
    InUse,
    InvalidArgument,
    NotSupported,
)
from naksha.model.query import Bbox, Intersects, Op, Query, QueryPart, States
from naksha.model.query import Test as PropertyTest
from tests.hub.handlers.support import ACTOR, CONTEXT, Feature, HubUnderTest, content, feature
from tests.hub.realms import an_actor

FIGURES, SHAPES = "figures", "shapes"


def at(id: str, lon: float, **properties: Any) -> Feature:
    point = {"type": "Point", "coordinates": [lon, 50.0]}
    return {**feature(id, **properties), "geometry": point}


def nowhere(id: str, **properties: Any) -> Feature:
    return {**feature(id, **properties), "geometry": None}


def has(name: str, value: Any, op: Op = Op.EQ) -> PropertyTest:
    return PropertyTest(("properties", name), op, value)


async def joined(hub: HubUnderTest) -> None:
    """Figures without geometries over shapes."""
    await hub.space(SHAPES)
    await hub.space(FIGURES)
    view = {"spaceIds": [FIGURES, SHAPES], "viewType": "MERGED"}
    await hub.space("map", ("view", view))
    await hub.put(
        SHAPES, *(at(id, lon, name=id.upper(), of={"kind": "town"}) for lon, id in enumerate("abc"))
    )
    await hub.put(FIGURES, nowhere("a", people=10, of={"size": 1}), nowhere("b", people=20))
    await hub.put(FIGURES, nowhere("d", people=40))


class TestMerged:
    async def test_properties_lie_over_each_other(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        whole = {
            "a": {"name": "A", "of": {"kind": "town", "size": 1}, "people": 10},
            "b": {"name": "B", "of": {"kind": "town"}, "people": 20},
            "c": {"name": "C", "of": {"kind": "town"}},
            "d": {"people": 40},
        }
        assert await hub.read("map") == whole
        assert await hub.count("map") == 4
        states = {state.id: state for state in await hub.states("map")}
        assert states["a"].feature["geometry"]["coordinates"] == [0.0, 50.0]
        assert states["d"].feature["geometry"] is None
        assert states["a"].xyz["space"] == "map"
        assert await hub.read("map", Query(ids=("b", "nothing"))) == {"b": whole["b"]}

    async def test_queries_apply_to_merged_features(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        rich = Query(where=has("people", 15, Op.GTE))
        assert sorted(await hub.read("map", rich)) == ["b", "d"]
        near = Bbox(west=-0.5, south=49, east=1.5, north=51)
        assert sorted(await hub.read("map", Query(spatial=near))) == ["a", "b"]
        both = Query(spatial=near, where=has("people", 15, Op.GTE))
        assert sorted(await hub.read("map", both)) == ["b"]
        assert await hub.count("map", both) == 1
        assert len(await hub.states("map", Query(spatial=near, limit=1))) == 1
        assert await hub.pages("map", Query(where=rich.where, limit=1)) == [["b"], ["d"]]
        assert await hub.pages("map", Query(spatial=near, limit=2)) == [["a", "b"], []]

    async def test_the_upper_geometry_counts(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        await hub.put(FIGURES, at("a", 90))
        west = Intersects(shapely.to_wkb(shapely.box(-1, 49, 1.5, 51)))
        east = Intersects(shapely.to_wkb(shapely.box(89, 49, 91, 51)))
        assert sorted(await hub.read("map", Query(spatial=west))) == ["b"]
        assert sorted(await hub.read("map", Query(spatial=east))) == ["a"]

    async def test_upper_values_and_tags_are_in_place_of_lower_ones(
        self, hub: HubUnderTest
    ) -> None:
        await joined(hub)
        await hub.put(SHAPES, feature("x", tags=["low"], n=1, list=[1, 2]))
        await hub.put(FIGURES, feature("x", tags=["high"], n=None, list=[3]))
        assert (await hub.read("map", Query(tags=(("high",),)))) == {"x": {"n": None, "list": [3]}}
        assert await hub.read("map", Query(tags=(("low",),))) == {}
        assert await hub.read("map", Query(authors=("nobody",))) == {}

    async def test_the_upper_time_of_creation_counts(self, hub: HubUnderTest) -> None:
        await joined(hub)
        await asyncio.sleep(0.005)
        await hub.put(FIGURES, nowhere("c"))
        (above,) = [state for state in await hub.states(FIGURES) if state.id == "c"]
        created = above.xyz["createdAt"]
        assert sorted(await hub.read("map", Query(created_from=created))) == ["c"]
        assert sorted(await hub.read("map", Query(created_to=created))) == ["a", "b", "d"]
        assert await hub.count("map", Query(created_from=created, created_to=created)) == 0

    async def test_pages_and_parts_are_whole(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        for size in (1, 2, 3, 4, 5):
            pages = await hub.pages("map", Query(limit=size))
            assert [id for page in pages for id in page] == ["a", "b", "c", "d"]
        parts = [sorted(await hub.read("map", Query(part=QueryPart(n, 2)))) for n in (1, 2)]
        assert sorted(parts[0] + parts[1]) == ["a", "b", "c", "d"]

    async def test_pages_show_one_version(self, hub: HubUnderTest) -> None:
        await joined(hub)
        request = ReadFeatures(query=Query(limit=2), paged=True)
        first = await hub.realm.send("map", request, CONTEXT)
        assert [state.id for state in await first.all()] == ["a", "b"]
        await hub.put(FIGURES, nowhere("c", people=30), nowhere("e", people=50))
        rest = ReadFeatures(query=Query(limit=9, cursor=first.cursor), paged=True)
        states = await (await hub.realm.send("map", rest, CONTEXT)).all()
        assert {state.id: content(state).get("people") for state in states} == {"c": None, "d": 40}

    async def test_deleted_features_stay_deleted(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        assert (await hub.delete("map", "a", "c")).deleted == ("a", "c")
        assert sorted(await hub.read("map")) == ["b", "d"]
        assert sorted(await hub.read(SHAPES)) == ["a", "b", "c"]
        assert await hub.count("map") == 2
        deleted = await hub.states("map", Query(states=States.DELETED))
        assert sorted(state.id for state in deleted) == ["a", "c"]

    async def test_writes_go_to_the_top(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        await hub.write("map", feature("b", people=21), nowhere("c", people=31))
        assert (await hub.read("map"))["b"]["people"] == 21
        assert (await hub.read(FIGURES))["c"]["people"] == 31
        assert "people" not in (await hub.read(SHAPES))["c"]
        query = DeleteFeatures(query=Query(where=has("people", 30, Op.GTE)))
        gone = await hub.realm.send("map", query, CONTEXT)
        assert sorted(gone.ids) == ["c", "d"]
        assert sorted(await hub.read("map")) == ["a", "b"]

    async def test_a_version_can_be_read(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await joined(hub)
        version = (await hub.put(FIGURES, nowhere("a", people=11))).version
        await hub.put(FIGURES, nowhere("a", people=12))
        then = await hub.read("map", Query(ids=("a",)), ref=str(version))
        assert then["a"]["people"] == 11

    async def test_features_hidden_by_rights_still_mask(self, hub: HubUnderTest) -> None:
        await joined(hub)
        read = [{"spaceId": "map"}, {"spaceId": SHAPES}]
        actor = an_actor(useSpaces=[{}], readFeatures=read)
        context = RequestContext(actor=actor, stream_id="test")
        with pytest.raises(Forbidden):
            await (await hub.realm.send("map", ReadFeatures(), context)).all()
        await hub.put(SHAPES, feature("x", tags=["open"]), feature("y"))
        actor = an_actor(useSpaces=[{}], readFeatures=[{"tags": "open"}])
        reader = RequestContext(actor=actor, stream_id="test")
        found = await (await hub.realm.send("map", ReadFeatures(), reader)).all()
        assert [state.id for state in found] == ["x"]

    async def test_states_of_the_past_are_those_of_its_spaces(self, hub: HubUnderTest) -> None:
        await joined(hub)
        for query in (Query(states=States.ALL), Query(txn_from=1), Query(actions=("CREATE",))):
            with pytest.raises(NotSupported):
                await hub.read("map", query)


async def grouped(hub: HubUnderTest) -> None:
    for name in ("roads", "rails"):
        await hub.space(name)
    view = {"spaceIds": ["roads", "rails"], "viewType": "UNION", "writes": "origin"}
    await hub.space("ways", ("view", view))
    await hub.put("roads", feature("a", n=1), feature("both", n=1))
    await hub.put("rails", feature("b", n=2), feature("both", n=2))


class TestOrigins:
    async def test_features_are_changed_where_they_are(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await grouped(hub)
        written = await hub.write("ways", feature("b", m=1), feature("a", m=1), feature("c", m=1))
        assert (written.inserted, written.updated) == (("c",), ("b", "a"))
        assert [state.id for state in written.states] == ["b", "a", "c"]
        assert await hub.read("rails") == {"b": {"n": 2, "m": 1}, "both": {"n": 2}}
        assert sorted(await hub.read("roads")) == ["a", "both", "c"]

    async def test_a_feature_may_say_where_it_belongs(self, hub: HubUnderTest) -> None:
        await grouped(hub)
        for state in await hub.states("ways", Query(ids=("both",))):
            sent = state.feature
            sent["properties"]["n"] += 10
            await hub.put("ways", sent)
        assert (await hub.read("roads"))["both"] == {"n": 11}
        assert (await hub.read("rails"))["both"] == {"n": 12}
        new = feature("new")
        new["properties"]["@ns:com:here:xyz"] = {"space": "rails"}
        await hub.put("ways", new)
        assert "new" in await hub.read("rails")

    async def test_deletions_apply_to_all_spaces(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await grouped(hub)
        assert (await hub.delete("ways", "both", "b", "nothing")).deleted == ("both", "b")
        assert await hub.read("ways") == {"a": {"n": 1}}
        gone = await hub.realm.send("ways", DeleteFeatures(), CONTEXT)
        assert gone.ids == ("a",)
        assert await hub.count("ways") == 0

    async def test_existence_is_checked_in_all_spaces(self, hub: HubUnderTest) -> None:
        await grouped(hub)
        patch: Any = {"e": IfExists.PATCH, "ne": IfNotExists.ERROR}
        assert (await hub.write("ways", feature("b", m=1), **patch)).updated == ("b",)
        with pytest.raises(FeatureNotFound):
            await hub.write("ways", feature("nothing", m=1), **patch)

    @pytest.mark.parametrize(
        "properties",
        [
            {"spaceIds": ["roads"], "writes": "origin"},
            {"spaceIds": ["roads"], "viewType": "MERGED", "writes": "origin"},
            {"spaceIds": ["roads"], "viewType": "UNION", "writes": "down"},
        ],
    )
    async def test_invalid_combinations_are_rejected(
        self, hub: HubUnderTest, properties: dict[str, Any]
    ) -> None:
        await hub.space("roads")
        with pytest.raises(InvalidArgument):
            await hub.space("ways", ("view", properties))


def virtual(told: Any) -> Space:
    storage = {"id": "virtualspace", "params": {"virtualspace": told}}
    return Space.from_json({"id": "virtual", "storage": storage})


class TestVirtualSpaces:
    async def test_the_last_space_is_on_top(self, hub: HubUnderTest) -> None:
        await hub.space("one")
        await hub.space("two")
        await hub.put("one", feature("a", n=1, one=True), feature("b", n=1))
        await hub.put("two", feature("a", n=2))
        for kind, expected in (
            ("override", {"n": 2}),
            ("merge", {"n": 2, "one": True}),
            ("group", {"n": 1, "one": True}),
        ):
            await create_space(hub.realm, virtual({kind: ["one", "two"]}), ACTOR)
            (first, *_) = await hub.states("virtual", Query(ids=("a",)))
            assert content(first) == expected
            assert await hub.count("virtual") == (3 if kind == "group" else 2)
            with pytest.raises(InUse, match="virtual"):
                await remove_space(hub.realm, "one", ACTOR)
            await remove_space(hub.realm, "virtual", ACTOR)

    @pytest.mark.parametrize(
        "told",
        [
            {},
            [],
            {"special": ["one"]},
            {"group": ["one"], "merge": ["one"]},
            {"group": "one"},
            {"group": []},
            {"group": [7]},
            {"group": ["one", "nothing"]},
            {"override": ["virtual"]},
        ],
    )
    async def test_a_virtual_space_must_name_its_spaces(self, hub: HubUnderTest, told: Any) -> None:
        await hub.space("one")
        with pytest.raises(InvalidArgument):
            await create_space(hub.realm, virtual(told), ACTOR)

    async def test_a_virtual_space_requires_rights_to_its_spaces(self, hub: HubUnderTest) -> None:
        await hub.space("one")
        actor = an_actor(manageSpaces=[{"id": "virtual"}], useSpaces=[{"id": "virtual"}])
        with pytest.raises(Forbidden):
            await create_space(hub.realm, virtual({"group": ["one"]}), actor)

    async def test_a_storage_may_have_this_name(self, hub: HubUnderTest, tmp_path: Any) -> None:
        await hub.storage("virtualspace", f"file:{tmp_path}/other.naksha")
        await hub.space("plain", storage="virtualspace")
        await hub.put("plain", feature("a"))
        assert sorted(await hub.read("plain")) == ["a"]
