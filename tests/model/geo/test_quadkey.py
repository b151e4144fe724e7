"""Quad keys: exact cells, edges, and the vectorised form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.errors import InvalidArgument
from naksha.model.geo.quadkey import QRID_DIGITS, bounds, qrid, qrids

LONS = st.floats(-180, 180)
LATS = st.floats(-90, 90)


@pytest.mark.parametrize(
    ("lon", "lat", "key"),
    [
        (-180, 90, "0" * 18),
        (180, 90, "1" * 18),
        (-180, -90, "2" * 18),
        (180, -90, "3" * 18),
        (0, 0, "3" + "0" * 17),  # an inner border belongs to the right, lower cell
        (-1e-9, 1e-9, "0" + "3" * 17),
        (-90, 45, "03" + "0" * 16),
        (90, -45, "33" + "0" * 16),
        (13.404954, 52.520008, "102212031200322001"),  # Berlin: column 140833, row 54584
    ],
)
def test_exact_keys(lon: float, lat: float, key: str) -> None:
    assert qrid(lon, lat) == key


def reference(lon: float, lat: float) -> str:
    """Halves the world eighteen times, exactly, as the definition says."""
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    key = ""
    for _ in range(QRID_DIGITS):
        middle_lon, middle_lat = (west + east) / 2, (south + north) / 2
        right, bottom = lon >= middle_lon, lat <= middle_lat
        west, east = (middle_lon, east) if right else (west, middle_lon)
        south, north = (south, middle_lat) if bottom else (middle_lat, north)
        key += str(2 * bottom + right)
    return key


@given(st.integers(0, 2**20), st.integers(0, 2**20))
def test_cells_are_halves_of_halves(column: int, row: int) -> None:
    # Multiples of a quarter cell, so that inner borders are hit and rounding plays no part.
    lon, lat = column * 360 / 2**20 - 180, 90 - row * 180 / 2**20
    assert qrid(lon, lat) == reference(lon, lat)


@given(LONS, LATS, st.integers(0, QRID_DIGITS))
def test_a_point_lies_in_the_cell_of_every_prefix(lon: float, lat: float, digits: int) -> None:
    west, south, east, north = bounds(qrid(lon, lat)[:digits])
    rounding = 1e-13 * 360
    assert west - rounding <= lon <= east + rounding
    assert south - rounding <= lat <= north + rounding


@given(st.text("0123", max_size=QRID_DIGITS))
def test_the_middle_of_a_cell_has_its_key(key: str) -> None:
    west, south, east, north = bounds(key)
    assert qrid((west + east) / 2, (south + north) / 2).startswith(key)
    assert (east - west, north - south) == (360 / 2 ** len(key), 180 / 2 ** len(key))


@given(st.text("0123", max_size=QRID_DIGITS - 1))
def test_the_four_children_fill_their_parent(key: str) -> None:
    west, south, east, north = bounds(key)
    top_left, top_right, bottom_left, bottom_right = (bounds(key + digit) for digit in "0123")
    middle = (top_left[2], top_left[1])
    assert top_left == (west, middle[1], middle[0], north)
    assert top_right == (middle[0], middle[1], east, north)
    assert bottom_left == (west, south, middle[0], middle[1])
    assert bottom_right == (middle[0], south, east, middle[1])


@given(st.lists(st.tuples(LONS, LATS)))
def test_many_at_once_are_the_same(points: list[tuple[float, float]]) -> None:
    lons, lats = (np.array([point[axis] for point in points], dtype=float) for axis in (0, 1))
    assert qrids(lons, lats) == [qrid(*point) for point in points]


@pytest.mark.parametrize("point", [(180.1, 0), (-181, 0), (0, 91), (0, -90.5), (math.nan, 0)])
def test_positions_off_the_earth_are_refused(point: tuple[float, float]) -> None:
    with pytest.raises(InvalidArgument):
        qrid(*point)
    with pytest.raises(InvalidArgument):
        qrids(np.array([point[0]]), np.array([point[1]], dtype=float))


@pytest.mark.parametrize("key", ["4", "0x", "0 1", "-1", "0" * 19, "٣"])
def test_other_texts_are_not_quad_keys(key: str) -> None:
    with pytest.raises(InvalidArgument, match="not a quad key"):
        bounds(key)
