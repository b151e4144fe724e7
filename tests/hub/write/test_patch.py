"""Patches of features, compared with the algorithm of RFC 7396 as published."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.write.patch import apply_patch
from naksha.model.merge import changed_paths, same
from naksha.testing.models.strategies import properties


def rfc_7396(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc_7396(result.get(name), value)
    return result


KEYS = st.sampled_from(["a", "b", "geometry", "c/d~"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text("xy", max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_it_is_the_merge_patch_of_the_rfc_but_for_the_geometry(
    head: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = copy.deepcopy((head, patch))
    result = apply_patch(head, patch)
    assert (head, patch) == before
    geometry = patch.get("geometry", head.get("geometry"))
    assert same(result.pop("geometry", None), geometry)
    head.pop("geometry", None)
    patch.pop("geometry", None)
    assert same(result, rfc_7396(head, patch))


@given(OBJECTS, OBJECTS)
def test_doing_it_twice_changes_nothing_more(head: dict[str, Any], patch: dict[str, Any]) -> None:
    once = apply_patch(head, patch)
    assert same(apply_patch(once, patch), once)


@given(properties())
def test_nothing_changes_nothing(head: dict[str, Any]) -> None:
    assert not changed_paths(head, apply_patch(head, {}))


def test_arrays_and_geometries_are_replaced_and_null_removes() -> None:
    head = {
        "id": "x",
        "geometry": {"type": "Point", "coordinates": [1, 2]},
        "properties": {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": 1},
    }
    patch = {
        "geometry": {"type": "LineString", "coordinates": [[1, 2], [3, 4]]},
        "properties": {"a": {"c": None, "d": {"e": None, "f": 1}}, "list": [3], "gone": None},
    }
    assert apply_patch(head, patch) == {
        "id": "x",
        "geometry": {"type": "LineString", "coordinates": [[1, 2], [3, 4]]},
        "properties": {"a": {"b": 1, "d": {"f": 1}}, "list": [3]},
    }
    assert apply_patch(head, {"geometry": None})["geometry"] is None
    assert apply_patch({"a": {"geometry": {"x": 1}}}, {"a": {"geometry": {"y": 2}}}) == {
        "a": {"geometry": {"x": 1, "y": 2}}
    }
