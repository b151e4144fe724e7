"""Samples and simplified shapes."""

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from naksha.hub.query_language.clustering import Simplification, SimplificationAlgorithm
from naksha.hub.render.sampling import (
    ensuring_ratio,
    large,
    sample,
    sampling_ratio,
    simplified,
    tolerance,
    visual_thousands,
)
from naksha.model.query import Bbox

IDS = [f"feature-{number}" for number in range(40_000)]
BOX = Bbox(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("strength", "ratio"),
    [(1, 1 / 3), (5, 1 / 4), (10, 1 / 8), (30, 1 / 32), (50, 1 / 128), (75, 1 / 1024)],
)
def test_a_sample_has_about_its_part_of_the_features(strength: int, ratio: float) -> None:
    assert sampling_ratio(strength) == ratio
    expected = len(IDS) * ratio
    assert abs(sample(IDS, ratio).sum() - expected) < 5 * expected**0.5


def test_a_stronger_sample_is_a_part_of_a_weaker_one() -> None:
    weaker = sample(IDS, 1.0)
    assert weaker.all()
    for strength in (1, 5, 10, 30, 50, 75, 100):
        stronger = sample(IDS, sampling_ratio(strength))
        assert not (stronger & ~weaker).any()
        weaker = stronger
    assert not sample(IDS, 0.0).any()


def test_a_sample_is_the_same_tomorrow() -> None:
    assert (
        np.flatnonzero(sample(IDS[:100], 1 / 8)).tolist()
        == np.flatnonzero([sample([id], 1 / 8)[0] for id in IDS[:100]]).tolist()
    )


@given(st.integers(0, 10**9), st.sampled_from([10, 15, 30, 70, 100, None]))
def test_not_more_than_so_many_thousand_are_ensured(count: int, thousands: int | None) -> None:
    ratio = ensuring_ratio(count, thousands)
    assert 0 < ratio <= 1
    if thousands is not None:
        assert count * ratio <= thousands * 1000 * (1 + 1e-9)
        assert ratio == 1.0 or count * ratio >= thousands * 1000 * (1 - 1e-9)


def test_visual_samplings() -> None:
    assert [visual_thousands(name) for name in ("low", "med", "high", "off", "x")] == [
        70,
        30,
        15,
        None,
        30,
    ]


def test_large_shapes_are_those_with_a_large_box() -> None:
    shapes = shapely.box(0, 0, np.array([0.0002, 0.001, 0.1]), np.array([0.0002, 0.001, 0.1]))
    assert large(shapes, 1).tolist() == [False, True, True]
    assert large(shapes, 100).tolist() == [False, False, True]


def test_the_tolerance_grows_with_the_strength() -> None:
    found = [tolerance(strength, BOX) for strength in range(1, 101)]
    assert found == sorted(found)
    assert [found[0], found[25], found[50], found[75]] == pytest.approx([1e-4, 1e-3, 1e-2, 0.1])
    assert found[-1] < 1.0
    assert tolerance(None, Bbox(179, 0, -179, 1)) == 2 / 4096


@pytest.mark.parametrize("algorithm", SimplificationAlgorithm)
def test_simplified_shapes_are_near_and_have_fewer_coordinates(
    algorithm: SimplificationAlgorithm,
) -> None:
    circle = shapely.Point(0.5, 0.5).buffer(0.2, quad_segs=2000)
    wave = shapely.LineString([(x / 10_000, 0.0001 * (x % 2)) for x in range(10_000)])
    shapes = np.array([circle, wave, shapely.Point(0.123456789, 0.5)], dtype=object)
    options = Simplification(40, algorithm)
    found = simplified(shapes, options, BOX)
    degrees = tolerance(40, BOX, tile_units=algorithm.value == "gridbytilelevel")
    assert found[2] is shapes[2]
    for before, after in zip(shapes[:2], found[:2], strict=True):
        assert after.is_valid
        assert shapely.get_num_coordinates(after) < shapely.get_num_coordinates(before)
        assert shapely.hausdorff_distance(before, after) <= degrees * 1.5


def test_small_shapes_vanish_and_invalid_ones_are_repaired() -> None:
    bow_tie = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    tiny = shapely.box(0.5, 0.5, 0.5000001, 0.5000001)
    found = simplified(
        np.array([bow_tie, tiny], dtype=object),
        Simplification(1, SimplificationAlgorithm.GRID),
        BOX,
    )
    assert found[0].is_valid
    assert found[0].area == pytest.approx(0.5)
    assert found[1].is_empty
