"""The comparisons behind the suites, on cases that Python itself would get wrong."""

from typing import Any

import pytest
import shapely
from shapely.geometry import Point

from naksha.model import query as q
from naksha.model.errors import Conflict
from naksha.model.geo.quadkey import bounds, qrid
from naksha.testing.models.brute_force import (
    bounds_of,
    cell,
    compare,
    distance_m,
    meets,
    quad_key,
    union,
)
from naksha.testing.models.json_values import ABSENT, contains, get_path, merge, same


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        (10**308, 1e308, True),
        (2**53, 2**53 + 1, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({}, [], False),
    ],
)
def test_json_values_are_the_same(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) is equal
    assert same(right, left) is equal


@pytest.mark.parametrize(
    ("whole", "part", "holds"),
    [
        ([1, "a"], 1, True),
        ([1, "a"], [1], True),
        ([[1, 2]], [[1]], True),
        ([1, [2]], [2], False),
        ({"a": [1, 2], "b": 1}, {"a": [2]}, True),
        ({"a": [1, 2]}, {"a": 1}, False),
        ("abc", "b", False),
        ([], [], True),
        ({}, {"a": None}, False),
        ([True], 1, False),
    ],
)
def test_containment(whole: Any, part: Any, holds: bool) -> None:
    assert contains(whole, part) is holds


def test_paths_lead_through_objects_only() -> None:
    assert get_path({"a": {"": {"0": 7}}}, ("a", "", "0")) == 7
    assert get_path({"a": [7]}, ("a", "0")) is ABSENT
    assert get_path({"a": None}, ("a",)) is None


def test_a_merge_takes_both_sides_and_finds_conflicts() -> None:
    base = {"a": 1, "b": {"c": 1, "d": 1}, "gone": 1}
    head = {"a": 2, "b": {"c": 1, "d": 2}}
    mine = {"a": 1, "b": {"c": 2, "d": 1}, "gone": 1, "new": 1}
    assert merge(base, head, mine) == {"a": 2, "b": {"c": 2, "d": 2}, "new": 1}
    with pytest.raises(Conflict):
        merge({"a": 1}, {"a": 2}, {})


def test_nothing_holds_for_what_is_absent() -> None:
    assert not any(compare(ABSENT, op, None) for op in q.Op)


def test_order_never_crosses_types() -> None:
    for found, value in ((1, "2"), (True, 2), (None, None), (1, True), ([1], [2])):
        assert not any(compare(found, op, value) for op in (q.Op.LT, q.Op.GTE))
    assert compare(1, q.Op.LT, 1.5)
    assert compare("Z", q.Op.LT, "a")


def test_cells_and_quad_keys_belong_together() -> None:
    for lon, lat in ((-180.0, 90.0), (180.0, -90.0), (8.5, 50.25), (0.0, 0.0)):
        key = quad_key(lon, lat)
        assert key == qrid(lon, lat)
        west, south, east, north = cell(key)
        assert west <= lon <= east
        assert south <= lat <= north
        assert cell(key) == bounds(key)


def test_boxes() -> None:
    line: dict[str, Any] = {"type": "LineString", "coordinates": [[1, 2, 9], [-3, 4, 9]]}
    assert bounds_of(line) == (-3, 2, 1, 4)
    assert bounds_of(None) is None
    assert union([(0, 0, 1, 1), None, (-1, 0.5, 0, 2)]) == (-1, 0, 1, 2)
    assert meets(line, q.Bbox(1, 4, 2, 5))
    assert meets(line, q.Bbox(170, 0, -3, 5))
    assert not meets(None, q.Bbox(-180, -90, 180, 90))
    assert not meets(line, q.Intersects(shapely.to_wkb(Point(1, 4))))


def test_distances() -> None:
    assert distance_m(0, 0, 1, 0) == pytest.approx(111_195, rel=0.001)
    assert distance_m(179.5, 0, -179.5, 0) == pytest.approx(111_195, rel=0.001)
