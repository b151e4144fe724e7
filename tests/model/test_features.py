"""Decomposition of features for a write: accepted members, refused ones, and the error position."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model import features as module
from naksha.model.errors import InvalidArgument, LimitExceeded
from naksha.model.features import (
    CRID_CLEARED,
    NAMESPACE,
    PreparedFeatures,
    check_features,
    generate_ids,
)
from naksha.model.geo.geometry import geojson_of
from naksha.model.geo.quadkey import qrid
from naksha.model.json_rules import json_problem
from naksha.model.limits import FEATURE_ID_BYTES_MAX, INT8_MAX, JSON_DEPTH_MAX, WRITE_FEATURES_MAX
from tests.model.geo.geojson import geometries

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PROPERTIES = st.dictionaries(TEXTS, VALUES, max_size=4)


def feature(id: Any = "x", **members: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": id, "geometry": None, "properties": {}, **members}


def with_namespace(**members: Any) -> dict[str, Any]:
    return feature(properties={"name": "n", NAMESPACE: members})


def only(given: Any, **options: Any) -> PreparedFeatures:
    prepared = check_features([given], **options)
    assert len(prepared) == 1
    return prepared


def decoded(prepared: PreparedFeatures) -> list[Any]:
    return [msgspec.json.decode(text) for text in prepared.json]


def refused(given: Any, **options: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        check_features([feature("first"), given], **options)
    str(caught.value).encode()  # whatever was sent, the error can be written down
    return caught.value


# ---- What comes through --------------------------------------------------------------------------


def test_a_feature_is_taken_apart() -> None:
    given = {
        "type": "Feature",
        "id": "road-1",
        "bbox": [1, 2, 1, 2],
        "geometry": {"type": "Point", "coordinates": [1.25, 2.5, 3.75]},
        "properties": {
            "name": "Ring",
            NAMESPACE: {
                "tags": ["B", "a"],
                "crid": "C1",
                "uuid": "s:c:2023:1:30:7",
                "version": 3,
                "author": "another author",
                "space": "s",
            },
        },
    }
    copy = msgspec.json.decode(msgspec.json.encode(given))
    prepared = only(given)
    assert given == copy
    assert prepared.json == [
        b'{"type":"Feature","id":"road-1","bbox":[1,2,1,2],"properties":{"name":"Ring"}}'
    ]
    assert prepared.wkb[0] is not None
    assert geojson_of(prepared.wkb[0]) == given["geometry"]
    assert (prepared.ids, prepared.positions) == (["road-1"], [0])
    assert (prepared.has_z, prepared.qrid) == ([True], [qrid(1.25, 2.5)])
    assert (prepared.tags, prepared.crid) == ([["b", "a"]], ["C1"])
    assert (prepared.lock_uuid, prepared.lock_version) == (["s:c:2023:1:30:7"], [3])


@given(st.lists(st.tuples(PROPERTIES, st.none() | geometries()), max_size=4))
def test_properties_and_geometries_come_through(
    contents: list[tuple[dict[str, Any], dict[str, Any] | None]],
) -> None:
    given = [
        feature(f"f{index}", properties=properties, geometry=geometry)
        for index, (properties, geometry) in enumerate(contents)
    ]
    prepared = check_features(given)
    kept = [{name: each[name] for name in ("type", "id", "properties")} for each in given]
    for each in kept:
        each["properties"].pop(NAMESPACE, None)
    assert decoded(prepared) == kept
    assert [None if wkb is None else geojson_of(wkb) for wkb in prepared.wkb] == [
        geometry for _, geometry in contents
    ]


def test_no_features_at_all() -> None:
    assert len(check_features([])) == 0


def test_a_crid_of_null_is_not_the_same_as_none_at_all() -> None:
    assert only(feature(properties={NAMESPACE: {"crid": None}})).crid == [CRID_CLEARED]


@pytest.mark.parametrize("properties", [None, {}, {NAMESPACE: None}, {NAMESPACE: {}}])
def test_properties_are_always_an_object(properties: Any) -> None:
    prepared = only(feature(properties=properties))
    assert prepared.json == [b'{"type":"Feature","id":"x","properties":{}}']
    assert (prepared.tags, prepared.crid) == ([None], [None])
    assert (prepared.lock_uuid, prepared.lock_version) == ([None], [None])
    assert only({"type": "Feature", "id": "x"}).json == [
        b'{"type":"Feature","id":"x","properties":{}}'
    ]


def test_an_empty_list_of_tags_differs_from_missing_tags() -> None:
    assert only(with_namespace(tags=[])).tags == [[]]
    assert only(with_namespace(tags=None)).tags == only(with_namespace()).tags == [None]


def test_tuples_and_other_mappings_are_json_too() -> None:
    given = MappingProxyType(feature(properties=MappingProxyType({"a": (1, 2)})))
    assert decoded(only(given)) == [{"type": "Feature", "id": "x", "properties": {"a": [1, 2]}}]


def test_an_escaped_backslash_before_u0000_is_not_a_nul() -> None:
    given = feature(properties={"path": "C:\\u0000", "empty": None})
    assert decoded(only(given))[0]["properties"] == given["properties"]


def test_many_brackets_in_strings_are_neither_depth_nor_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(module, "json_problem")
    flat = feature(properties={"t": '[{"\\' * 1000, "list": [[] for _ in range(1000)]})
    assert decoded(only(flat))[0]["properties"] == flat["properties"]


# ---- Ids -----------------------------------------------------------------------------------------


def test_the_last_feature_with_an_id_counts() -> None:
    given = [feature(id, properties={"n": n}) for n, id in enumerate(["a", "b", "a", "c", "b"])]
    prepared = check_features(given)
    assert prepared.ids == ["a", "c", "b"]
    assert prepared.positions == [2, 3, 4]
    assert [each["properties"]["n"] for each in decoded(prepared)] == [2, 3, 4]
    assert {len(getattr(prepared, name)) for name in PreparedFeatures.__slots__} == {3}


@given(st.lists(st.sampled_from("abcdef"), max_size=20))
def test_the_last_positions_are_kept_in_order(ids: list[str]) -> None:
    prepared = check_features([feature(id) for id in ids])
    last = {id: position for position, id in enumerate(ids)}
    assert prepared.positions == sorted(last.values())
    assert prepared.ids == [ids[position] for position in prepared.positions]


def test_integer_ids_become_text() -> None:
    prepared = check_features([feature(7), feature(-1), feature("7")])
    assert prepared.ids == ["-1", "7"]
    assert [each["id"] for each in decoded(prepared)] == ["-1", "7"]


def test_the_prefix_is_cut_off_once() -> None:
    given = [feature(id) for id in ("p:1", "2", "p:p:3", 4)]
    prepared = check_features(given, id_prefix="p:")
    assert prepared.ids == ["1", "2", "p:3", "4"]
    assert [each["id"] for each in decoded(prepared)] == prepared.ids
    assert only(feature("a"), id_prefix="").ids == ["a"]


def test_missing_ids_are_generated_on_request() -> None:
    given = [feature("a"), feature(None), {"type": "Feature"}]
    prepared = check_features(given, generate_ids=True)
    assert prepared.ids[0] == "a"
    assert all(len(id) == 16 and id.isascii() and id.isalnum() for id in prepared.ids[1:])
    assert [each["id"] for each in decoded(prepared)] == prepared.ids


def test_generated_ids_differ_and_use_the_whole_alphabet() -> None:
    ids = generate_ids(2000)
    assert len(set(ids)) == 2000
    assert len(set("".join(ids))) == 62
    assert generate_ids(0) == []


@pytest.mark.parametrize(
    ("id", "message"),
    [
        (None, "features[1].id is missing"),
        ("", "must not be empty"),
        ("a\0", "NUL"),
        ("\ud800", "surrogate"),
        ("x" * (FEATURE_ID_BYTES_MAX + 1), "513 bytes"),
        ("ü" * 300, "600 bytes"),
        (True, "must be a string, not true"),
        (1.5, "must be a string, not 1.5"),
        (INT8_MAX + 1, f"must be a string, not {INT8_MAX + 1}"),
        pytest.param(10**5000, "not an integer with too many digits", id="huge"),
        ({}, "must be a string, not an object"),
    ],
)
def test_bad_ids_are_named_by_position(id: object, message: str) -> None:
    error = refused(feature(id))
    assert message in error.message
    assert (error.field, error.feature_id) == ("features[1].id", None)


def test_long_ids_of_other_letters_are_counted_in_bytes() -> None:
    longest = "ü" * (FEATURE_ID_BYTES_MAX // 2)
    assert only(feature(longest)).ids == [longest]


def test_nothing_but_the_prefix_is_refused() -> None:
    error = refused(feature("p:"), id_prefix="p:")
    assert "longer than the id prefix" in error.message
    assert (error.field, error.feature_id) == ("id", "p:")


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "x", 7, [], [("type", "Feature"), ("id", "x")]])
def test_a_value_other_than_an_object_is_not_a_feature(given: object) -> None:
    error = refused(given)
    assert error.field == "features[1]"


@pytest.mark.parametrize("type_", [None, "feature", "FeatureCollection", 1, ["Feature"]])
def test_the_type_must_be_feature(type_: object) -> None:
    error = refused(feature("bad", type=type_))
    assert (error.field, error.feature_id) == ("type", "bad")


@pytest.mark.parametrize(
    ("properties", "field", "message"),
    [
        (7, "properties", "must be an object, not 7"),
        ([], "properties", "must be an object, not an array"),
        ({"a": math.nan}, "properties.a", "finite"),
        ({"a": [1, {"b": -math.inf}]}, "properties.a[1].b", "finite"),
        ({"n": None, "a": [None, math.nan]}, "properties.a[1]", "finite"),
        ({"a": "x\0"}, "properties.a", "must not contain the character U+0000 (NUL)"),
        ({"a\0": 1}, "properties.a\\u0000", "name must not contain the character U+0000"),
        ({"a": {"b": ["ok", "\udfff"]}}, "properties.a.b[1]", "surrogate"),
        ({"\ud800": 1}, "properties.\\ud800", "name must not contain an unpaired surrogate"),
        ({"a": {1: 2}}, "properties.a", "has the member name 1, which must be a string"),
        ({None: 2}, "properties", "has the member name None, which must be a string"),
        ({"a": b"x"}, "properties.a", "Python type bytes, which is not a JSON type"),
        ({"a": {1, 2}}, "properties.a", "has the Python type set, which is not a JSON type"),
        (
            {"a": datetime(2023, 1, 30, tzinfo=UTC)},
            "properties.a",
            "has the Python type datetime, which is not a JSON type",
        ),
        (
            {"a": np.float64(1.5)},
            "properties.a",
            "has the Python type float64, which is not a JSON type",
        ),
        ({"a": object()}, "properties.a", "has the Python type object, which is not a JSON type"),
        ({"a": 10**5000}, "properties.a", "too many digits"),
    ],
)
def test_values_that_json_cannot_represent_are_named(
    properties: Any, field: str, message: str
) -> None:
    error = refused(feature("bad", properties=properties))
    assert message in error.message
    assert (error.field, error.feature_id) == (field, "bad")


def test_members_beside_the_properties_are_checked_too() -> None:
    assert refused(feature("bad", other=[math.nan])).field == "other[0]"
    assert refused(feature(None, other=[math.nan]), generate_ids=True).field == (
        "features[1].other[0]"
    )


def nested(depth: int) -> list[Any]:
    """Arrays, so many deep."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_limited() -> None:
    only(feature(properties={"deep": nested(JSON_DEPTH_MAX - 2)}))
    for depth in (JSON_DEPTH_MAX - 1, 900, 100_000):
        error = refused(feature("bad", properties={"deep": nested(depth)}))
        assert error.message.startswith("properties.deep[0][0]")
        assert error.message.endswith(
            "… of feature 'bad' is nested more than 100 levels deep; flatten it"
        )
        assert error.field == "properties.deep" + "[0]" * (JSON_DEPTH_MAX - 2)


