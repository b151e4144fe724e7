"""Validation: schemas, rules for geometries, patches as wholes, refusals and reports."""

import time
from typing import Any

import pytest
from shapely.geometry import shape

from naksha.hub.handlers.geometry_checks import GeometryRules, area_m2, length_m
from naksha.hub.handlers.json_schema import FeatureSchema
from naksha.hub.pipeline.requests import IfExists, IfNotExists
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NotSupported
from tests.hub.handlers.support import Feature, HubUnderTest, feature

STORED = ("storage", {"collection": "things"})
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "properties": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "speed": {"$ref": "#/$defs/speed"},
                "lanes": {"type": "integer"},
            },
            "additionalProperties": False,
        }
    },
    "$defs": {"speed": {"type": "number", "maximum": 130}},
}


async def validated(hub: HubUnderTest, **properties: Any) -> None:
    await hub.space("roads", ("validation", {"schema": SCHEMA, **properties}), STORED)


class TestSchema:
    async def test_all_violations_are_reported(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await validated(hub)
        with pytest.raises(InvalidArgument) as refused:
            await hub.put(
                "roads",
                feature("good", name="A"),
                feature("bad", speed=200, lanes="two"),
                feature("worse", name=1),
            )
        error = refused.value
        assert (error.feature_id, error.position) == ("bad", 1)
        assert [(one.id, one.position) for one in error.failures] == [("bad", 1), ("worse", 2)]
        told = error.failures[0].message
        assert '/properties: "name" is a required property' in told
        assert "/properties/speed: 200 is greater than the maximum of 130" in told
        assert '/properties/lanes: "two" is not of type "integer"' in told
        assert await hub.read("roads") == {}

    async def test_a_patch_is_looked_at_as_a_whole(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await validated(hub)
        await hub.put("roads", feature("a", name="A", speed=50, tags=["x"]))
        written = await hub.write("roads", feature("a", speed=70))
        assert written.updated == ("a",)
        for wrong in ({"name": None}, {"speed": 200}, {"other": 1}):
            with pytest.raises(InvalidArgument):
                patch = {"type": "Feature", "id": "a", "properties": wrong}
                await hub.write("roads", patch)
        assert await hub.read("roads") == {"a": {"name": "A", "speed": 70}}
        (state,) = await hub.states("roads")
        assert state.xyz["tags"] == ["x"]
        with pytest.raises(InvalidArgument):
            await hub.write("roads", feature("new", speed=70))

    async def test_valid_features_are_written_on_request(self, hub: HubUnderTest) -> None:
        await validated(hub)
        written = await hub.write(
            "roads",
            feature(None, name="A"),
            feature("bad", speed=200),
            feature(None, speed=1),
            transactional=False,
        )
        assert [failure.position for failure in written.failed] == [1, 2]
        assert len(written.inserted) == 1

    async def test_reported_violations_do_not_block_the_write(self, any_hub: HubUnderTest) -> None:
        hub = any_hub
        await validated(hub, mode="report", geometry={"types": ["LineString"]})
        written = await hub.put("roads", feature("a", name="A", speed=200))
        assert written.inserted == ("a",)
        assert [(one["id"], one["rule"], one["path"]) for one in written.violations] == [
            ("a", "schema", "/properties/speed"),
            ("a", "geometry.types", "/geometry"),
        ]

    async def test_deleted_features_are_not_validated(self, hub: HubUnderTest) -> None:
        await hub.space("things")
        await hub.put("things", feature("a", bad=1))
        await validated(hub)
        assert (await hub.delete("roads", "a")).deleted == ("a",)

    async def test_a_merge_that_cannot_be_foreseen_is_refused(self, hub: HubUnderTest) -> None:
        await validated(hub)
        await hub.put("roads", feature("a", name="A"))
        (old,) = await hub.states("roads")
        await hub.write("roads", old.feature, e=IfExists.MERGE, ne=IfNotExists.ERROR)
        await hub.put("roads", feature("a", name="B"))
        with pytest.raises(NotSupported):
            await hub.write("roads", old.feature, e=IfExists.MERGE)

    async def test_violations_are_bounded(self, hub: HubUnderTest) -> None:
        await validated(hub, mode="report")
        many = {f"x{n}": {"y": 1} for n in range(100)}
        schema = {"properties": {"properties": {"additionalProperties": {"type": "null"}}}}
        await hub.space("many", ("validation", {"schema": schema, "mode": "report"}), STORED)
        written = await hub.put("many", {**feature("a"), "properties": many})
        assert len(written.violations) == limits.VIOLATIONS_PER_FEATURE_MAX


class TestDrafts:
    @pytest.mark.parametrize("end", ["", "#"])
    async def test_draft_7_has_its_own_keywords(self, any_hub: HubUnderTest, end: str) -> None:
        hub = any_hub
        schema = {
            "$schema": f"http://json-schema.org/draft-07/schema{end}",
            "definitions": {"name": {"type": "string"}},
            "properties": {
                "properties": {
                    "required": ["name"],
                    "dependencies": {"speed": ["unit"]},
                    "properties": {
                        "name": {"$ref": "#/definitions/name"},
                        "lanes": {"items": [{"type": "integer"}], "additionalItems": False},
                    },
                }
            },
        }
        await hub.space("roads", ("validation", {"schema": schema}), STORED)
        await hub.put("roads", feature("a", name="A", speed=50, unit="km/h", lanes=[2]))
        for wrong in ({}, {"name": 1}, {"name": "B", "speed": 50}, {"name": "B", "lanes": [2, 3]}):
            with pytest.raises(InvalidArgument, match="rules of this space"):
                await hub.put("roads", feature("b", **wrong))


class TestConfiguration:
    @pytest.mark.parametrize(
        "properties",
        [
            {},
            {"schema": 1},
            {"schema": {"type": "nothing"}},
            {"schema": {"$schema": "http://json-schema.org/draft-04/schema#"}},
            {"schema": {"$ref": "http://127.0.0.1:1/schema.json"}},
            {"schema": {"properties": {"a": {"$ref": "other.json"}}}},
            {"schema": {"$ref": "#/$defs/none"}},
            {"schema": {"pattern": "("}},
            {"schema": {"pattern": "(?=a)b"}},
            {"schema": {"$id": "http://127.0.0.1:1/schema.json", "$ref": "other.json"}},
            {"schema": {"description": "x" * limits.JSON_SCHEMA_BYTES_MAX}},
            {"schema": True, "mode": "guess"},
            {"geometry": []},
            {"geometry": {"round": True}},
            {"geometry": {"types": ["Circle"]}},
            {"geometry": {"within": [1, 2, 0, 3]}},
            {"geometry": {"minVertices": -1}},
            {"geometry": {"valid": 1}},
        ],
    )
    async def test_invalid_geometry_rules_are_rejected(
        self, hub: HubUnderTest, properties: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidArgument) as refused:
            await hub.space("x", ("validation", properties), STORED)
        assert (refused.value.field or "").startswith("properties")

    def test_recursive_schemas_are_fine(self) -> None:
        tree = {"$defs": {"t": {"properties": {"t": {"$ref": "#/$defs/t"}}, "required": ["n"]}}}
        schema = FeatureSchema(
            {**tree, "properties": {"properties": {"$ref": "#/$defs/t"}}}, "schema"
        )
        problems = list(schema.problems(feature("a", n=1, t={"n": 2, "t": {}})))
        assert problems == [("/properties/t/t", '"n" is a required property')]

    def test_a_schema_that_only_refers_to_itself_accepts_everything(self) -> None:
        there = {"allOf": [{"$ref": "#/$defs/back"}]}
        back = {"allOf": [{"$ref": "#/$defs/there"}]}
        circle = {"$ref": "#/$defs/there", "$defs": {"there": there, "back": back}}
        for schema in ({"$ref": "#"}, circle):
            assert list(FeatureSchema(schema, "schema").problems(feature("a"))) == []

    @pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "unevaluatedProperties"])
    def test_no_pattern_takes_for_ever(self, keyword: str) -> None:
        """It would keep all others waiting, since nothing else runs meanwhile."""
        costly, text = "^(a+)+$", "a" * 10_000 + "!"
        named = {"patternProperties": {costly: {}}, "unevaluatedProperties": False}
        asked: dict[str, Any] = {
            "pattern": {"properties": {"name": {"pattern": costly}}},
            "patternProperties": {**named, "additionalProperties": False},
            "unevaluatedProperties": named,
        }
        schema = FeatureSchema({"properties": {"properties": asked[keyword]}}, "schema")
        properties: dict[str, Any] = {"name": text} if keyword == "pattern" else {text: 1}
        written = feature("a", **properties)
        began = time.thread_time()
        assert len(list(schema.problems(written))) >= 1
        assert time.thread_time() - began < 1


