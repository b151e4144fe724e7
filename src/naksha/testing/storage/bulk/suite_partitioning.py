"""Conformance: optimal partitioning into quad-key cells of limited feature count."""

from __future__ import annotations

from naksha.model.geo.quadkey import QRID_DIGITS
from naksha.spi.partitioning import Partitioning
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import Handle, feature, new_collection, point

BULKY = "x" * 1_000_000
"""Text of such a size that ten features fit into 10 MiB."""


async def counted(handle: Handle) -> dict[str, int]:
    """Return the features per cell; check that the cells are disjoint and cover all features."""
    cells = await handle.storage.partitioning(handle.name)
    found = dict.fromkeys(cells, 0)
    for state in await handle.live():
        qrid = state.xyz["qrid"]
        inside = [c for c in cells if (c == "" if qrid is None else c and qrid.startswith(c))]
        assert len(inside) == 1, f"{state.id} at {qrid} is in the cells {inside}"
        found[inside[0]] += 1
    assert cells == found
    return cells


class TestPartitioning:
    async def test_an_empty_collection_has_no_features_in_any_cell(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        assert sum((await counted(handle)).values()) == 0

    async def test_features_without_geometry_are_counted_under_the_empty_key(
        self, storage: Storage
    ) -> None:
        handle = await new_collection(storage)
        await handle.create(feature("nowhere"), feature("gone"), point("here", 8.5, 50.0))
        cells = await counted(handle)
        assert cells[""] == 2
        assert sum(cells.values()) == 3

    async def test_a_cell_with_too_many_features_is_cut(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        spread = [point(f"s{n}", -170.0 + 26 * n, 80.0, text=BULKY) for n in range(13)]
        await handle.create(*spread)
        cells = await counted(handle)
        assert max(cells.values()) <= 10
        assert sum(cells.values()) == 13

    async def test_stacked_points_stay_together_at_the_greatest_depth(
        self, storage: Storage
    ) -> None:
        handle = await new_collection(storage)
        await handle.create(*(point(f"p{n}", 8.5, 50.0, text=BULKY) for n in range(12)))
        cells = {key: count for key, count in (await counted(handle)).items() if count}
        ((key, count),) = cells.items()
        assert (len(key), count) == (QRID_DIGITS, 12)

    async def test_cells_have_room_for_the_largest_feature(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("a", -170.0, 80.0), point("b", 170.0, 80.0, text=BULKY))
        size = await storage.feature_size(handle.name)
        assert len(BULKY) < size < len(BULKY) + 2_000

    async def test_it_follows_what_is_written(self, storage: Storage) -> None:
        handle = await new_collection(storage)
        await handle.create(point("a", 8.5, 50.0), point("b", -100.0, -40.0))
        before = await counted(handle)
        await handle.delete("b")
        await handle.update(point("a", -100.0, -40.0))
        await handle.published()
        after = await counted(handle)
        assert sum(before.values()) == 2
        assert sum(after.values()) == 1


class TestKeptPartitioning:
    async def test_a_stored_partitioning_is_kept_until_the_next_write(
        self, storage: Storage
    ) -> None:
        handle = await new_collection(storage)
        await handle.create(point("a", 8.5, 50.0))
        first = await handle.published()
        await handle.create(point("b", 9.5, 50.0))
        second = await handle.published()
        for version, cells in ((second, {"12": 2}), (first, {"1": 1})):
            found = Partitioning.of(cells, version, 1_000, 100)
            await storage.store_partitioning(handle.name, found)
            assert await storage.partitioning(handle.name) == {"12": 2}
        await handle.delete("b")
        await handle.published()
        assert await counted(handle) == {"1": 1}