def test_a_value_that_contains_itself_is_too_deep() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert "deep" in refused(feature("bad", properties=endless)).message


WRONG = st.sampled_from([math.nan, math.inf, "\0", "\ud800", {7: 7}, b"", {"\0": 1}, {2}])


@given(PROPERTIES, WRONG, st.data())
def test_one_wrong_value_anywhere_is_found(
    properties: dict[str, Any], wrong: Any, data: st.DataObject
) -> None:
    holder: Any = properties
    while inner := [each for each in _members(holder) if isinstance(each, dict | list)]:
        if not data.draw(st.booleans()):
            break
        holder = data.draw(st.sampled_from(inner))
    if isinstance(holder, list):
        holder.append(wrong)
    else:
        holder["wrong"] = wrong
    problem = json_problem({"properties": properties})
    assert problem is not None
    error = refused(feature("bad", properties=properties))
    assert (error.field, error.message) == (problem.path, problem.sentence_of("bad"))


def _members(holder: Any) -> list[Any]:
    return list(holder.values()) if isinstance(holder, dict) else list(holder)


@pytest.mark.parametrize(
    ("namespace", "field", "message"),
    [
        (7, "", "must be an object, not 7"),
        ({"tags": "a"}, ".tags", "array of strings, not 'a'"),
        ({"tags": ["a", None]}, ".tags[1]", "string, not null"),
        ({"crid": 7}, ".crid", "string, not 7"),
        ({"crid": ""}, ".crid", "empty"),
        ({"crid": "x" * 513}, ".crid", "513 bytes"),
        ({"uuid": "\0"}, ".uuid", "NUL"),
        ({"uuid": ["x"]}, ".uuid", "string, not an array"),
        ({"version": "1"}, ".version", "integer, not '1'"),
        ({"version": 1.0}, ".version", "integer, not 1.0"),
        ({"version": True}, ".version", "integer, not true"),
        ({"version": -1}, ".version", f"must be between 0 and {INT8_MAX}, not -1"),
        ({"version": 2**63}, ".version", f"must be between 0 and {INT8_MAX}, not {2**63}"),
    ],
)
def test_bad_members_of_the_namespace_are_named(
    namespace: object, field: str, message: str
) -> None:
    error = refused(feature("bad", properties={NAMESPACE: namespace}))
    assert message in error.message
    assert (error.field, error.feature_id) == (f"properties.{NAMESPACE}{field}", "bad")


