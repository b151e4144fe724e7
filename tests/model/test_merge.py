"""Three-way merge, changed paths and patches: laws, and examples."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.merge import ABSENT, PathConflict, Side, changed_paths, json_patch, merge3, same

KEYS = st.sampled_from(["a", "b", "c", "geometry", "x/y", "~", ""])
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 0.5, "", "t"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def apply(patch: list[dict[str, Any]], document: Any) -> Any:
    """RFC 6902, the three operations that we use, on objects."""
    root = {"": copy.deepcopy(document)}
    for operation in patch:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")]
        holder: Any = root
        for key in keys[:-1]:
            holder = holder[key]
        if operation["op"] == "add":
            assert keys[-1] not in holder
        else:
            assert keys[-1] in holder
            del holder[keys[-1]]
        if operation["op"] != "remove":
            holder[keys[-1]] = operation["value"]
    return root[""]


def value_at(path: str, document: Any) -> Any:
    for key in path.split("/")[1:]:
        if not isinstance(document, dict):
            return ABSENT
        document = document.get(key.replace("~1", "/").replace("~0", "~"), ABSENT)
    return document


# ---- Equality ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (None, False, False),
        (None, ABSENT, False),
        ([1, True], [1.0, True], True),
        ([1], [True], False),
        ([1], [1, 2], False),
        ({"a": 1, "b": None}, {"b": None, "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ({}, [], False),
        ([], {}, False),
        ("1", 1, False),
    ],
)
def test_equality_is_that_of_json(one: Any, other: Any, equal: bool) -> None:
    assert same(copy.deepcopy(one), other) is equal
    assert same(other, one) is equal


# ---- Merge ---------------------------------------------------------------------------------------


@given(VALUES, VALUES)
def test_when_one_side_is_unchanged_the_other_side_is_the_result(base: Any, other: Any) -> None:
    for merged in (
        merge3(base, copy.deepcopy(base), other),
        merge3(base, other, copy.deepcopy(base)),
    ):
        assert same(merged.value, other)
        assert merged.conflicts == []


@given(VALUES, VALUES)
def test_equal_changes_are_not_a_conflict(base: Any, other: Any) -> None:
    merged = merge3(base, other, copy.deepcopy(other))
    assert same(merged.value, other)
    assert merged.conflicts == []


@given(OBJECTS, OBJECTS, OBJECTS)
def test_the_sides_may_be_exchanged(base: Any, ours: Any, theirs: Any) -> None:
    merged = merge3(base, ours, theirs, prefer="base")
    mirrored = merge3(base, theirs, ours, prefer="base")
    assert same(merged.value, mirrored.value)
    exchanged = [
        PathConflict(each.path, each.base, each.theirs, each.ours) for each in mirrored.conflicts
    ]
    assert sorted(map(repr, merged.conflicts)) == sorted(map(repr, exchanged))


@given(OBJECTS, OBJECTS, OBJECTS, st.sampled_from(["base", "ours", "theirs"]))
def test_conflicts_name_the_values_of_their_place(
    base: Any, ours: Any, theirs: Any, prefer: Side
) -> None:
    merged = merge3(base, ours, theirs, prefer=prefer)
    sides = {"base": base, "ours": ours, "theirs": theirs}
    for conflict in merged.conflicts:
        for name, document in sides.items():
            assert same(getattr(conflict, name), value_at(conflict.path, document))
        assert same(value_at(conflict.path, merged.value), getattr(conflict, prefer))
        assert not same(conflict.ours, conflict.theirs)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_every_change_is_in_the_result_or_in_a_conflict(base: Any, ours: Any, theirs: Any) -> None:
    merged = merge3(base, ours, theirs)
    conflicts = [conflict.path for conflict in merged.conflicts]
    for side in (ours, theirs):
        for path in changed_paths(base, side):
            met = any(path.startswith(each) or each.startswith(path) for each in conflicts)
            both = same(value_at(path, side), value_at(path, merged.value))
            merged_object = isinstance(value_at(path, side), dict)
            assert met or both or merged_object


@given(OBJECTS, OBJECTS, OBJECTS)
def test_nothing_given_is_changed(base: Any, ours: Any, theirs: Any) -> None:
    before = copy.deepcopy((base, ours, theirs))
    merge3(base, ours, theirs)
    json_patch(base, ours)
    assert (base, ours, theirs) == before


@given(st.dictionaries(KEYS, SCALARS), st.data())
def test_changes_of_different_members_never_meet(base: dict[str, Any], data: st.DataObject) -> None:
    mine = set(data.draw(st.lists(KEYS)))
    ours, theirs = dict(base), dict(base)
    for key in ("a", "b", "c", "geometry", "x/y", "~", ""):
        side = ours if key in mine else theirs
        if data.draw(st.booleans()):
            side[key] = data.draw(VALUES)
        else:
            side.pop(key, None)
    merged = merge3(base, ours, theirs)
    expected = {key: value for key, value in ours.items() if key in mine}
    expected.update((key, value) for key, value in theirs.items() if key not in mine)
    assert same(merged.value, expected)
    assert merged.conflicts == []


def test_an_example() -> None:
    base = {"id": "1", "properties": {"name": "A", "lanes": 2, "old": 1, "tags": ["x"]}}
    ours = {"id": "1", "properties": {"name": "B", "lanes": 2, "old": 1, "tags": ["x", "y"]}}
    theirs = {"id": "1", "properties": {"name": "C", "lanes": 3, "tags": ["x"], "new": None}}
    merged = merge3(base, ours, theirs)
    assert merged.value == {
        "id": "1",
        "properties": {"name": "B", "lanes": 3, "tags": ["x", "y"], "new": None},
    }
    assert merged.conflicts == [PathConflict("/properties/name", "A", "B", "C")]
    assert merge3(base, ours, theirs, prefer="theirs").value["properties"]["name"] == "C"
    assert merge3(base, ours, theirs, prefer="base").value["properties"]["name"] == "A"


def test_arrays_are_one_value() -> None:
    merged = merge3({"a": [1, 2]}, {"a": [1, 2, 3]}, {"a": [0, 1, 2]})
    assert merged.conflicts == [PathConflict("/a", [1, 2], [1, 2, 3], [0, 1, 2])]


def test_the_geometry_is_one_value_and_only_at_the_top() -> None:
    def point(*coordinates: float, **more: Any) -> dict[str, Any]:
        return {"type": "Point", "coordinates": list(coordinates), **more}

    base, ours, theirs = point(1, 2), point(1, 3), point(1, 2, more=1)
    merged = merge3({"geometry": base}, {"geometry": ours}, {"geometry": theirs})
    assert merged.conflicts == [PathConflict("/geometry", base, ours, theirs)]
    assert changed_paths({"geometry": base}, {"geometry": ours}) == ["/geometry"]
    inner = [{"properties": {"geometry": each}} for each in (base, ours, theirs)]
    assert merge3(*inner).conflicts == []


def test_removed_here_and_changed_there_is_a_conflict() -> None:
    merged = merge3({"a": {"b": 1, "c": 1}}, {}, {"a": {"b": 1, "c": 2}})
    assert merged.conflicts == [PathConflict("/a", {"b": 1, "c": 1}, ABSENT, {"b": 1, "c": 2})]
    assert merged.value == {}
    assert merge3({"a": 1}, {"a": None}, {}).conflicts == [PathConflict("/a", 1, None, ABSENT)]


def test_objects_that_both_sides_added_are_merged() -> None:
    merged = merge3({}, {"a": {"x": 1, "z": 1}}, {"a": {"y": 2, "z": 2}})
    assert merged.value == {"a": {"x": 1, "y": 2, "z": 1}}
    assert merged.conflicts == [PathConflict("/a/z", ABSENT, 1, 2)]


def test_objects_in_place_of_something_else_are_not_merged() -> None:
    merged = merge3({"a": 1}, {"a": {"x": 1}}, {"a": {"y": 2}})
    assert merged.conflicts == [PathConflict("/a", 1, {"x": 1}, {"y": 2})]


# ---- Paths and patches ---------------------------------------------------------------------------


@given(VALUES, VALUES)
def test_the_patch_makes_the_new_value(old: Any, new: Any) -> None:
    patch = json_patch(old, new)
    assert same(apply(patch, old), new)
    assert [operation["path"] for operation in patch] == changed_paths(old, new)
    assert (patch == []) is same(old, new)


@given(VALUES, VALUES)
def test_both_directions_change_the_same_places(old: Any, new: Any) -> None:
    assert changed_paths(old, new) == changed_paths(new, old)


def test_exact_paths_and_patch() -> None:
    old = {"a": {"x/y": 1, "~": 2, "gone": 0}, "list": [1], "same": {"deep": [True]}, "": 0}
    new = {"a": {"x/y": 2, "~": 3, "new": {}}, "list": [1, 2], "same": {"deep": [True]}, "": None}
    assert changed_paths(old, new) == ["/", "/a/gone", "/a/new", "/a/x~1y", "/a/~0", "/list"]
    assert json_patch(old, new) == [
        {"op": "replace", "path": "/", "value": None},
        {"op": "remove", "path": "/a/gone"},
        {"op": "add", "path": "/a/new", "value": {}},
        {"op": "replace", "path": "/a/x~1y", "value": 2},
        {"op": "replace", "path": "/a/~0", "value": 3},
        {"op": "replace", "path": "/list", "value": [1, 2]},
    ]
    assert json_patch(1, [1]) == [{"op": "replace", "path": "", "value": [1]}]
