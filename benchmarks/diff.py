"""Differences between versions: whether their cost depends on the changes or on the collection.

`growth` compares 1,000 changes in 1,000,000 features with 1,000 changes in 10,000. `geodiff_ratio`
is the time of pygeodiff to compare two GeoPackages of the same two states, relative to Naksha's
time for the net difference between the two versions; both return the changed features with old and
new values.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pygeodiff
import pyogrio
import shapely

from benchmarks import _data
from benchmarks._frame import Options, Report, Timing, side_by_side
from benchmarks._stores import load, opened, write
from naksha.spi.storage import Storage
from naksha.versioning import diff, place_of

TAKES = ("storage",)
EDITS = 1_000


def run(options: Options) -> Report:
    """Time the same number of changes in both sizes, and compare with pygeodiff."""
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Report:
    sizes = (options.size(10_000, 2_000), options.size(1_000_000, 20_000))
    edits = options.size(EDITS, 200)
    net = options.size(10_000, 1_000)
    features = _data.roads(sizes[1])
    edited = _data.edited(features[:net])
    gc.freeze()  # keeps gc.collect() before every measurement fast
    async with opened(options.storage) as storage:
        versions: dict[str, tuple[int, int]] = {}
        for name, size in zip(("few", "many"), sizes, strict=True):
            first = await load(storage, name, features[:size])
            second = await write(storage, name, edited[:edits])
            versions[name] = (first.seq_number, second.seq_number)
        third = await write(storage, "many", edited[edits:])
        await storage.maintain()
        ways: dict[str, Callable[[], Any]] = {
            name: _ours(storage, name, *versions[name], edits) for name in versions
        }
        ways["net"] = _ours(storage, "many", versions["many"][0], third.seq_number, net)
        with tempfile.TemporaryDirectory() as folder:
            ways["pygeodiff"] = _theirs(Path(folder), features, edited, net)
            times = await side_by_side(ways, repetitions=5)
    return _report(times, sizes, edits, net)


def _ours(storage: Storage, name: str, first: int, last: int, expected: int) -> Callable[[], Any]:
    async def read() -> None:
        old, new = await place_of(storage, str(first)), await place_of(storage, str(last))
        found = [(change.old, change.new) async for change in diff(old, new, name)]
        assert len(found) == expected

    return read


def _theirs(
    folder: Path, features: list[_data.Feature], edited: list[_data.Feature], expected: int
) -> Callable[[], Any]:
    one, other = folder / "one.gpkg", folder / "other.gpkg"
    _geopackage(one, features)
    _geopackage(other, [*edited, *features[len(edited) :]])
    geodiff = pygeodiff.GeoDiff()

    async def read() -> None:
        changes = folder / "changes"
        changes.unlink(missing_ok=True)
        geodiff.create_changeset(str(one), str(other), str(changes))
        assert geodiff.changes_count(str(changes)) == expected

    return read


def _geopackage(path: Path, features: list[_data.Feature]) -> None:
    lines = shapely.linestrings(
        [point for f in features for point in f["geometry"]["coordinates"]],
        indices=[n for n, f in enumerate(features) for _ in f["geometry"]["coordinates"]],
    )
    names = ("name", "speedLimit", "lanes", "oneway", "surface")
    columns: dict[str, Any] = {
        name: [feature["properties"][name] for feature in features] for name in names
    }
    columns["id"] = [feature["id"] for feature in features]
    columns["geometry"] = shapely.to_wkb(lines)
    pyogrio.write_arrow(
        pa.table(columns),
        path,
        layer="roads",
        driver="GPKG",
        geometry_name="geometry",
        geometry_type="LineString",
        crs="EPSG:4326",
    )


def _report(times: dict[str, Timing], sizes: tuple[int, int], edits: int, net: int) -> Report:
    labels = {
        "few": f"{edits:,} changes in {sizes[0]:,}",
        "many": f"{edits:,} changes in {sizes[1]:,}",
        "net": f"{net:,} changes in {sizes[1]:,}",
        "pygeodiff": f"pygeodiff, {net:,} changes in {sizes[1]:,}",
    }
    growth = times["many"].median / times["few"].median
    ratio = times["pygeodiff"].median / times["net"].median
    return Report(
        "Differences between two versions",
        ["what", "ms", "spread"],
        [[labels[n], round(t.median * 1000, 1), round(t.spread, 2)] for n, t in times.items()],
        {
            "growth": round(growth, 3),
            "geodiff_ratio": round(ratio, 2),
            **{f"{name}_ms": round(t.median * 1000, 2) for name, t in times.items()},
        },
        ["Goals: growth ≤ 1.5, geodiff_ratio ≥ 5."],
    )
