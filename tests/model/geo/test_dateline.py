"""Geometries over the date line, against sampling, shapely and the package `antimeridian`."""

import math
from itertools import pairwise
from typing import Any

import antimeridian
import numpy as np
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st
from shapely.geometry import shape

from naksha.model.geo.dateline import (
    DatelineChange,
    bounded_geometry,
)
from naksha.model.geo.geometry_rules import geometry_problem
from naksha.testing.models.strategies import geometries

Json = dict[str, Any]


def line(*positions: tuple[float, ...]) -> Json:
    return {"type": "LineString", "coordinates": [list(position) for position in positions]}


def polygon(*positions: tuple[float, ...]) -> Json:
    ring = [list(position) for position in (*positions, positions[0])]
    return {"type": "Polygon", "coordinates": [ring]}


def box(west: float, south: float, east: float, north: float) -> Json:
    return polygon((west, south), (east, south), (east, north), (west, north))


@given(geometries())
def test_narrow_geometries_within_the_world_are_returned_unchanged(geometry: Json | None) -> None:
    assume(geometry is not None)
    assert geometry is not None
    west, _, east, _ = shape(geometry).bounds
    assume(east - west <= 180.0)
    assert bounded_geometry(geometry).geometry is geometry


@pytest.mark.parametrize(
    ("lon", "wrapped"),
    [(181.0, -179.0), (190.5, -169.5), (-190.0, 170.0), (540.0, -180.0), (360.0, 0.0)],
)
def test_points_are_wrapped(lon: float, wrapped: float) -> None:
    assert bounded_geometry({"type": "Point", "coordinates": [lon, 1.0, 7.0]}) == (
        {"type": "Point", "coordinates": [wrapped, 1.0, 7.0]},
        DatelineChange.WRAPPED,
    )
    assert bounded_geometry({"type": "MultiPoint", "coordinates": [[lon, 1.0], [5.0, 6.0]]}) == (
        {"type": "MultiPoint", "coordinates": [[wrapped, 1.0], [5.0, 6.0]]},
        DatelineChange.WRAPPED,
    )


def test_distant_points_are_not_a_crossing() -> None:
    points = {"type": "MultiPoint", "coordinates": [[-179.0, 1.0], [179.0, 6.0]]}
    assert bounded_geometry(points) == (points, None)


@pytest.mark.parametrize("end", [190.0, -170.0])
def test_a_line_is_cut_and_keeps_its_height(end: float) -> None:
    mended = bounded_geometry(line((170.0, 0.0, 10.0), (end, 10.0, 20.0)))
    assert mended == (
        {
            "type": "MultiLineString",
            "coordinates": [
                [[170.0, 0.0, 10.0], [180.0, 5.0, 15.0]],
                [[-180.0, 5.0, 15.0], [-170.0, 10.0, 20.0]],
            ],
        },
        DatelineChange.SPLIT,
    )


def test_a_line_beyond_the_date_line_is_wrapped() -> None:
    assert bounded_geometry(line((180.0, 0.0), (185.0, 1.0))) == (
        line((-180.0, 0.0), (-175.0, 1.0)),
        DatelineChange.WRAPPED,
    )


def test_a_line_with_positions_on_the_date_line_has_no_needless_part() -> None:
    mended = bounded_geometry(line((179.0, 0.0), (180.0, 0.0), (-180.0, 0.0), (-179.0, 0.0)))
    parts = mended.geometry["coordinates"]
    assert parts == [[[179.0, 0.0], [180.0, 0.0]], [[-180.0, 0.0], [-179.0, 0.0]]]


def degrees(least: float, most: float) -> st.SearchStrategy[float]:
    """Numbers that shapely can measure distances with."""
    return st.floats(least, most).map(lambda value: round(value, 6))


def test_a_line_that_stays_on_the_date_line_for_a_while_is_not_cut_there() -> None:
    path = [(179.0, 0.0), (180.0, 1.0), (180.0, 2.0), (179.0, 3.0), (181.0, 5.0)]
    assert bounded_geometry(line(*path)).geometry["coordinates"] == [
        [[179.0, 0.0], [180.0, 1.0], [180.0, 2.0], [179.0, 3.0], [180.0, 4.0]],
        [[-180.0, 4.0], [-179.0, 5.0]],
    ]


