"""Feature counts in hexagons and tiles, compared with counting one by one."""

import math
import statistics
from collections import Counter
from typing import Any

import h3
import numpy as np
import numpy.typing as npt
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import shape

from naksha.hub.query_language.clustering import CountMode, Hexbin, Quadbin
from naksha.hub.query_language.tiles import MapTile, hexagon, level_of_box, parse_tile, tiles_over
from naksha.hub.render import clusters
from naksha.hub.render.clusters import (
    hexagon_resolution,
    hexbin_box,
    hexbins,
    property_numbers,
    quadbin_levels,
    quadbins,
)
from naksha.model.errors import LimitExceeded
from naksha.model.query import Bbox

TILE = parse_tile("quadkey", "120203233")
BOX = TILE.box()


def points(lons: Any, lats: Any) -> npt.NDArray[np.object_]:
    return np.asarray(shapely.points(np.asarray(lons, float), np.asarray(lats, float)))


def shapes(*those: shapely.Geometry) -> npt.NDArray[np.object_]:
    return np.array(those, dtype=object)


def scattered(count: int, box: Bbox, seed: int = 1) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.uniform(box.west, box.east, count), random.uniform(box.south, box.north, count)


# ---- Hexagons ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "options", "resolution"),
    [
        (0, Hexbin(), 2),
        (7, Hexbin(), 5),
        (18, Hexbin(), 13),
        (30, Hexbin(), 13),
        (7, Hexbin(relative=-2), 3),
        (7, Hexbin(relative=2), 7),
        (7, Hexbin(resolution=3), 3),
        (7, Hexbin(resolution=3, relative=-2), 1),
        (7, Hexbin(resolution=13), 7),
        (7, Hexbin(resolution=13, relative=1), 7),
        (7, Hexbin(resolution=0, relative=-2), 0),
        (17, Hexbin(resolution=15), 13),
    ],
)
def test_the_resolution_of_hexagons(level: int, options: Hexbin, resolution: int) -> None:
    assert hexagon_resolution(level, options) == resolution


def test_points_are_counted_and_their_values_aggregated() -> None:
    around = hexbin_box(BOX, 6)
    lons, lats = scattered(3000, around)
    values = np.random.default_rng(2).normal(size=3000)
    values[::7] = np.nan
    found = hexbins(points(lons, lats), values, BOX, TILE.level, Hexbin(property="a.b"), clip=False)
    cells = [h3.latlng_to_cell(lat, lon, 6) for lon, lat in zip(lons, lats, strict=True)]
    by_cell: dict[str, list[float]] = {cell: [] for cell in cells}
    for cell, value in zip(cells, values.tolist(), strict=True):
        if not math.isnan(value):
            by_cell[cell].append(value)
    area = shapely.box(BOX.west, BOX.south, BOX.east, BOX.north)
    expected = {cell for cell in by_cell if hexagon(cell).intersects(area)}
    assert {each["id"] for each in found} == expected
    counts = Counter(cells)
    for each in found:
        (aggregation,) = each["properties"]["aggregation"].values()
        mine = by_cell[each["id"]]
        assert aggregation["qty"] == counts[each["id"]]
        assert aggregation["min"] == min(mine)
        assert aggregation["max"] == max(mine)
        assert aggregation["sum"] == pytest.approx(sum(mine))
        assert aggregation["avg"] == pytest.approx(statistics.fmean(mine), abs=1e-5)
        assert aggregation["median"] == pytest.approx(statistics.median(mine))


def test_members_of_a_hexagon() -> None:
    lon, lat = (BOX.west + BOX.east) / 2, (BOX.south + BOX.north) / 2
    (found,) = hexbins(points([lon, lon], [lat, lat]), None, BOX, TILE.level, Hexbin(), clip=False)
    cell = h3.latlng_to_cell(lat, lon, 6)
    lat, lon = h3.cell_to_latlng(cell)
    assert found["id"] == cell
    assert found["properties"] == {
        "kind": "H3",
        "kind_detail": cell,
        "resolution": 6,
        "level": 9,
        "aggregation": {"qty": 2},
        "pentagon": False,
        "centroid": [round(lon, 7), round(lat, 7)],
    }
    assert found["geometry"]["type"] == "Polygon"
    assert shape(found["geometry"]).symmetric_difference(hexagon(cell)).area < 1e-6
    (point,) = hexbins(
        points([lon], [lat]), None, BOX, TILE.level, Hexbin(point_mode=True), clip=False
    )
    assert point["geometry"] == {"type": "Point", "coordinates": found["properties"]["centroid"]}
    assert point["properties"]["hexagon"] == found["geometry"]["coordinates"]