def at(kind: str, coordinates: Any) -> Feature:
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}}


SQUARE = at("Polygon", [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]])
BOW = at("Polygon", [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]])
LOOP = at("LineString", [[0, 0], [1, 1], [1, 0], [0, 1]])
POINT = at("Point", [8, 50])


class TestGeometry:
    @pytest.mark.parametrize(
        ("rule", "good", "bad"),
        [
            ({"required": True}, POINT, {"geometry": None}),
            ({"types": ["Point", "MultiPoint"]}, POINT, SQUARE),
            ({"valid": True}, SQUARE, BOW),
            ({"valid": False}, BOW, None),
            ({"simple": True}, SQUARE, LOOP),
            ({"within": [5, 47, 16, 55]}, POINT, SQUARE),
            ({"minVertices": 5}, SQUARE, LOOP),
            ({"maxVertices": 4}, LOOP, SQUARE),
            ({"maxBytes": 30}, POINT, SQUARE),
            ({"minLength": 400_000}, SQUARE, at("LineString", [[0, 0], [1, 0]])),
            ({"maxLength": 400_000}, at("LineString", [[0, 0], [1, 0]]), SQUARE),
            ({"minArea": 1e10}, SQUARE, POINT),
            ({"maxArea": 1e10}, POINT, SQUARE),
            ({"valid": True}, POINT, at("Point", [])),
        ],
    )
    def test_each_rule(self, rule: dict[str, Any], good: Feature, bad: Feature | None) -> None:
        rules = GeometryRules(rule, "geometry")
        assert list(rules.problems(good)) == []
        if bad is not None:
            assert len(list(rules.problems(bad))) == 1

    def test_measures(self) -> None:
        degree = 111_195.08
        assert length_m(shape(at("LineString", [[0, 0], [0, 1]])["geometry"])) == pytest.approx(
            degree, rel=1e-6
        )
        assert area_m2(shape(SQUARE["geometry"])) == pytest.approx(1.2363e10, rel=1e-3)
        holed = at(
            "Polygon",
            [*SQUARE["geometry"]["coordinates"], [[0, 0], [0.5, 0], [0.5, 1], [0, 1], [0, 0]]],
        )
        assert area_m2(shape(holed["geometry"])) == pytest.approx(1.2363e10 / 2, rel=1e-2)
