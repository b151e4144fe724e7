"""Spaces that store features by their type."""

from typing import Any

import pytest

from naksha.hub.pipeline.requests import DeleteFeatures, IfExists, IfNotExists
from naksha.model.errors import Conflict, InvalidArgument, NotSupported
from naksha.model.query import Query
from tests.hub.handlers.support import CONTEXT, HubUnderTest, feature

SPLIT: dict[str, Any] = {
    "property": "properties.kind",
    "collections": {"road": "roads", "rail": "rails", "tram": "rails"},
    "otherwise": "others",
}


async def ways(hub: HubUnderTest, **changes: Any) -> None:
    """The space, and one on each of its collections."""
    await hub.space("ways", ("type-splitter", {**SPLIT, **changes}))
    for name in ("roads", "rails", "others"):
        await hub.space(name)


async def parts(hub: HubUnderTest) -> dict[str, list[str]]:
    return {name: sorted(await hub.read(name)) for name in ("roads", "rails", "others")}


class TestCollections:
    async def test_one_write_is_one_transaction(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await ways(hub)
        written = await hub.write(
            "ways",
            feature("a", kind="road"),
            feature("b", kind="rail"),
            feature("c", kind="tram"),
            feature("d"),
        )
        assert written.inserted == ("a", "b", "c", "d")
        assert written.version == 1
        assert [state.id for state in written.states] == ["a", "b", "c", "d"]
        assert await parts(hub) == {"roads": ["a"], "rails": ["b", "c"], "others": ["d"]}
        assert sorted(await hub.read("ways")) == ["a", "b", "c", "d"]
        assert {state.xyz["space"] for state in await hub.states("ways")} == {"ways"}
        assert await hub.count("ways") == 4
        for size in (1, 2, 3):
            pages = await hub.pages("ways", Query(limit=size))
            assert [id for page in pages for id in page] == ["a", "b", "c", "d"]

    async def test_nothing_is_written_when_something_is_wrong(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await ways(hub)
        wrong = {**feature("b", kind="rail"), "geometry": {"type": "Point", "coordinates": []}}
        with pytest.raises(InvalidArgument):
            await hub.put("ways", feature("a", kind="road"), wrong)
        assert await hub.read("ways") == {}

    @pytest.mark.parametrize("how", [IfExists.PATCH, IfExists.REPLACE])
    async def test_a_feature_moves_with_its_type(
        self, any_hub: HubUnderTest, how: IfExists
    ) -> None:
        hub = any_hub
        await ways(hub)
        await hub.put("ways", feature("a", kind="road", n=1, tags=["x"]), feature("b", kind="road"))
        written = await hub.write(
            "ways", feature("a", kind="rail"), feature("b", kind="road", n=2), e=how
        )
        assert (written.updated, written.inserted, written.deleted) == (("a", "b"), (), ())
        assert written.version == 2
        assert await parts(hub) == {"roads": ["b"], "rails": ["a"], "others": []}
        found = await hub.read("ways")
        kept = {"kind": "rail", "n": 1} if how is IfExists.PATCH else {"kind": "rail"}
        assert found == {"a": kept, "b": {"kind": "road", "n": 2}}
        if how is IfExists.PATCH:
            (state,) = await hub.states("ways", Query(ids=("a",)))
            assert state.xyz["tags"] == ["x"]

    async def test_patches_apply_to_existing_features_only(self, hub: HubUnderTest) -> None:
        await ways(hub)
        await hub.put("ways", feature("a", kind="road"))
        written = await hub.write(
            "ways",
            feature("a", kind="rail"),
            feature("new", kind="rail"),
            e=IfExists.PATCH,
            ne=IfNotExists.RETAIN,
        )
        assert written.updated == ("a",)
        assert await parts(hub) == {"roads": [], "rails": ["a"], "others": []}

    async def test_deleting_wherever_it_is(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await ways(hub)
        await hub.put("ways", *(feature(id, kind=k) for id, k in (("a", "road"), ("b", "rail"))))
        assert (await hub.delete("ways", "b", "a", "none")).deleted == ("b", "a")
        assert await hub.read("ways") == {}
        await hub.put("ways", *(feature(id, kind=k) for id, k in (("a", "road"), ("b", "rail"))))
        deleted = await hub.realm.send("ways", DeleteFeatures(), CONTEXT)
        assert (deleted.count, deleted.version) == (2, 4)

    async def test_a_lock_counts_when_it_moves_too(self, hub: HubUnderTest) -> None:
        await ways(hub)
        await hub.put("ways", feature("a", kind="road"))
        (old,) = await hub.states("ways")
        await hub.put("ways", feature("a", kind="road", n=2))
        moved = {**old.feature, "properties": {**old.feature["properties"], "kind": "rail"}}
        with pytest.raises(Conflict):
            await hub.put("ways", moved)
        with pytest.raises(NotSupported):
            await hub.write("ways", moved, e=IfExists.MERGE)

    async def test_without_otherwise_another_type_is_refused(self, hub: HubUnderTest) -> None:
        await ways(hub, otherwise=None)
        with pytest.raises(InvalidArgument, match="rail, road, tram") as refused:
            await hub.put("ways", feature("a", kind="river"))
        assert (refused.value.feature_id, refused.value.field) == ("a", "properties.kind")
        written = await hub.put(
            "ways", feature("a", kind="river"), feature("b", kind="road"), transactional=False
        )
        assert [(one.id, one.position) for one in written.failed] == [("a", 0)]
        assert written.inserted == ("b",)

    @pytest.mark.parametrize("way", ["collections", "spaces"])
    async def test_valid_features_are_written_to_their_collections(
        self, hub: HubUnderTest, way: str
    ) -> None:
        """Also when nothing is right of what belongs into one of the places."""
        names = {"road": "roads", "rail": "rails"}
        for name in names.values():
            await hub.space(name)
        await hub.space("ways", ("type-splitter", {"property": "properties.kind", way: names}))
        nowhere = {"type": "Point", "coordinates": []}
        wrong = {**feature("b", kind="rail"), "geometry": nowhere}
        written = await hub.put("ways", wrong, feature("a", kind="road"), transactional=False)
        assert written.inserted == ("a",)
        assert [(one.id, one.position) for one in written.failed] == [("b", 0)]
        with pytest.raises(InvalidArgument) as refused:
            await hub.put("ways", wrong, feature("c", kind="river"), transactional=False)
        assert {one.id for one in refused.value.failures} == {"b", "c"}

    @pytest.mark.parametrize("way", ["collections", "spaces"])
    async def test_a_failed_move_leaves_the_feature_in_place(
        self, hub: HubUnderTest, way: str
    ) -> None:
        names = {"road": "roads", "rail": "rails"}
        for name in names.values():
            await hub.space(name)
        await hub.space("ways", ("type-splitter", {"property": "properties.kind", way: names}))
        await hub.put("ways", feature("a", kind="road"), feature("b", kind="road"))
        wrong = {**feature("a", kind="rail"), "geometry": {"type": "Point", "coordinates": []}}
        moving = feature("b", kind="rail")
        written = await hub.put("ways", wrong, moving, transactional=False)
        assert (written.updated, [one.id for one in written.failed]) == (("b",), ["a"])
        assert sorted(await hub.read("roads")) == ["a"]
        assert sorted(await hub.read("rails")) == ["b"]

    async def test_a_branch_is_refused_and_main_left_alone(self, hub: HubUnderTest) -> None:
        await ways(hub)
        await hub.put("ways", feature("a", kind="road"))
        with pytest.raises(NotSupported):
            await hub.realm.send("ways", DeleteFeatures(ref="other:HEAD"), CONTEXT)
        assert await hub.count("ways") == 1

    async def test_a_version_is_one_of_all_collections(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await ways(hub)
        await hub.put("ways", feature("a", kind="road"))
        await hub.put("ways", feature("a", kind="rail"))
        assert await hub.read("ways", ref="1") == {"a": {"kind": "road"}}
        assert await hub.read("ways", ref="2") == {"a": {"kind": "rail"}}


class TestSpaces:
    async def test_each_space_gets_its_features(self, hub: HubUnderTest) -> None:
        await hub.space("roads")
        await hub.space("rails")
        await hub.space(
            "ways",
            (
                "type-splitter",
                {"property": ["properties", "kind"], "spaces": {"road": "roads", "rail": "rails"}},
            ),
        )
        await hub.put("ways", feature("a", kind="road"), feature("b", kind="rail"))
        written = await hub.write("ways", feature("a", kind="rail"))
        assert written.updated == ("a",)
        assert sorted(await hub.read("rails")) == ["a", "b"]
        assert await hub.read("roads") == {}


class TestConfiguration:
    @pytest.mark.parametrize(
        "properties",
        [
            {},
            {"property": "a"},
            {"collections": {"road": "roads"}},
            {"property": "a", "collections": {}},
            {"property": "a", "collections": {"road": 1}},
            {"property": "a", "collections": {"road": "roads"}, "otherwise": 1},
            {"property": "a", "collections": {"road": "roads"}, "spaces": {"road": "roads"}},
            {"property": "", "collections": {"road": "roads"}},
        ],
    )
    async def test_invalid_type_splitters_are_rejected(
        self, hub: HubUnderTest, properties: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgument):
            await hub.space("ways", ("type-splitter", properties))
