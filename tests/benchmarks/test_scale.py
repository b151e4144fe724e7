"""The benchmark scale: equal hit counts at every size; with --long, a quick run."""

import itertools

import pytest

from benchmarks import scale
from benchmarks._frame import Options
from benchmarks._http import LoadResult
from benchmarks._places import Places

SIZES = (2_000, 300_000)
KINDS = ("id", "bbox", "tile", "version", "diff")


@pytest.fixture(scope="module")
def places() -> Places:
    return Places.generate(SIZES[-1])


@pytest.mark.parametrize("size", SIZES)
def test_boxes_have_equal_hit_counts(places: Places, size: int) -> None:
    some = places.first(size)
    for west, south, east, north in itertools.islice(some.boxes(100, 1), 20):
        inside = (some.lon >= west) & (some.lon <= east) & (some.lat >= south) & (some.lat <= north)
        assert 100 <= inside.sum() <= 105


@pytest.mark.parametrize("size", SIZES)
def test_tiles_are_of_the_pyramid_and_have_similar_hit_counts(places: Places, size: int) -> None:
    some = places.first(size)
    for column, row, zoom in itertools.islice(some.tiles(250, 500, 1), 10):
        side = 2**zoom
        west, east = column / side * 360 - 180, (column + 1) / side * 360 - 180
        assert 0 <= row < side
        assert ((some.lon >= west) & (some.lon < east)).sum() >= 250


def test_copies_of_towns_lie_near_them(places: Places) -> None:
    towns = len(places.towns)
    assert towns > 200_000
    assert abs(places.lon[towns:] - places.lon[: SIZES[-1] - towns]).mean() < 0.1
    assert places.feature(towns)["properties"]["name"] == places.feature(0)["properties"]["name"]
    assert places.feature(towns)["id"] != places.feature(0)["id"]


def test_growth_compares_the_most_features_with_the_fewest(places: Places) -> None:
    spaces = [scale.MeasuredSpace(places.first(size)) for size in (200_000, 300_000)]
    for space, rate, disk in zip(spaces, (100, 80), (1.4, 1.3), strict=True):
        space.disk_ratio = disk
        space.loads = {kind: LoadResult(1.0, [1.0] * rate) for kind in KINDS}
    spaces[1].loads["tile"] = LoadResult(1.0, [1.0] * 50)
    figures = scale._report(spaces).figures
    assert figures["id_growth"] == 1.25
    assert figures["query_growth"] == figures["tile_growth"] == 2.0
    assert figures["disk_ratio"] == 1.4
    assert figures["tile_rps_300k"] == 50


@pytest.mark.long
@pytest.mark.postgres
def test_a_quick_run_has_all_its_figures() -> None:
    figures = scale.run(Options(quick=True, sizes=(10_000, 20_000))).figures
    for name in (
        *(f"{kind}_growth" for kind in KINDS),
        "disk_ratio",
        "hub_mb_10k",
        "server_mb_20k",
    ):
        assert float(str(figures[name])) > 0
