"""Projection of returned states, compared with brute force."""

from typing import Any

import msgspec
import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapely.geometry import shape

from naksha.hub.query_language.selection import Selection, parse_selection
from naksha.hub.render.projection import StateProjection, box_shape, shaped, shapes_of
from naksha.model.geo.geometry import encode_geometries
from naksha.model.query import Bbox
from naksha.model.state import XYZ, State
from naksha.testing.models.json_values import ABSENT, get_path
from naksha.testing.models.strategies import geometries, plain_geometries, properties

Json = dict[str, Any]


def state(feature: Json) -> State:
    return State(feature["id"], msgspec.json.encode(feature))


def feature(geometry: Json | None = None, **members: Any) -> Json:
    inner = {"name": "n", "a": {"b": 1, "c": [2]}, XYZ: {"tags": ["t"], "version": 3}}
    return {
        "type": "Feature",
        "id": "x",
        "geometry": geometry,
        "properties": inner,
        "momType": "M",
        **members,
    }


def select(*names: str, geometry: Json | None = None) -> Json:
    (found,) = shaped([state(feature(geometry))], StateProjection(parse_selection(names)))
    assert found.id == "x"
    return found.feature


POINT = {"type": "Point", "coordinates": [1.0, 2.0]}
BARE: Json = {"type": "Feature", "id": "x", "geometry": None, "properties": {}}


def test_states_are_unchanged_by_default() -> None:
    one = State("x", b"not even JSON")
    assert shaped([one], StateProjection())[0] is one
    assert shaped([one], StateProjection(Selection(everything=True)))[0] is one
    assert shaped([], StateProjection(force_2d=True, clip=shapely.box(0, 0, 1, 1))) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["p.name"], {**BARE, "properties": {"name": "n"}}),
        (["p.a.b"], {**BARE, "properties": {"a": {"b": 1}}}),
        (["p.a.b", "p.a"], {**BARE, "properties": {"a": {"b": 1, "c": [2]}}}),
        (["p.a", "p.a.b"], {**BARE, "properties": {"a": {"b": 1, "c": [2]}}}),
        (["p.a.c.d"], BARE),
        (["p.unknown"], BARE),
        (["none"], BARE),
        (["momType"], {**BARE, "momType": "M"}),
        (["f.tags"], {**BARE, "properties": {XYZ: {"tags": ["t"]}}}),
        (["id"], BARE),
    ],
)
def test_a_selection_keeps_what_it_names(names: list[str], expected: Json) -> None:
    assert select(*names) == expected


def test_the_geometry_is_kept_unless_it_is_not_wanted() -> None:
    assert select("p.x", geometry=POINT)["geometry"] == POINT
    assert "geometry" not in select("p.x", "!geometry", geometry=POINT)
    assert "geometry" not in select("*", "!geometry", geometry=POINT)
    assert select("!geometry", geometry=POINT)["properties"]["name"] == "n"
    assert select("g.type", "!geometry", geometry=POINT)["geometry"] == {"type": "Point"}
    assert select("g.type", geometry=POINT)["geometry"] == POINT


NAMES = st.text("ab", min_size=1, max_size=2)
TREES = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(NAMES, inner, min_size=1), max_leaves=8
)


@given(
    st.dictionaries(NAMES, TREES),
    st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_a_path_is_there_if_and_only_if_it_was_selected(
    inner: Json, wanted: list[list[str]]
) -> None:
    names = ["p." + ".".join(path) for path in wanted]
    given_one = feature(properties=inner)
    (found,) = shaped([state(given_one)], StateProjection(parse_selection(names)))
    for path in wanted:
        full = ("properties", *path)
        assert get_path(found.feature, full) == get_path(given_one, full)
    for path in _leaves(found.feature["properties"]):
        assert any(path[: len(each)] == each for each in wanted)
        assert get_path(given_one, ("properties", *path)) is not ABSENT


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[list[str]]:
    if not isinstance(value, dict):
        return [list(path)]
    return [leaf for name, below in value.items() for leaf in _leaves(below, (*path, name))]


@given(properties())
def test_kept_members_keep_their_bytes(inner: Json) -> None:
    raw = msgspec.json.encode(inner)
    whole = b'{"id":"x","other":1,"properties":' + raw + b"}"
    (found,) = shaped([State("x", whole)], StateProjection(parse_selection(["properties"])))
    assert found.raw == b'{"id":"x","properties":' + raw + b"}"


@given(geometries())
def test_two_dimensions_are_the_first_two(geometry: Json) -> None:
    (found,) = shaped([state(feature(geometry))], StateProjection(force_2d=True))
    assert found.feature == {**feature(geometry), "geometry": _flat(geometry)}


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _flat(member) for name, member in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], list | dict):
        return value[:2]
    return list(map(_flat, value)) if isinstance(value, list) else value