def test_a_missing_property_is_null() -> None:
    lon, lat = (BOX.west + BOX.east) / 2, (BOX.south + BOX.north) / 2
    (found,) = hexbins(
        points([lon], [lat]), np.array([np.nan]), BOX, 9, Hexbin(property="x"), clip=False
    )
    assert found["properties"]["aggregation"] == {
        "x": {"qty": 1, "min": None, "max": None, "sum": None, "avg": None, "median": None}
    }


def test_neighbouring_tiles_agree_about_the_hexagons_that_they_share() -> None:
    east = MapTile(TILE.level, TILE.x + 1, TILE.y)
    both = Bbox(BOX.west, BOX.south, east.box().east, BOX.north)
    lons, lats = scattered(5000, hexbin_box(both, 6))
    answers = []
    for tile in (TILE, east):
        found = hexbins(points(lons, lats), None, tile.box(), tile.level, Hexbin(), clip=False)
        answers.append({each["id"]: each for each in found})
    shared = answers[0].keys() & answers[1].keys()
    assert shared
    assert all(answers[0][id] == answers[1][id] for id in shared)


def test_clipped_hexagons_are_inside_and_have_an_id_of_their_own() -> None:
    lons, lats = scattered(2000, hexbin_box(BOX, 6))
    whole = hexbins(points(lons, lats), None, BOX, TILE.level, Hexbin(), clip=False)
    found = hexbins(points(lons, lats), None, BOX, TILE.level, Hexbin(), clip=True)
    area = shapely.box(BOX.west, BOX.south, BOX.east, BOX.north).buffer(1e-6)
    assert len(found) == len(whole)
    assert all(area.covers(shape(each["geometry"])) for each in found)
    assert not {each["id"] for each in found} & {each["id"] for each in whole}


def counted(*those: shapely.Geometry, **options: Any) -> dict[str, int]:
    found = hexbins(shapes(*those), None, BOX, TILE.level, Hexbin(**options), clip=False)
    return {each["id"]: each["properties"]["aggregation"]["qty"] for each in found}


def test_lines_and_polygons_are_counted_in_every_hexagon_that_they_touch() -> None:
    lon, lat = (BOX.west + BOX.east) / 2, (BOX.south + BOX.north) / 2
    polygon = shapely.Point(lon, lat).buffer(0.2)
    line = shapely.LineString([(lon - 0.2, lat - 0.2), (lon + 0.2, lat + 0.2)])
    for each in (polygon, line, shapely.MultiPolygon([polygon]), _collection(polygon)):
        found = counted(each)
        assert set(found.values()) == {1}
        cells = shapely.union_all([hexagon(cell) for cell in found])
        assert cells.buffer(1e-3).covers(each)
        assert all(hexagon(cell).distance(each) < 1e-2 for cell in found)
    both = counted(polygon, line)
    assert set(both.values()) == {1, 2}
    assert both == dict(Counter(counted(polygon)) + Counter(counted(line)))


def _collection(polygon: shapely.Geometry) -> shapely.Geometry:
    return shapely.GeometryCollection([polygon, shapely.Point(polygon.centroid)])


def test_a_single_coordinate_is_counted_once() -> None:
    lon, lat = (BOX.west + BOX.east) / 2, (BOX.south + BOX.north) / 2
    line = shapely.LineString([(lon, lat), (lon + 0.2, lat + 0.2)])
    assert counted(line, single_coordinate=True) == {h3.latlng_to_cell(lat, lon, 6): 1}


def test_nothing_is_counted_nowhere() -> None:
    assert counted() == {}
    assert counted(shapely.Point(0, 0)) == {}


def test_the_whole_world_is_covered_by_a_polygon_of_it() -> None:
    world = MapTile(0, 0, 0).box()
    found = hexbins(
        shapes(shapely.box(-180, -85, 180, 85)), None, world, 0, Hexbin(relative=-2), clip=False
    )
    middles = [shapely.Point(*each["properties"]["centroid"]) for each in found]
    assert len(found) > 100
    missing = set(h3.get_res0_cells()) - {each["id"] for each in found}
    assert not [cell for cell in missing if abs(h3.cell_to_latlng(cell)[0]) < 80]
    assert len(middles) == len(set(middles))


def test_there_is_a_limit_to_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "HEXAGON_COUNTS_MAX", 10)
    with pytest.raises(LimitExceeded, match="singlecoord"):
        counted(shapely.box(BOX.west, BOX.south, BOX.east, BOX.north))