def test_the_rest_of_the_namespace_is_ignored_whatever_it_is() -> None:
    given = with_namespace(author=object(), txn=math.nan, version=7, nested={1: {2}})
    assert decoded(only(given))[0]["properties"] == {"name": "n"}


def test_a_bad_geometry_is_named_by_id_or_position() -> None:
    bad = {"type": "Point", "coordinates": [1, 200]}
    error = refused(feature("bad", geometry=bad))
    assert (error.field, error.feature_id) == ("geometry.coordinates[1]", "bad")
    error = refused(feature(None, geometry=bad), generate_ids=True)
    assert (error.field, error.feature_id) == ("features[1].geometry.coordinates[1]", None)


# ---- Limits --------------------------------------------------------------------------------------


def test_the_number_of_features_is_limited() -> None:
    with pytest.raises(LimitExceeded, match="100001 features"):
        check_features([feature()] * (WRITE_FEATURES_MAX + 1))


def test_the_size_of_a_feature_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    point = {"type": "Point", "coordinates": [1, 2]}
    size = len(only(feature("big")).json[0]) + 21
    monkeypatch.setattr(module, "FEATURE_BYTES_MAX", size)
    only(feature("big", geometry=point))
    with pytest.raises(LimitExceeded, match=f"{size + 1} bytes") as caught:
        check_features([feature("a"), feature("big1", geometry=point)])
    assert (caught.value.feature_id, caught.value.field) == ("big1", "features[1]")


def test_the_size_of_a_call_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(map(len, check_features([feature("a"), feature("b")]).json))
    monkeypatch.setattr(module, "WRITE_BYTES_MAX", size)
    check_features([feature("a"), feature("b")])
    with pytest.raises(LimitExceeded, match="bytes"):
        check_features([feature("a"), feature("bb")])
