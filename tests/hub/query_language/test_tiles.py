"""Tile ids of four schemes, against morecantile and against the definitions."""

import math
from random import Random

import h3
import morecantile
import numpy as np
import numpy.typing as npt
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.query_language.tiles import (
    MapTile,
    TileFormat,
    hexagon,
    level_of_box,
    parse_tile,
    split_suffix,
    tiles_over,
)
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox

MERCATOR = morecantile.tms.get("WebMercatorQuad")


@st.composite
def tiles(draw: st.DrawFn, level_max: int = 20) -> MapTile:
    level = draw(st.integers(0, level_max))
    return MapTile(level, draw(st.integers(0, 2**level - 1)), draw(st.integers(0, 2**level - 1)))


def edges(box: Bbox) -> tuple[float, float, float, float]:
    return box.west, box.south, box.east, box.north


@given(tiles())
def test_the_three_names_of_a_mercator_tile_mean_the_same(tile: MapTile) -> None:
    x, y, z = tile.x, tile.y, tile.level
    assert parse_tile("web", f"{z}_{x}_{y}") == tile
    assert parse_tile("tms", f"{z}_{x}_{2**z - 1 - y}") == tile
    key = MERCATOR.quadkey(morecantile.Tile(x, y, z))
    assert tile.quadkey == key
    assert parse_tile("quadkey", key) == tile
    assert parse_tile("quadkeys", key) == tile


@given(tiles())
def test_boxes_of_mercator_tiles_are_those_of_morecantile(tile: MapTile) -> None:
    expected = MERCATOR.bounds(morecantile.Tile(tile.x, tile.y, tile.level))
    assert edges(tile.box()) == pytest.approx(tuple(expected), abs=1e-9)


@pytest.mark.parametrize("tile_id", ["377894440", "12201203120220", "14_8800_6486"])
def test_the_three_names_of_a_here_tile(tile_id: str) -> None:
    tile = parse_tile("here", tile_id)
    assert (tile.level, tile.x, tile.y) == (14, 8800, 6486)
    assert tile.quadkey == "12201203120220"
    assert edges(tile.box()) == (13.359375, 52.5146484375, 13.38134765625, 52.53662109375)


@pytest.mark.parametrize(
    ("tile_id", "box"),
    [
        ("0_0_0", (-180, -90, 180, 90)),
        ("1", (0, -90, 180, 90)),
        ("1_1_0", (0, -90, 180, 90)),
        ("4", (-180, -90, 0, 90)),
        ("5", (0, -90, 180, 90)),
    ],
)
def test_the_first_here_tiles(tile_id: str, box: tuple[float, ...]) -> None:
    assert edges(parse_tile("here", tile_id).box()) == box


@given(st.integers(1, limits.TILE_LEVEL_MAX), st.randoms())
def test_a_here_tile_by_its_number(level: int, random: Random) -> None:
    x, y = random.randrange(2**level), random.randrange(2 ** (level - 1))
    tile = MapTile(level, x, y, mercator=False)
    assert parse_tile("here", f"{level}_{x}_{y}") == tile
    assert parse_tile("here", tile.quadkey) == tile
    number = str(int("1" + tile.quadkey, 4))
    if set(number) - set("0123"):  # else it reads as a key, too
        assert parse_tile("here", number) == tile


@given(tiles(18), st.integers(0, limits.TILE_MARGIN_PIXELS_MAX))
def test_a_margin_grows_the_box_by_its_pixels(tile: MapTile, margin: int) -> None:
    plain, grown = tile.box(), tile.box(margin)
    pixel = (plain.east - plain.west) / 256
    assert grown.west == pytest.approx(max(plain.west - margin * pixel, -180.0), abs=1e-9)
    assert grown.east == pytest.approx(min(plain.east + margin * pixel, 180.0), abs=1e-9)
    assert grown.south <= plain.south
    assert grown.north >= plain.north
    assert grown.north <= 85.0511287798066
    if tile.y > 0 and margin == 256:
        above = MapTile(tile.level, tile.x, tile.y - 1).box()
        assert grown.north == pytest.approx(above.north, abs=1e-9)


