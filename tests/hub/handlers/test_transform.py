"""Transformations on write and on read, their configuration, and the supported queries."""

from typing import Any, ClassVar

import pytest

from naksha.hub.handlers.transform import changed
from naksha.hub.handlers.transformation import steps_of
from naksha.hub.pipeline.requests import GetStatistics, IfExists, ReadFeatures, Request
from naksha.hub.pipeline.version_requests import ReadChangesets, ReadDiff, ReadHistory
from naksha.model.errors import FeatureExists, InvalidArgument, NotImplementedHere, NotSupported
from naksha.model.query import And, Not, Op, Or, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ
from tests.hub.handlers.support import CONTEXT, HubUnderTest, content, feature

Steps = list[dict[str, Any]]
STORED = ("storage", {"collection": "things"})


def applied(steps: Steps, **properties: Any) -> dict[str, Any]:
    result: dict[str, Any] = changed(steps_of(steps, "steps"), feature("a", **properties))
    return dict(result["properties"])


class TestSteps:
    @pytest.mark.parametrize(
        ("step", "before", "after"),
        [
            (
                {"op": "rename", "from": "properties.a", "to": "properties.b.c"},
                {"a": 1},
                {"b": {"c": 1}},
            ),
            ({"op": "rename", "from": "properties.a", "to": "properties.b"}, {"x": 1}, {"x": 1}),
            ({"op": "copy", "from": "id", "to": "properties.b"}, {}, {"b": "a"}),
            ({"op": "set", "path": "properties.a", "value": [1]}, {"a": 2}, {"a": [1]}),
            ({"op": "set", "path": ["properties", "a.b"], "value": 1}, {}, {"a.b": 1}),
            ({"op": "default", "path": "properties.a", "value": 1}, {"a": None}, {"a": None}),
            ({"op": "default", "path": "properties.a", "value": 1}, {}, {"a": 1}),
            ({"op": "remove", "path": "properties.a.b"}, {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}),
            ({"op": "remove", "path": "properties.a.b"}, {"a": 1}, {"a": 1}),
            ({"op": "convert", "path": "properties.a", "to": "number"}, {"a": "1.5"}, {"a": 1.5}),
            ({"op": "convert", "path": "properties.a", "to": "number"}, {"a": "7"}, {"a": 7}),
            ({"op": "convert", "path": "properties.a", "to": "integer"}, {"a": 2.0}, {"a": 2}),
            ({"op": "convert", "path": "properties.a", "to": "string"}, {"a": True}, {"a": "true"}),
            ({"op": "convert", "path": "properties.a", "to": "boolean"}, {"a": "No"}, {"a": False}),
            ({"op": "convert", "path": "properties.a", "to": "boolean"}, {"a": None}, {"a": None}),
            (
                {"op": "template", "path": "properties.l", "template": "{properties.n} ({id})"},
                {"n": 1},
                {"n": 1, "l": "1 (a)"},
            ),
            ({"op": "template", "path": "properties.l", "template": "{properties.n}"}, {}, {}),
        ],
    )
    def test_each_step(self, step: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
        assert applied([step], **before) == after

    @pytest.mark.parametrize(
        ("value", "to"),
        [
            ("x", "number"),
            ("nan", "number"),
            (1.5, "integer"),
            ({}, "string"),
            (2, "boolean"),
            (True, "number"),
            ("1e999", "number"),
        ],
    )
    def test_unconvertible_values_are_rejected(self, value: Any, to: str) -> None:
        with pytest.raises(InvalidArgument, match=r"properties\.a") as refused:
            applied([{"op": "convert", "path": "properties.a", "to": to}], a=value)
        assert refused.value.feature_id == "a"

    @pytest.mark.parametrize(
        "step",
        [
            1,
            {},
            {"op": "explode"},
            {"op": "set", "path": "properties.a"},
            {"op": "set", "path": "id", "value": "x"},
            {"op": "set", "path": "geometry.type", "value": "x"},
            {"op": "remove", "path": "properties"},
            {"op": "remove", "path": "properties.@ns:com:here:xyz"},
            {"op": "remove", "path": ""},
            {"op": "rename", "from": "properties.a", "to": "properties.a.b"},
            {"op": "rename", "from": "properties.a"},
            {"op": "convert", "path": "properties.a", "to": "date"},
            {"op": "template", "path": "properties.a", "template": "{id"},
            {"op": "template", "path": "properties.a"},
        ],
    )
    async def test_invalid_steps_are_rejected(self, hub: HubUnderTest, step: Any) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("x", ("transform", {"onWrite": [step]}), STORED)
        assert (refused.value.field or "").startswith("properties.onWrite[0]")


class TestOnWrite:
    STEPS: ClassVar[Steps] = [
        {"op": "rename", "from": "properties.maxSpeed", "to": "properties.speed"},
        {"op": "default", "path": "properties.lanes", "value": 1},
    ]

    async def test_features_are_transformed_on_write(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await hub.space("roads", ("transform", {"onWrite": self.STEPS}), STORED)
        await hub.put("roads", feature("a", maxSpeed=50, lanes=2), feature("b", maxSpeed=30))
        assert await hub.read("roads") == {
            "a": {"speed": 50, "lanes": 2},
            "b": {"speed": 30, "lanes": 1},
        }

    async def test_a_patch_does_not_bring_defaults_back(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await hub.space("roads", ("transform", {"onWrite": self.STEPS}), STORED)
        await hub.put("roads", feature("a", maxSpeed=50, lanes=2, tags=["x"]))
        written = await hub.write("roads", feature("a", maxSpeed=70), feature("new"))
        assert (written.updated, written.inserted) == (("a",), ("new",))
        assert (await hub.read("roads"))["a"] == {"speed": 70, "lanes": 2}
        (state,) = await hub.states("roads", Query(ids=("a",)))
        assert state.xyz["tags"] == ["x"]

    async def test_without_a_storage_the_features_come_back(self, hub: HubUnderTest) -> None:
        await hub.space("mill", ("transform", {"onWrite": self.STEPS}))
        written = await hub.write("mill", feature("a", maxSpeed=50), feature(None))
        assert [content(s) for s in written.states] == [{"speed": 50, "lanes": 1}, {"lanes": 1}]
        assert (written.inserted, written.txn) == ((), None)
        with pytest.raises(NotImplementedHere):
            await hub.realm.send("mill", ReadFeatures(), CONTEXT)


class TestOnRead:
    STEPS: ClassVar[Steps] = [
        {"op": "rename", "from": "properties.spd", "to": "properties.speed"},
        {"op": "remove", "path": "properties.secret"},
        {"op": "convert", "path": "properties.width", "to": "number"},
    ]

    async def shown(self, hub: HubUnderTest) -> None:
        await hub.space("things")
        await hub.space("shown", ("transform", {"onRead": self.STEPS}), STORED)
        await hub.put("things", feature("a", spd=50, secret=1), feature("b", spd=30, width="x"))

    async def test_features_are_transformed_on_read(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await self.shown(hub)
        assert await hub.read("shown") == {"a": {"speed": 50}, "b": {"speed": 30, "width": "x"}}
        assert await hub.pages("shown", Query(limit=1)) == [["a"], ["b"]]
        written = await hub.write("shown", feature("a", spd=60))
        assert [content(state) for state in written.states] == [{"speed": 60}]

    async def test_the_head_of_a_conflict_is_transformed(self, hub: HubUnderTest) -> None:
        steps = [{"op": "remove", "path": "properties.secret"}]
        await hub.space("roads", ("transform", {"onRead": steps}), ("storage", {}))
        await hub.put("roads", feature("a", n=1, secret=2))
        with pytest.raises(FeatureExists) as refused:
            await hub.write("roads", feature("a"), e=IfExists.ERROR)
        assert refused.value.head is not None
        shown = {name for name in refused.value.head["properties"] if name != XYZ}
        assert shown == {"n"}

    async def test_renamed_properties_are_queried_by_their_new_name(
        self, hub: HubUnderTest
    ) -> None:
        await self.shown(hub)
        fast = PropertyTest(("properties", "speed"), Op.GTE, 40)
        assert sorted(await hub.read("shown", Query(where=fast))) == ["a"]
        assert sorted(await hub.read("shown", Query(where=And((Not(Or((fast,))),))))) == ["b"]
        assert await hub.count("shown", Query(where=fast)) == 1

    async def test_transformed_properties_cannot_be_queried(self, hub: HubUnderTest) -> None:
        await self.shown(hub)
        for path in (("secret",), ("secret", "deep"), ("spd",), ("width",), ()):
            where = Not(PropertyTest(("properties", *path), Op.EXISTS))
            with pytest.raises(NotSupported, match="cannot be queried here"):
                await hub.read("shown", Query(where=where))
        refused: list[Request[Any]] = [ReadChangesets(), ReadHistory(), ReadDiff(ref="0..1")]
        for request in [*refused, GetStatistics()]:
            with pytest.raises(NotImplementedHere):
                await hub.realm.send("shown", request, CONTEXT)