LATS = degrees(-80.0, 80.0)
PATHS = st.lists(st.tuples(degrees(-170.0, 170.0), LATS), min_size=1, max_size=8)


@given(st.tuples(degrees(-500.0, 500.0), LATS), PATHS)
def test_a_line_passes_the_same_places_after_the_cut(
    start: tuple[float, float], steps: list[tuple[float, float]]
) -> None:
    path = [start]
    for step, lat in steps:
        path.append((min(max(path[-1][0] + step, -539.0), 539.0), lat))
    mended = bounded_geometry(line(*path)).geometry
    assert geometry_problem(mended) is None
    length = sum(map(math.dist, path, path[1:]))
    assert shape(mended).length == pytest.approx(length, abs=1e-6)
    for first, second in pairwise(path):
        middle = [(first[0] + second[0]) / 2, (first[1] + second[1]) / 2]
        lon = (middle[0] + 180.0) % 360.0 - 180.0
        copies = shapely.MultiPoint([(lon, middle[1]), (lon + 360.0, middle[1])])
        assert shape(mended).distance(copies) < 1e-6


@given(PATHS)
def test_a_line_within_the_world_is_cut_as_it_is_when_it_goes_on_beyond(
    steps: list[tuple[float, float]],
) -> None:
    path = [(175.0, 0.0)]
    for step, lat in steps:
        path.append((min(max(path[-1][0] + step, -500.0), 500.0), lat))
    assume(all(abs(b[0] - a[0]) < 180 for a, b in pairwise(path)))
    wrapped = [((lon + 180.0) % 360.0 - 180.0, lat) for lon, lat in path]
    beyond, within = bounded_geometry(line(*path)), bounded_geometry(line(*wrapped))
    assert shape(beyond.geometry).length == pytest.approx(shape(within.geometry).length, abs=1e-6)
    assert shape(beyond.geometry).hausdorff_distance(shape(within.geometry)) < 1e-6


RADII = st.lists(st.floats(1.0, 30.0), min_size=4, max_size=9)


def star(lon: float, lat: float, radii: list[float]) -> list[tuple[float, float]]:
    """A simple counter-clockwise ring round a place."""
    angles = np.linspace(0.0, 2 * math.pi, len(radii), endpoint=False)
    return [
        (lon + radius * math.cos(angle), lat + radius * math.sin(angle))
        for radius, angle in zip(radii, angles, strict=True)
    ]


@given(st.floats(140.0, 220.0), st.floats(-50.0, 50.0), RADII)
def test_polygons_are_cut_as_the_package_for_it_does(
    lon: float, lat: float, radii: list[float]
) -> None:
    beyond = polygon(*star(lon, lat, radii))
    within = polygon(*(((x + 180.0) % 360.0 - 180.0, y) for x, y in star(lon, lat, radii)))
    expected = shapely.make_valid(
        shape(antimeridian.fix_shape(within, great_circle=False, fix_winding=False))
    )
    for given_form in (beyond, within):
        mended = bounded_geometry(given_form).geometry
        assert geometry_problem(mended) is None
        found = shapely.make_valid(shape(mended))
        assert found.area == pytest.approx(shape(beyond).area, rel=1e-9)
        assert found.symmetric_difference(expected).area < 1e-4


@given(st.floats(150.0, 210.0), RADII)
def test_a_polygon_keeps_its_heights(lon: float, radii: list[float]) -> None:
    ring = star(lon, 0.0, radii)
    mended = bounded_geometry(polygon(*((x, y, 3.0 * x + y) for x, y in ring))).geometry
    positions = shapely.get_coordinates(shape(mended), include_z=True)
    x = np.where(positions[:, 0] < 0, positions[:, 0] + 360.0, positions[:, 0])
    assert np.allclose(positions[:, 2], 3.0 * x + positions[:, 1])