def test_numbers_of_a_property() -> None:
    features = [
        {"properties": {"a": {"b": value}}} for value in (1, 2.5, "3", True, None, 10**400, [1])
    ]
    found = property_numbers([*features, {"properties": {"a": 1}}, {"properties": {}}], "a.b")
    assert found.tolist()[:2] == [1.0, 2.5]
    assert np.isnan(found[2:]).all()
    assert len(found) == 9


def descendants(tile: MapTile, levels: int) -> list[MapTile]:
    """The tiles that a tile consists of, `levels` deeper."""
    count = 1 << levels
    return [
        MapTile(tile.level + levels, tile.x * count + column, row, tile.mercator)
        for row in range(tile.y * count, (tile.y + 1) * count)
        for column in range(count)
    ]


# ---- Tiles ---------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 4), st.integers(0, 10_000))
def test_features_are_counted_in_the_tiles_that_they_meet(relative: int, seed: int) -> None:
    lons, lats = scattered(40, BOX, seed)
    those = shapes(*points(lons, lats), *(shapely.Point(lons[0], lats[0]).buffer(0.1),))
    cells = descendants(TILE, relative)
    found = {each["properties"]["qk"]: each for each in quadbins(those, cells, Quadbin(relative))}
    for cell in cells:
        box = cell.box()
        area = shapely.box(box.west, box.south, box.east, box.north)
        count = sum(area.intersects(each) for each in those)
        assert found.get(cell.quadkey, {"properties": {"count": 0}})["properties"]["count"] == count


def test_members_of_a_tile() -> None:
    tile = parse_tile("quadkey", "12002323333")
    box = tile.box()
    middle = points([(box.west + box.east) / 2] * 3, [(box.south + box.north) / 2] * 3)
    (found,) = quadbins(middle, [tile], Quadbin(no_buffer=True), total_count=33_521_484)
    assert found["id"] == "11_1071_639"
    assert found["properties"] == {
        "qk": "12002323333",
        "zxy": [11, 1071, 639],
        "xyz": "(639,1071,11)",
        "count": 3,
        "estimated": False,
        "total_count": 33_521_484,
        "equipartition_count": 33_521_484 // 4**11,
    }
    assert shape(found["geometry"]).bounds == pytest.approx(
        (box.west, box.south, box.east, box.north), abs=1e-6
    )


def test_tiles_have_a_buffer_unless_it_is_not_wanted() -> None:
    lons, lats = scattered(200, BOX)
    cells = descendants(TILE, 2)
    plain = quadbins(points(lons, lats), cells, Quadbin(2, no_buffer=True))
    buffered = quadbins(points(lons, lats), cells, Quadbin(2))
    for one, other in zip(plain, buffered, strict=True):
        assert shape(one["geometry"]).contains_properly(shape(other["geometry"]))
        assert one["properties"] == other["properties"]


def test_samples_are_estimates_and_bool_says_only_that_there_is_something() -> None:
    those = points([BOX.west + 0.01] * 3, [BOX.south + 0.01] * 3)
    (found,) = quadbins(those, [TILE], Quadbin(), weight=2.5)
    assert found["properties"]["count"] == 8
    assert found["properties"]["estimated"] is True
    assert found["properties"]["total_count"] == 8
    (found,) = quadbins(those, [TILE], Quadbin(count_mode=CountMode.BOOL))
    assert found["properties"]["count"] == 1


def test_tiles_can_be_cut_at_a_box() -> None:
    box = Bbox(BOX.west + 0.1, BOX.south + 0.1, BOX.east - 0.1, BOX.north - 0.1)
    lons, lats = scattered(300, box)
    cells = tiles_over(box, level_of_box(box) + 2)
    found = quadbins(points(lons, lats), cells, Quadbin(2), clip=box)
    area = shapely.box(box.west, box.south, box.east, box.north).buffer(1e-6)
    assert found
    assert all(area.covers(shape(each["geometry"])) for each in found)


@pytest.mark.parametrize(
    ("level", "options", "levels"),
    [
        (9, Quadbin(), 0),
        (9, Quadbin(4), 4),
        (9, Quadbin(1, resolution=11), 3),
        (9, Quadbin(1, resolution=5), 1),
        (9, Quadbin(4, resolution=20), 5),
        (29, Quadbin(4), 1),
    ],
)
def test_how_deep_tiles_are(level: int, options: Quadbin, levels: int) -> None:
    assert quadbin_levels(level, options) == levels


@given(st.integers(0, 4))
def test_a_tile_consists_of_its_descendants(levels: int) -> None:
    found = descendants(TILE, levels)
    assert len(set(found)) == 4**levels
    assert all(each.quadkey.startswith(TILE.quadkey) for each in found)
    assert all(len(each.quadkey) == TILE.level + levels for each in found)
