"""Shapes grown by metres."""

import math

import pytest
import shapely

from naksha.hub.render.buffer import buffered_shape

EARTH_RADIUS_M = 6_371_008.8


def metres(a: tuple[float, float], b: tuple[float, float]) -> float:
    """On a great circle."""
    lon1, lat1, lon2, lat2 = map(math.radians, (*a, *b))
    h = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(h))


@pytest.mark.parametrize("place", [(0, 0), (13.4, 52.5), (-70, -60), (20, 85), (179.9, 10)])
@pytest.mark.parametrize("radius", [10.0, 5_000.0, 200_000.0])
def test_a_circle_is_round(place: tuple[float, float], radius: float) -> None:
    circle = buffered_shape(shapely.Point(place), radius)
    assert circle.is_valid
    edge = [
        (float(x), float(y))
        for x, y in shapely.get_coordinates(circle)
        if abs(abs(x) - 180) > 1e-9  # where it was cut
    ]
    assert len(edge) > 30
    for position in edge:
        assert metres(place, position) == pytest.approx(radius, rel=0.001)


def test_nothing_is_outside_of_the_map() -> None:
    for place in ((180, 0), (-179.99, 60), (0, 89.9), (10, -90)):
        west, south, east, north = buffered_shape(shapely.Point(place), 100_000).bounds
        assert -180 <= west <= east <= 180
        assert -90 <= south <= north <= 90


def test_a_line_is_grown_on_both_sides() -> None:
    line = shapely.LineString([(0, 0), (1, 0)])
    wide = buffered_shape(line, 11_119.5)
    assert wide.covers(line)
    assert wide.bounds == pytest.approx((-0.1, -0.1, 1.1, 0.1), abs=0.002)
    assert buffered_shape(line, 0) is line