def test_a_polygon_with_a_hole_over_the_date_line() -> None:
    outer, inner = box(170.0, 0.0, 190.0, 10.0), box(-182.0, 4.0, -178.0, 6.0)
    rings = [outer["coordinates"][0], inner["coordinates"][0]]
    mended = bounded_geometry({"type": "Polygon", "coordinates": rings})
    assert mended.change is DatelineChange.SPLIT
    found = shape(mended.geometry)
    assert found.is_valid
    assert found.area == pytest.approx(200.0 - 8.0)
    assert not found.intersects(shapely.Point(179.0, 5.0))
    assert not found.intersects(shapely.Point(-179.0, 5.0))


def test_a_multi_polygon_is_still_one() -> None:
    parts = [box(0, 0, 1, 1)["coordinates"], box(179, 0, 181, 1)["coordinates"]]
    mended = bounded_geometry({"type": "MultiPolygon", "coordinates": parts})
    assert mended.change is DatelineChange.SPLIT
    assert len(mended.geometry["coordinates"]) == 3
    assert mended.geometry["coordinates"][0] == parts[0]


@pytest.mark.parametrize(
    "wide", [box(-170, -10, 170, 10), box(-180, -90, 180, 90), box(-100, -60, 120, 60)]
)
def test_a_wide_polygon_that_is_right_as_it_stands_stays(wide: Json) -> None:
    assert bounded_geometry(wide) == (wide, None)


def test_the_direction_of_a_ring_determines_its_side() -> None:
    mended = bounded_geometry(polygon((177, -20), (-178, -20), (-178, -12), (177, -12)))
    assert mended.change is DatelineChange.SPLIT
    assert shape(mended.geometry).area == pytest.approx(5 * 8)


@pytest.mark.parametrize("lat", [70.0, -70.0])
@pytest.mark.parametrize("step", [30, -30])
def test_a_ring_round_a_pole_encloses_it(lat: float, step: int) -> None:
    lons = [*range(-165, 180, 30)][:: 1 if step > 0 else -1]
    ring = polygon(*((float(lon), lat) for lon in lons))
    # As it stands the ring has no area: all of it is on one parallel.
    mended = bounded_geometry(ring)
    assert geometry_problem(mended.geometry) is None
    assert shape(mended.geometry).is_valid
    assert shape(mended.geometry).area == pytest.approx(360.0 * 20.0)
    assert shape(mended.geometry).intersects(shapely.Point(0.0, math.copysign(89.0, lat)))


def test_members_of_a_collection_are_mended() -> None:
    good = {"type": "Point", "coordinates": [1.0, 2.0]}
    collection = {
        "type": "GeometryCollection",
        "geometries": [good, {"type": "Point", "coordinates": [200.0, 2.0]}],
    }
    mended = bounded_geometry(collection)
    assert mended.change is DatelineChange.WRAPPED
    assert mended.geometry["geometries"][0] is good
    assert mended.geometry["geometries"][1]["coordinates"] == [-160.0, 2.0]


@pytest.mark.parametrize(
    "geometry",
    [
        {},
        {"type": "Circle", "coordinates": [1, 2]},
        {"type": "Point"},
        {"type": "Point", "coordinates": "190"},
        {"type": "Point", "coordinates": [500000.0, 4e6]},
        {"type": "Point", "coordinates": [math.nan, 0.0]},
        {"type": "LineString", "coordinates": [[190.0, 0.0]]},
        {"type": "LineString", "coordinates": [[170.0, 0.0], [190.0, "x"]]},
        {"type": "LineString", "coordinates": [[170.0, 0.0], [190.0, 0.0, 1.0]]},
        {"type": "LineString", "coordinates": []},
        {"type": "Polygon", "coordinates": [[[190.0, 0.0], [170.0, 1.0]]]},
        {"type": "Polygon", "coordinates": [[[190.0, 0], [170.0, 1], [190.0, 0], [190.0, 0]]]},
        {"type": "GeometryCollection", "geometries": 5},
    ],
)
def test_values_that_are_not_geometries_are_left_to_the_storage(geometry: Json) -> None:
    mended = bounded_geometry(geometry)
    assert geometry_problem(mended.geometry) is not None