@given(st.lists(plain_geometries(), max_size=6), st.booleans())
def test_clipping_keeps_the_inside(given_ones: list[Json], over_the_date_line: bool) -> None:
    box = Bbox(150, -60, -150, 60) if over_the_date_line else Bbox(-50, -30, 40, 30)
    area = box_shape(box)
    states = [state(feature(each, id=str(n))) for n, each in enumerate(given_ones)]
    found = {each.id: each for each in shaped(states, StateProjection(clip=area))}
    for before in states:
        original = shapely.make_valid(shape(before.feature["geometry"]))
        expected = shapely.intersection(original, area)
        if expected.is_empty:
            assert before.id not in found
            continue
        after = shape(found[before.id].feature["geometry"])
        assert shapely.make_valid(after).symmetric_difference(expected).area < 1e-9
        assert shapely.length(after) == pytest.approx(shapely.length(expected))


def test_clipping_repairs_first_and_cuts_collections_one_by_one() -> None:
    bow_tie = {
        "type": "Polygon",
        "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]],
    }
    line = {"type": "LineString", "coordinates": [[-1, 1], [3, 1]]}
    outside = {"type": "Point", "coordinates": [50, 50]}
    mixed = {"type": "GeometryCollection", "geometries": [bow_tie, line, outside]}
    states = [state(feature(each)) for each in (bow_tie, mixed, outside, None)]
    repaired, collected, nowhere = shaped(states, StateProjection(clip=shapely.box(0, 0, 1, 2)))
    assert shape(repaired.feature["geometry"]).area == pytest.approx(1.0)
    parts = collected.feature["geometry"]["geometries"]
    assert [part["type"] for part in parts] == ["Polygon", "LineString"]
    assert parts[1]["coordinates"] == [[0, 1], [1, 1]]
    assert nowhere.feature == feature(None)


def test_invalid_geometries_are_repaired_even_if_not_cut() -> None:
    bow_tie = {
        "type": "Polygon",
        "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]],
    }
    (found,) = shaped([state(feature(bow_tie))], StateProjection(clip=shapely.box(-1, -1, 3, 3)))
    assert shape(found.feature["geometry"]).is_valid
    assert shape(found.feature["geometry"]).area == pytest.approx(2.0)


def test_inner_geometries_keep_exact_coordinates() -> None:
    ring = [[0.1, 0.1], [0.30000000000000004, 0.1], [0.2, 0.7], [0.1, 0.1]]
    polygon = {"type": "Polygon", "coordinates": [ring]}
    (found,) = shaped([state(feature(polygon))], StateProjection(clip=shapely.box(0, 0, 1, 1)))
    assert found.raw == msgspec.json.encode(feature(polygon))
    flat = state(feature(polygon))
    shaping = StateProjection(force_2d=True, clip=shapely.box(0, 0, 1, 1))
    assert shaped([flat], shaping)[0] is flat


def test_heights_are_interpolated_where_a_line_is_cut() -> None:
    line = {"type": "LineString", "coordinates": [[-1, 1, 5], [3, 1, 9]]}
    (found,) = shaped([state(feature(line))], StateProjection(clip=shapely.box(0, 0, 1, 2)))
    assert found.feature["geometry"]["coordinates"] == [[0, 1, 6], [1, 1, 7]]


def test_features_that_vanish_are_omitted() -> None:
    def without_points(those: Any) -> Any:
        return np.where(shapely.get_dimensions(those) == 0, shapely.Point(), those)

    line = {"type": "LineString", "coordinates": [[-1, 1], [3, 1]]}
    states = [state(feature(POINT)), state(feature(line)), state(feature(None))]
    assert shaped(states, StateProjection(simplify=without_points)) == states[1:]


def test_all_of_it_together() -> None:
    line = {"type": "LineString", "coordinates": [[-1.0, 1.0, 5.0], [3.0, 1.0, 9.0]]}
    shaping = StateProjection(
        parse_selection(["p.name"]), force_2d=True, clip=shapely.box(0, 0, 1, 2)
    )
    (found,) = shaped([state(feature(line))], shaping)
    assert found.feature == {
        **BARE,
        "geometry": {"type": "LineString", "coordinates": [[0.0, 1.0], [1.0, 1.0]]},
        "properties": {"name": "n"},
    }


@given(geometries())
def test_shapes_keep_their_doubles(geometry: Json) -> None:
    (found,) = shapes_of([msgspec.json.encode(geometry)])
    (expected,) = encode_geometries([{"geometry": geometry}]).wkb
    flavor = {"output_dimension": 3, "byte_order": 1, "flavor": "iso"}
    assert shapely.to_wkb(found, **flavor) == expected