@pytest.mark.parametrize(
    ("scheme", "tile_id", "field"),
    [
        ("google", "1_0_0", "type"),
        ("Web", "1_0_0", "type"),
        ("web", "1_2_0", "tileId"),
        ("web", "1_0_2", "tileId"),
        ("web", "31_0_0", "tileId"),
        ("web", "1_0", "tileId"),
        ("web", "1_0_0_0", "tileId"),
        ("web", "1_-1_0", "tileId"),
        ("web", "120", "tileId"),
        ("web", "1_0_0; DROP", "tileId"),
        ("web", "١_0_0", "tileId"),
        ("tms", "1_0_2", "tileId"),
        ("quadkey", "124", "tileId"),
        ("quadkey", "1_0_0", "tileId"),
        ("quadkey", "1" * 31, "tileId"),
        ("here", "", "tileId"),
        ("here", "1_0_1", "tileId"),
        ("here", "6", "tileId"),
        ("here", "8", "tileId"),
        ("here", "9" * 21, "tileId"),
    ],
)
def test_bad_ids_are_refused_with_the_field(scheme: str, tile_id: str, field: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        parse_tile(scheme, tile_id)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("tile_id", "expected"),
    [
        ("120", ("120", None)),
        ("120.mvt", ("120", TileFormat.MVT)),
        ("120.mvt2", ("120", TileFormat.MVT)),
        ("1_0_0.mvtf", ("1_0_0", TileFormat.MVT_FLAT)),
        ("120.mvtf2", ("120", TileFormat.MVT_FLAT)),
        ("120.geojson", ("120", TileFormat.GEOJSON)),
        ("120.json", ("120", TileFormat.GEOJSON)),
    ],
)
def test_a_suffix_selects_the_format(tile_id: str, expected: object) -> None:
    assert split_suffix(tile_id) == expected


@pytest.mark.parametrize("tile_id", ["120.png", "120.", "120.mvt.mvt"])
def test_an_unknown_suffix_is_refused(tile_id: str) -> None:
    with pytest.raises(InvalidArgument, match="format"):
        split_suffix(tile_id)


@given(tiles(18))
def test_the_level_of_a_tiles_box_is_its_own(tile: MapTile) -> None:
    assert level_of_box(tile.box()) == tile.level


@given(st.floats(-180, 180), st.floats(-80, 79), st.floats(0.001, 30), st.integers(0, 6))
def test_tiles_over_a_box_are_those_that_meet_it(
    west: float, south: float, size: float, level: int
) -> None:
    east = west + size if west + size <= 180 else west + size - 360
    box = Bbox(west, south, east, min(south + size, 85.0))
    found = set(tiles_over(box, level))
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    for x in range(2**level):
        for y in range(2**level):
            tile = MapTile(level, x, y)
            cell = tile.box()
            rows = min(cell.north - box.south, box.north - cell.south)
            columns = max(min(cell.east - left, right - cell.west) for left, right in parts)
            if min(rows, columns) > 1e-9:
                assert tile in found
            if min(rows, columns) < -1e-9:
                assert tile not in found


@given(st.floats(-180, 180), st.floats(-89.9, 89.9), st.integers(0, 13))
def test_a_hexagon_contains_the_place_it_was_made_for(
    lon: float, lat: float, resolution: int
) -> None:
    index = h3.latlng_to_cell(lat, lon, resolution)
    shape = hexagon(index)
    assert shape.is_valid
    west, _, east, _ = shape.bounds
    assert -180 <= west <= east <= 180
    lat, lon = h3.cell_to_latlng(index)
    assert shape.intersects(shapely.Point(lon, lat))


@pytest.mark.parametrize("resolution", range(6))
def test_hexagons_tile_the_earth_also_at_the_poles_and_the_date_line(resolution: int) -> None:
    for lat, lon in [(89.99, 0.0), (-89.99, 0.0), (0.0, 180.0), (65.0, -179.99)]:
        index = h3.latlng_to_cell(lat, lon, resolution)
        shape = shapely.segmentize(hexagon(index), 0.1)
        cylinder = shapely.transform(shape, _equal_area)
        # Edges are straight on the map, not on the sphere: near a pole that is not the same.
        assert 0.5 < cylinder.area / h3.cell_area(index, "rads^2") < 2.0


def _equal_area(positions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    radians = np.radians(positions)
    return np.column_stack([radians[:, 0], np.sin(radians[:, 1])])


@pytest.mark.parametrize("index", ["", "x", "85283473ffffff", "0", "8f" * 20, "85283473ffffff'"])
def test_invalid_hexagons_are_rejected(index: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        hexagon(index)
    assert raised.value.field == "h3Index"


def test_the_highest_latitude_of_the_map() -> None:
    assert MapTile(0, 0, 0).box().north == pytest.approx(
        math.degrees(math.atan(math.sinh(math.pi)))
    )
