"""Geometries: exact in both directions, with the position of every error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.geo.geometry import encode_geometries, geojson_of, geojson_texts
from naksha.model.geo.geometry_rules import geometry_problem
from naksha.model.geo.quadkey import qrid
from naksha.model.limits import GEOMETRY_DEPTH_MAX
from tests.model.geo.geojson import Geometry, broken_geometries, geometries

RING = [[0, 0], [4, 0], [4, 4], [0, 0]]


def features(*shapes: object) -> list[dict[str, Any]]:
    return [
        {"type": "Feature", "id": f"f{index}", "geometry": shape}
        for index, shape in enumerate(shapes)
    ]


def bits(value: Any) -> Any:
    """Doubles as hexadecimal text, so that -0.0 and 0.0 differ and 1 and 1.0 do not."""
    if isinstance(value, dict):
        return {key: bits(member) for key, member in value.items()}
    if isinstance(value, list):
        return [bits(member) for member in value]
    return value if isinstance(value, str) else float(value).hex()


def leaves(geometry: Geometry) -> list[list[float]]:
    """All positions that make the bounding box: those of holes do not."""
    if geometry["type"] == "GeometryCollection":
        return [leaf for member in geometry["geometries"] for leaf in leaves(member)]
    level = [geometry["coordinates"]]
    if geometry["type"] == "Polygon":
        level = [level[0][0]]
    elif geometry["type"] == "MultiPolygon":
        level = [polygon[0] for polygon in level[0]]
    while isinstance(level[0][0], list):
        level = [member for members in level for member in members]
    return level


@given(st.lists(st.none() | geometries(), max_size=8))
def test_coordinates_and_dimension_come_back_bit_by_bit(shapes: list[Geometry | None]) -> None:
    encoded = encode_geometries(features(*shapes))
    for shape, wkb, has_z in zip(shapes, encoded.wkb, encoded.has_z, strict=True):
        if shape is None:
            assert (wkb, has_z) == (None, False)
        else:
            assert wkb is not None
            assert bits(geojson_of(wkb)) == bits(shape)
            assert has_z is (len(leaves(shape)[0]) == 3)
    texts = geojson_texts(encoded.wkb)
    parsed = [None if wkb is None else shapely.from_wkb(wkb) for wkb in encoded.wkb]
    assert texts == [None if shape is None else shapely.to_geojson(shape) for shape in parsed]


@given(st.lists(st.none() | geometries(), max_size=8))
def test_the_quad_key_is_that_of_the_middle_of_the_box(shapes: list[Geometry | None]) -> None:
    expected: list[str | None] = []
    for shape in shapes:
        if shape is None:
            expected.append(None)
            continue
        lons, lats = ([float(leaf[axis]) for leaf in leaves(shape)] for axis in (0, 1))
        middle = (min(lons) + max(lons)) / 2, (min(lats) + max(lats)) / 2
        expected.append(qrid(*middle))
    assert encode_geometries(features(*shapes)).qrid == expected


@given(st.lists(geometries(), min_size=1, max_size=4))
def test_a_batch_gives_what_each_gives_alone(shapes: list[Geometry]) -> None:
    together = encode_geometries(features(*shapes))
    assert together.wkb == [encode_geometries(features(shape)).wkb[0] for shape in shapes]


@given(broken_geometries())
def test_exactly_the_geometries_that_the_rules_refuse_are_refused(shape: object) -> None:
    problem = None if shape is None else geometry_problem(shape)
    if problem is None:
        encode_geometries(features(shape))
        return
    with pytest.raises(InvalidArgument) as caught:
        encode_geometries([{"id": "good", "geometry": None}, {"id": "bad", "geometry": shape}])
    assert caught.value.feature_id == "bad"
    assert caught.value.field == ("geometry." + problem.path).rstrip(".")


def test_exact_wkb_of_points() -> None:
    flat, high = (
        {"type": "Point", "coordinates": [1, 2]},
        {"type": "Point", "coordinates": (1, 2, 3)},
    )
    encoded = encode_geometries(features(flat, None, high))
    assert encoded.wkb == [
        bytes.fromhex("01 01000000 000000000000f03f 0000000000000040"),
        None,
        bytes.fromhex("01 e9030000 000000000000f03f 0000000000000040 0000000000000840"),
    ]
    assert encoded.has_z == [False, False, True]


@pytest.mark.parametrize("position", [[180, 90], [-180, -90], [180.0, -90.0, 1e308]])
def test_the_edges_of_the_earth_belong_to_it(position: list[float]) -> None:
    point = {"type": "Point", "coordinates": position}
    assert geometry_problem(point) is None
    assert encode_geometries(features(point)).qrid[0] is not None


def test_no_features_at_all() -> None:
    nothing = encode_geometries([])
    assert (nothing.wkb, nothing.has_z, nothing.qrid) == ([], [], [])


def test_a_feature_without_a_geometry_member_has_none() -> None:
    assert encode_geometries([{"id": "x"}]).wkb == [None]


def test_other_members_are_dropped() -> None:
    point = {"type": "Point", "coordinates": [1, 2]}
    dressed = {**point, "crs": {"type": "name"}, "bbox": [1, 2, 1, 2], "meta": object()}
    assert encode_geometries(features(dressed)) == encode_geometries(features(point))


def test_numbers_of_numpy_are_numbers() -> None:
    point = {"type": "Point", "coordinates": [np.float64(1.5), np.int64(2), np.float32(0.5)]}
    wkb = encode_geometries(features(point)).wkb[0]
    assert wkb is not None
    assert geojson_of(wkb)["coordinates"] == [1.5, 2.0, 0.5]


def nested(depth: int) -> Geometry:
    shape: Geometry = {"type": "Point", "coordinates": [1, 2]}
    for _ in range(depth):
        shape = {"type": "GeometryCollection", "geometries": [shape]}
    return shape


def test_collections_may_be_nested_up_to_the_limit() -> None:
    encode_geometries(features(nested(GEOMETRY_DEPTH_MAX)))
    with pytest.raises(InvalidArgument, match="nested more than"):
        encode_geometries(features(nested(GEOMETRY_DEPTH_MAX + 1)))
    with pytest.raises(InvalidArgument, match="nested more than"):
        encode_geometries(features(nested(500)))


@pytest.mark.parametrize(
    ("shape", "field", "message"),
    [
        (7, "", "geometry of feature 'f2' must be a GeoJSON geometry object, not 7"),
        ([], "", "geometry of feature 'f2' must be a GeoJSON geometry object, not an array"),
        ({}, ".type", "or GeometryCollection, not null"),
        (
            {"type": "Circle", "coordinates": [1, 2]},
            ".type",
            "must be Point, .* or GeometryCollection, not 'Circle'",
        ),
        ({"type": ["Point"], "coordinates": [1, 2]}, ".type", "GeometryCollection, not an array"),
        ({"type": "Feature", "geometry": None}, ".type", "GeometryCollection, not 'Feature'"),
        ({"type": "Point"}, ".coordinates", "array, not null"),
        (
            {"type": "Point", "coordinates": []},
            ".coordinates",
            "must be a position of 2 or 3 numbers, not 0",
        ),
        (
            {"type": "Point", "coordinates": [1]},
            ".coordinates",
            "must be a position of 2 or 3 numbers, not 1",
        ),
        (
            {"type": "Point", "coordinates": [1, 2, 3, 4]},
            ".coordinates",
            "must be a position of 2 or 3 numbers, not 4",
        ),
        ({"type": "Point", "coordinates": [1, "2"]}, ".coordinates[1]", "number, not '2'"),
        ({"type": "Point", "coordinates": [1, True]}, ".coordinates[1]", "number, not true"),
        ({"type": "Point", "coordinates": [1, None]}, ".coordinates[1]", "number, not null"),
        ({"type": "Point", "coordinates": [math.nan, 2]}, ".coordinates[0]", "finite"),
        ({"type": "Point", "coordinates": [1, 2, math.inf]}, ".coordinates[2]", "finite"),
        ({"type": "Point", "coordinates": [1, 2, 10**400]}, ".coordinates[2]", "finite"),
        (
            {"type": "Point", "coordinates": [180.5, 2]},
            ".coordinates[0]",
            "must be between -180 and 180, not 180.5",
        ),
        (
            {"type": "Point", "coordinates": [1, -91]},
            ".coordinates[1]",
            "must be between -90 and 90, not -91.0",
        ),
        ({"type": "MultiPoint", "coordinates": []}, ".coordinates", "at least 1"),
        ({"type": "LineString", "coordinates": [[1, 2]]}, ".coordinates", "at least 2"),
        (
            {"type": "LineString", "coordinates": [[1, 2], 3]},
            ".coordinates[1]",
            "must be an array, not 3",
        ),
        ({"type": "LineString", "coordinates": [[1, 2], [1, 2, 3]]}, ".coordinates[1]", "earlier"),
        ({"type": "Polygon", "coordinates": [RING[1:]]}, ".coordinates[0]", "at least 4"),
        (
            {"type": "Polygon", "coordinates": [RING, [*RING[:3], [0, 1]]]},
            ".coordinates[1]",
            "not closed",
        ),
        (
            {"type": "Polygon", "coordinates": [[[0, 0, 1], [4, 0, 1], [4, 4, 1], [0, 0, 2]]]},
            ".coordinates[0]",
            "not closed",
        ),
        ({"type": "MultiPolygon", "coordinates": [[RING], []]}, ".coordinates[1]", "at least 1"),
        ({"type": "GeometryCollection"}, ".geometries", "array, not null"),
        ({"type": "GeometryCollection", "geometries": []}, ".geometries", "at least 1"),
        (
            {"type": "GeometryCollection", "geometries": [None]},
            ".geometries[0]",
            "must be a GeoJSON geometry object, not null",
        ),
        (
            {"type": "GeometryCollection", "geometries": [nested(1), {"type": "Point"}]},
            ".geometries[1].coordinates",
            "array",
        ),
        (
            {
                "type": "GeometryCollection",
                "geometries": [nested(1), {"type": "Point", "coordinates": [1, 2, 3]}],
            },
            ".geometries[1].coordinates",
            "is a position of 3 numbers, but earlier ones have 2",
        ),
    ],
)
def test_an_error_names_the_feature_and_the_field(shape: object, field: str, message: str) -> None:
    batch = features({"type": "Point", "coordinates": [1, 2]}, None, shape)
    with pytest.raises(InvalidArgument, match=message) as caught:
        encode_geometries(batch)
    assert (caught.value.feature_id, caught.value.field) == ("f2", "geometry" + field)
