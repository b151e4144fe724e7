"""Dissolved features: small ones in one location, and lines that continue each other."""

from typing import Any

import msgspec
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.render.dissolve import geohash, line_merged, merged
from naksha.model.state import State


def state(id: str, shape: shapely.Geometry) -> State:
    geometry = msgspec.Raw(shapely.to_geojson(shape).encode())
    feature = {"id": id, "type": "Feature", "geometry": geometry, "properties": {"name": id}}
    return State(id, msgspec.json.encode(feature))


def line(id: str, *positions: tuple[float, float]) -> State:
    return state(id, shapely.LineString(positions))


def shape(found: State) -> shapely.Geometry:
    return shapely.from_geojson(msgspec.json.encode(found.feature["geometry"]))


@pytest.mark.parametrize(
    ("lon", "lat", "expected"),
    [(-5.60302734375, 42.60498046875, "ezs42"), (10.40744, 57.64911, "u4pruydqqvj")],
)
def test_geohashes_equal_the_published_ones(lon: float, lat: float, expected: str) -> None:
    assert geohash((lon, lat, lon, lat), len(expected)) == expected


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 1), st.floats(0, 1))
def test_a_geohash_has_all_of_a_box_in_it(
    west: float, south: float, width: float, height: float
) -> None:
    bounds = (west, south, min(west + width, 180.0), min(south + height, 90.0))
    place = geohash(bounds)
    for corner in ((bounds[0], bounds[1]), (bounds[2], bounds[3])):
        assert geohash((*corner, *corner)).startswith(place)


def test_features_in_a_small_cell_are_merged() -> None:
    west, south, east, north = 8.5, 50.25, 8.500001, 50.250001
    halves = [
        shapely.Polygon([(west, south), (east, south), (east, north)]),
        shapely.Polygon([(west, south), (east, north), (west, north)]),
    ]
    far = shapely.box(8.6, 50.25, 8.600001, 50.250001)
    large = shapely.box(8.0, 50.0, 9.0, 51.0)
    states = [state(f"b{n}", each) for n, each in enumerate([*halves, far, large, large])]
    found = {tuple(each.feature["properties"]["ids"]): each for each in merged(states, 50)}
    assert set(found) == {("b0", "b1"), ("b2",), ("b3",), ("b4",)}
    together = found["b0", "b1"]
    assert shape(together).equals(shapely.box(west, south, east, north))
    assert together.feature["properties"]["groupInfo"][1:] == [1, 1, 2]
    # The strongest one joins what is large, too.
    strongest = [each.feature["properties"]["ids"] for each in merged(states, 100)]
    assert strongest == [["b0", "b1"], ["b2"], ["b3", "b4"]]


def test_parts_that_do_not_touch_are_features_of_their_own() -> None:
    points = [state(f"p{n}", shapely.Point(8.5, 50.25)) for n in range(2)]
    apart = [state("m", shapely.MultiPoint([(1, 1), (2, 2)]))]
    found = merged([*points, *apart], None)
    told = [each.feature["properties"] for each in found]
    assert [each["groupInfo"][1:] for each in told] == [[1, 1, 2], [1, 2, 1], [2, 2, 1]]
    assert [each.get("ids") for each in told] == [["p0", "p1"], ["m"], None]


def test_lines_that_go_on_in_each_other_become_one() -> None:
    states = [
        line("a", (8.5001, 50.25), (8.5002, 50.25)),
        line("b", (8.5003, 50.25), (8.5002, 50.25)),
        line("c", (8.5003, 50.25), (8.5004, 50.25)),
        line("alone", (8.51, 50.25), (8.52, 50.25)),
        state("point", shapely.Point(8.5002, 50.25)),
    ]
    *rest, joined = line_merged(states, 100)
    assert [each.id for each in rest] == ["alone", "point"]
    assert joined.feature["properties"] == {"ids": ["a", "b", "c"]}
    assert joined.id == "c"
    assert shape(joined).equals(shapely.LineString([(8.5001, 50.25), (8.5004, 50.25)]))
    assert shape(joined).geom_type == "LineString"


@pytest.mark.parametrize("more", [1, 2])
def test_lines_are_not_joined_at_a_crossing(more: int) -> None:
    middle = (8.5002, 50.25)
    states = [line("a", (8.5001, 50.25), middle), line("b", middle, (8.5003, 50.25))]
    states += [line(f"c{n}", middle, (8.5002, 50.26 + n)) for n in range(more)]
    assert line_merged(states, 100) == states


def test_a_ring_and_a_chain_over_many_regions_are_given_once() -> None:
    ring = line("ring", (8.6, 50.2), (8.6001, 50.2), (8.6, 50.2001), (8.6, 50.2))
    chain = [line(f"l{n:03}", (n / 10, 10.0), ((n + 1) / 10, 10.0)) for n in range(100)]
    for strength in (1, 30, 50, 70, 100):
        given = [ring, *chain]
        found = line_merged(given, strength)
        ids: list[Any] = []
        for each in found:
            ids += each.feature["properties"].get("ids", [each.id])
        assert sorted(ids) == sorted(each.id for each in given)
        assert sum(shape(each).length for each in found) == pytest.approx(
            sum(shape(each).length for each in given)
        )
