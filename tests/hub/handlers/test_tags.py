"""Handlers about tags: the tag filter, and source ids."""

from typing import Any, ClassVar

import pytest

from naksha.hub.handlers.source_id import PATH, implied, narrowed, source_tag
from naksha.hub.pipeline.requests import DeleteFeatures, IfExists, Request
from naksha.hub.pipeline.version_requests import ReadChangesets, ReadDiff, ReadHistory, Revert
from naksha.model.errors import FeatureExists, InvalidArgument, NotImplementedHere, NotSupported
from naksha.model.query import And, Not, Op, Or, Predicate, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import State
from tests.hub.handlers.support import CONTEXT, Feature, HubUnderTest, feature

STORED = ("storage", {"collection": "things"})


async def tags(hub: HubUnderTest, space: str = "things") -> dict[str, list[str]]:
    return {state.id: sorted(state.xyz["tags"]) for state in await hub.states(space)}


def number(state: State | None) -> Any:
    return None if state is None else state.feature["properties"]["n"]


class TestTagRules:
    RULES: ClassVar = {
        "Large": "$.features[?(@.properties.area>=500)]",
        "small": "$.features[?@.properties.area < 500]",
    }

    async def ruled(self, hub: HubUnderTest) -> None:
        await hub.space("things", ("tag-filter", {"rules": self.RULES}), STORED)

    async def test_tags_follow_the_rules_on_every_write(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.ruled(hub)
        await hub.put("things", feature("a", area=900), feature("b", area=1, tags=["x", "large"]))
        await hub.put("things", feature("c"), add_tags=("large", "y"))
        assert await tags(hub) == {"a": ["large"], "b": ["small", "x"], "c": ["y"]}
        await hub.put("things", feature("b", area=500))  # the tags are not sent: they stay
        await hub.put("things", feature("a", area=2, tags=["z"]), remove_tags=("small",))
        assert await tags(hub) == {"a": ["small", "z"], "b": ["large", "x"], "c": ["y"]}

    async def test_a_patch_is_judged_as_the_whole_feature(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.ruled(hub)
        await hub.put("things", feature("a", area=900, tags=["x"]), feature("b", area=1))
        await hub.write("things", feature("a", name="A"), e=IfExists.PATCH)
        assert await tags(hub) == {"a": ["large", "x"], "b": ["small"]}
        await hub.write("things", feature("b", area=501), feature("new", area=7), e=IfExists.PATCH)
        assert await tags(hub) == {"a": ["large", "x"], "b": ["large"], "new": ["small"]}
        assert (await hub.read("things"))["a"]["area"] == 900

    async def test_a_merge_that_cannot_be_foreseen_is_refused(self, hub: HubUnderTest) -> None:
        await self.ruled(hub)
        await hub.put("things", feature("a", area=1))
        (old,) = await hub.states("things")
        await hub.put("things", feature("a", area=900))
        with pytest.raises(NotSupported):
            await hub.write("things", old.feature, e=IfExists.MERGE)

    @pytest.mark.parametrize(
        "rules", [[], "x", {"a": 1}, {"a": "$.features[?(@.name =~ /x/)]"}, {"": "$.features[0]"}]
    )
    async def test_invalid_rules_are_rejected(self, hub: HubUnderTest, rules: Any) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("x", ("tag-filter", {"rules": rules}), STORED)
        assert (refused.value.field or "").startswith("properties.rules")


class TestTagFilter:
    async def filtered(self, hub: HubUnderTest) -> None:
        await hub.space("things")
        rules = {"add": ["Seen"], "removeWithPrefixes": ["tmp_"], "contains": ["public"]}
        await hub.space("shown", ("tag-filter", rules), STORED)

    async def test_tags_are_taken_and_given_on_write(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.filtered(hub)
        await hub.put("shown", feature("a", tags=["tmp_1", "public"]), add_tags=("TMP_2", "x"))
        assert await tags(hub) == {"a": ["public", "seen", "x"]}
        await hub.put("things", feature("b", tags=["public"]))
        await hub.write("shown", feature("b", n=1), remove_tags=("seen", "x"))
        assert (await tags(hub))["b"] == ["public", "seen"]

    async def test_reads_return_tagged_features_only(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.filtered(hub)
        await hub.put("things", feature("a", tags=["public", "x"]), feature("b", tags=["x"]))
        await hub.put("things", feature("c", tags=["public"]))
        assert sorted(await hub.read("shown")) == ["a", "c"]
        assert sorted(await hub.read("shown", Query(tags=(("x",), ("y",))))) == ["a"]
        assert await hub.read("shown", Query(tags=())) == {}
        assert await hub.count("shown") == 2
        assert await hub.pages("shown", Query(limit=1)) == [["a"], ["c"]]

    async def test_deletions_are_limited_to_tagged_features(self, hub: HubUnderTest) -> None:
        await self.filtered(hub)
        await hub.put("things", feature("a", tags=["public"]), feature("b"))
        deleted = await hub.realm.send("shown", DeleteFeatures(), CONTEXT)
        assert deleted.ids == ("a",)
        query = Query(ids=("b",))
        refused: list[Request[Any]] = [
            *(ReadChangesets(), ReadChangesets(features=query)),
            *(Revert(version="1"), Revert(version="1", features=query)),
        ]
        for request in refused:
            with pytest.raises(NotImplementedHere):
                await hub.realm.send("shown", request, CONTEXT)

    async def test_version_requests_return_visible_features_only(
        self, any_hub: HubUnderTest
    ) -> None:
        hub = any_hub
        await self.filtered(hub)
        await hub.put("things", feature("a", tags=["public"], n=1), feature("b", n="secret"))
        for n, tag in (("secret", "private"), ("secrets", "private"), (2, "public")):
            await hub.put("things", feature("a", tags=[tag], n=n, **{f"key-{n}": n}))
        await hub.put("things", feature("b", tags=["public"], n=3))

        async def diff(ref: str) -> list[tuple[str, Any, Any]]:
            found = await hub.realm.send("shown", ReadDiff(ref=ref), CONTEXT)
            return [(one.id, number(one.old), number(one.new)) async for one in found.changes]

        assert await diff("0..1") == [("a", None, 1)]
        assert await diff("1..2") == [("a", 1, None)]
        assert await diff("2..3") == []
        assert await diff("3..4") == [("a", None, 2)]
        assert await diff("1..5") == [("a", 1, 2), ("b", None, 3)]
        request = ReadHistory(ref="*", query=Query(ids=("a",)))
        told = await hub.realm.send("shown", request, CONTEXT)
        steps = [step async for step in told.steps]
        assert [step.state.feature["properties"]["n"] for step in steps] == [1, 2]
        assert "secret" not in str([step.patch() for step in steps])

    @pytest.mark.parametrize("rules", [{"add": "x"}, {"contains": [1]}, {"add": ["x" * 999]}])
    async def test_invalid_tags_are_rejected(
        self, hub: HubUnderTest, rules: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("shown", ("tag-filter", rules), STORED)
        assert (refused.value.field or "").startswith("properties.")


def sourced(id: str, source: object, **more: Any) -> Feature:
    made = feature(id, **more)
    made["properties"]["@ns:com:here:meta"] = {"sourceId": source}
    return made


def equals(value: object) -> Predicate:
    return PropertyTest(PATH, Op.EQ, value)


class TestSourceId:
    async def sources(self, hub: HubUnderTest) -> None:
        await hub.space("things", ("source-id", {}), ("storage", {}))

    async def test_it_becomes_a_tag(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.sources(hub)
        await hub.put("things", sourced("a", "ABC", tags=["x", "xyz_source_id_old"]), feature("b"))
        assert await tags(hub) == {"a": ["x", "xyz_source_id_abc"], "b": []}
        await hub.write("things", sourced("a", "new"))
        assert (await tags(hub))["a"] == ["x", "xyz_source_id_new"]
        await hub.write("things", {"type": "Feature", "id": "a", "properties": {"n": 1}})
        assert (await tags(hub))["a"] == ["x", "xyz_source_id_new"]
        await hub.write("things", sourced("a", None))
        assert (await tags(hub))["a"] == ["x"]
        await hub.write("things", sourced("a", "n"), e=IfExists.REPLACE)
        await hub.put("things", feature("a"))
        assert (await tags(hub))["a"] == ["x"]

    async def test_it_is_found(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.sources(hub)
        await hub.put("things", sourced("a", "A"), sourced("b", "a"), sourced("c", "c"))
        assert sorted(await hub.read("things", Query(where=equals("A")))) == ["a"]
        either = Or((equals("A"), equals("c")))
        assert sorted(await hub.read("things", Query(where=either))) == ["a", "c"]
        assert sorted(await hub.read("things", Query(where=Not(equals("A"))))) == ["b", "c"]

    def test_tags_implied_by_predicates(self) -> None:
        other = PropertyTest(("properties", "n"), Op.EQ, "1")
        one, two = ("xyz_source_id_1",), ("xyz_source_id_2",)
        assert implied(equals("1")) == (one,)
        assert implied(And((other, equals("1")))) == (one,)
        assert implied(Or((equals("1"), equals("2")))) == (one, two)
        for nothing in (Or((other, equals("1"))), Or(()), Not(equals("1")), equals(1), other):
            assert implied(nothing) is None
        assert implied(equals("a,b")) is None
        query = Query(where=Or((equals("1"), equals("2"))), tags=(("x",), ("y",)))
        assert narrowed(query).tags == (("x", *one), ("x", *two), ("y", *one), ("y", *two))
        assert source_tag("ä") == "xyz_source_id_a"
        assert source_tag("") is source_tag("x" * 9999) is None


async def test_write_responses_reveal_no_hidden_features(hub: HubUnderTest) -> None:
    """A write with `e=retain` returns the existing state, which the filter may hide."""
    await hub.space("all")
    await hub.put("all", feature("a", tags=["secret"], n=1), feature("b", tags=["public"], n=2))
    filtering = ("tag-filter", {"contains": ["public"], "add": ["public"]})
    await hub.space("some", filtering, ("storage", {"collection": "all"}))
    found = await hub.write("some", feature("a"), feature("b"), e=IfExists.RETAIN)
    assert [state.id for state in found.states] == ["b"]
    for id, head in (("a", None), ("b", "b")):
        with pytest.raises(FeatureExists) as refused:
            await hub.write("some", feature(id), e=IfExists.ERROR)
        assert (refused.value.head or {}).get("id") == head
    assert (await hub.delete("some", "a")).tombstones == ()
