"""Conformance: the tile cells that each transaction changed, on main."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest

from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.geo.tile_cells import cover
from naksha.model.limits import TILE_CELLS_MAX
from naksha.model.query import Bbox
from naksha.spi.staging import WriteMode
from naksha.spi.storage import Storage, WriteSession
from naksha.spi.tile_cells import CellChange
from naksha.testing.storage.bulk.suite_staging import written
from naksha.testing.storage.suite_support import (
    APP,
    DAY_MS,
    Handle,
    feature,
    fresh_name,
    new_collection,
    point,
    published,
    rolled_back,
    with_xyz,
)
from naksha.testing.storage.versions.suite_retention import LoggedDays
from naksha.testing.storage.versions.suite_time import ms
from naksha.testing.storage.versions.tile_cell_case import (
    EVERYWHERE,
    WORLD,
    around,
    cells_at,
    changed_cells,
    do_meet,
    edges_of,
    last_change,
    settled_log,
)
from naksha.versioning import Attribution, line_of, place_of, revert, rollback

HERE, THERE, ELSEWHERE = (8.5, 50.25), (-100.0, -20.0), (100.0, -60.0)
ME = Attribution("me")
SHAPES: list[dict[str, Any]] = [
    {"type": "LineString", "coordinates": [[8.5, 50.25], [8.6, 50.2]]},
    {"type": "LineString", "coordinates": [[-170, 60], [-100, 5], [20.5, 61.25]]},
    {"type": "Polygon", "coordinates": [[[1, 1], [3, 1], [3, 2], [1, 1]]]},
    {"type": "Polygon", "coordinates": [[[-180, -90], [180, -90], [180, 90], [-180, -90]]]},
    {"type": "MultiPoint", "coordinates": [[-0.01, 0.01], [0.01, -0.01]]},
    {"type": "Point", "coordinates": [180, 90]},
    {"type": "Point", "coordinates": [-180, -90, 12.5]},
    {"type": "Point", "coordinates": [0, 0]},
    {"type": "Point", "coordinates": [-78.75, 11.25]},
]


class TestTileCellsOfWrites:
    async def test_creation(self, places: Handle) -> None:
        before = await places.published()
        await places.create(point("x", *HERE), point("y", *THERE))
        assert await changed_cells(places, before) == cells_at(HERE, THERE)
        txn = (await places.published()).txn
        assert await last_change(places, around(*HERE)) == txn
        assert await last_change(places, EVERYWHERE) == txn
        assert before.txn == await last_change(places, around(*ELSEWHERE))

    async def test_a_move_changes_the_old_and_the_new_place(self, places: Handle) -> None:
        await places.create(point("x", *HERE), point("y", *HERE))
        before = await places.published()
        await places.update(point("x", *THERE))
        assert await changed_cells(places, before) == cells_at(HERE, THERE)
        txn = (await places.published()).txn
        assert await last_change(places, around(*HERE)) == txn
        assert await last_change(places, around(*THERE)) == txn

    async def test_a_changed_property_or_tag_changes_the_place(self, places: Handle) -> None:
        await places.create(point("x", *HERE, n=1))
        for changed in (point("x", *HERE, n=2), with_xyz(point("x", *HERE, n=2), tags=["t"])):
            before = await places.published()
            await places.upsert(changed)
            assert await changed_cells(places, before) == cells_at(HERE)

    async def test_a_feature_dies_and_comes_back(self, places: Handle) -> None:
        await places.create(point("x", *HERE))
        steps: list[tuple[Callable[[], Awaitable[object]], set[int]]] = [
            (lambda: places.delete("x"), cells_at(HERE)),
            (lambda: places.restore("x"), cells_at(HERE)),
            (lambda: places.delete("x"), cells_at(HERE)),
            (lambda: places.create(point("x", *THERE)), cells_at(THERE)),
            (lambda: places.delete("x"), cells_at(THERE)),
            (lambda: places.purge("x"), set()),
            (lambda: places.create(point("x", *ELSEWHERE)), cells_at(ELSEWHERE)),
        ]
        for step, cells in steps:
            before = await places.published()
            await step()
            assert await changed_cells(places, before) == cells

    async def test_writes_that_change_no_tile_record_no_cell(self, places: Handle) -> None:
        storage = places.storage
        await places.create(point("x", *HERE, n=1), feature("flat", n=1), point("dead", *HERE))
        await places.delete("dead")
        before = await places.published()
        await places.update(point("x", *HERE, n=1))
        await places.delete("absent")
        await places.purge("dead")
        await places.update(feature("flat", n=2))
        await places.delete("flat")
        await places.restore("flat")
        await storage.run(lambda s: s.message("m", "hello"), APP)
        await storage.pin("tile cells", before)
        await storage.unpin("tile cells")
        await rolled_back(storage, lambda s: s.create(places.name, [point("y", *THERE)]))
        assert (await settled_log(storage, before)).changes == []
        assert (await places.published()).txn > before.txn
        assert await last_change(places, EVERYWHERE) <= before.txn

    async def test_a_geometry_comes_and_goes(self, places: Handle) -> None:
        await places.create(feature("x"))
        for made, cells in (
            (point("x", *HERE), cells_at(HERE)),
            (feature("x"), cells_at(HERE)),
            (point("x", *THERE), cells_at(THERE)),
        ):
            before = await places.published()
            await places.update(made)
            assert await changed_cells(places, before) == cells

    @pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["coordinates"])[:20])
    async def test_a_shape_is_recorded_by_the_cover_of_its_box(
        self, places: Handle, shape: dict[str, Any]
    ) -> None:
        before = await places.published()
        await places.create(feature("x", shape))
        cells = cover(*edges_of(shape))
        assert await changed_cells(places, before) == cells
        before = await places.published()
        await places.update(point("x", *HERE))
        assert await changed_cells(places, before) == cells | cells_at(HERE)

    async def test_several_writes_in_one_transaction(self, places: Handle) -> None:
        other = await new_collection(places.storage)
        await places.create(point("moves", *HERE), point("dies", 1, 1), point("comes back", 2, 2))
        await places.delete("comes back")
        before = await places.published()
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("new", 10, 10), point("short", 11, 11)])
            await session.update(places.name, [point("moves", 12, 12)])
            await session.update(places.name, [point("moves", *THERE)])
            await session.delete(places.name, ["dies", "short"])
            await session.restore(places.name, ["comes back"])
            await session.create(other.name, [point("x", *ELSEWHERE)])
        cells = await changed_cells(places, before)
        assert cells >= cells_at(HERE, THERE, (1, 1), (2, 2), (10, 10))
        assert cells <= cells_at(
            HERE, THERE, (1, 1), (2, 2), (10, 10), (11, 11), (12, 12)
        )  # What was never visible may be recorded.
        assert await changed_cells(other, before) == cells_at(ELSEWHERE)

    async def test_without_history(self, storage: Storage) -> None:
        handle = await new_collection(storage, history_enabled=False)
        await handle.create(point("x", *HERE))
        before = await handle.published()
        await handle.update(point("x", *THERE))
        assert await changed_cells(handle, before) == cells_at(HERE, THERE)
        before = await handle.published()
        await handle.delete("x")
        assert await changed_cells(handle, before) == cells_at(THERE)

    async def test_many_places_are_recorded_by_larger_cells(self, places: Handle) -> None:
        random_ = random.Random(7)
        spread = [(random_.uniform(-180, 180), random_.uniform(0, 90)) for _ in range(1_500)]
        await places.create(point("south", *ELSEWHERE))
        before = await places.published()
        await places.create(*(point(f"k{n}", *each) for n, each in enumerate(spread)))
        cells = await changed_cells(places, before)
        assert len(cells) <= TILE_CELLS_MAX
        assert all(do_meet(cells, around(*each)) for each in spread)
        txn = (await places.published()).txn
        for each in spread[:20]:
            assert await last_change(places, around(*each)) == txn
        assert await last_change(places, Bbox(-180, -90, 180, -1)) == before.txn

    async def test_many_places_in_one_area_are_recorded_there(self, places: Handle) -> None:
        before = await places.published()
        grid = [(8 + k % 40 / 10, 50 + k // 40 / 10) for k in range(1_600)]
        features = [point(f"k{n}", *each) for n, each in enumerate(grid)]
        moved = [point(f"k{n}", lon + 0.05, lat) for n, (lon, lat) in enumerate(grid)]
        for write in (
            places.create(*features),
            places.update(*moved),
            places.delete(*(f"k{n}" for n in range(len(grid)))),
        ):
            middle = await places.published()
            await write
            cells = await changed_cells(places, middle)
            assert len(cells) <= TILE_CELLS_MAX
            assert all(do_meet(cells, around(*each)) for each in grid)
            txn = (await places.published()).txn
            assert await last_change(places, around(11.9, 53.9)) == txn
        assert await last_change(places, Bbox(8, 40, 12, 49)) == before.txn
        assert await last_change(places, around(14, 52)) == before.txn

    @pytest.mark.parametrize("partitions", [1, 16])
    async def test_a_bulk_load(self, places: Handle, partitions: int) -> None:
        """Into a collection of its tables, or into new ones that replace them."""
        change = CollectionChange(partitions=partitions)
        await places.storage.run(lambda s: s.change_collection(places.name, change), APP)
        before = await places.published()
        features = [point(f"k{n}", n / 100, 10) for n in range(300)]
        info = await places.storage.collection(places.name)
        txn = (await written(places.storage, info, [*features, feature("flat")])).txn
        cells = await changed_cells(places, before)
        assert cells == cells_at(*((n / 100, 10) for n in range(300)))
        assert await last_change(places, around(2.5, 10)) == txn
        assert await last_change(places, around(*HERE)) == before.txn

    @pytest.mark.parametrize("partitions", [1, 16])
    async def test_a_bulk_load_of_a_new_collection(self, storage: Storage, partitions: int) -> None:
        info = CollectionInfo(id=fresh_name("bulk"), partitions=partitions)
        txn = (await written(storage, info, [point("x", *HERE)])).txn
        assert txn is not None
        assert await storage.wait_published(txn) is not None
        assert await last_change(Handle(storage, info.id), around(*THERE)) == txn

    async def test_staged_writes(self, places: Handle) -> None:
        await places.create(point("x", *HERE), point("y", *HERE), point("z", 1, 1))
        steps = [
            (WriteMode.UPSERT, [point("x", *THERE), point("new", 2, 2)], (HERE, THERE, (2, 2))),
            (WriteMode.MIRROR, [point("x", 3, 3), point("z", 1, 1)], (THERE, HERE, (3, 3), (2, 2))),
        ]
        for mode, features, where in steps:
            before = await places.published()
            await written(places.storage, places.name, features, mode)
            assert await changed_cells(places, before) == cells_at(*where)


class TestTileCellsOfVersions:
    async def test_rollback_and_revert(self, places: Handle) -> None:
        storage = places.storage
        await places.create(point("x", *HERE), point("gone", 1, 1), point("quiet", 2, 2))
        first = await places.published()
        await places.update(point("x", *THERE))
        moved = await places.published()
        await places.delete("gone")
        await places.create(point("new", *ELSEWHERE))
        before = await places.published()
        main = await line_of(storage, "main")
        await revert(main, await place_of(storage, str(moved.seq_number)), ME)
        assert await changed_cells(places, before) == cells_at(HERE, THERE)
        before = await places.published()
        await rollback(
            main, await place_of(storage, str(first.seq_number)), ME, collections=[places.name]
        )
        assert await changed_cells(places, before) == cells_at((1, 1), ELSEWHERE)

    async def test_an_imported_history(self, empty_storage: Storage) -> None:
        async def first(session: WriteSession) -> None:
            await session.create_collection(CollectionInfo(id="old"))
            await session.create("old", [point("x", *HERE)])

        await empty_storage.run(first, "import", at_ms=ms(date(2001, 2, 3)))
        handle = Handle(empty_storage, "old")
        before = await handle.published()
        await empty_storage.run(
            lambda s: s.update("old", [point("x", *THERE)]), "import", at_ms=ms(date(2001, 3, 4))
        )
        assert await changed_cells(handle, before) == cells_at(HERE, THERE)
        assert await last_change(handle, around(*ELSEWHERE)) == before.txn

    async def test_a_change_of_the_collection_is_everywhere(self, storage: Storage) -> None:
        before = await published(storage)
        handle = await new_collection(storage)

        def keep(name: str) -> Callable[[WriteSession], Awaitable[object]]:
            change = CollectionChange(author="owner")
            steps: dict[str, Callable[[WriteSession], Awaitable[object]]] = {
                "change": lambda s: s.change_collection(handle.name, change),
                "drop": lambda s: s.drop_collection(handle.name, 2**60),
                "restore": lambda s: s.restore_collection(handle.name),
            }
            return steps[name]

        assert await changed_cells(handle, before) == WORLD
        for name in ("change", "drop", "restore"):
            before = await published(storage)
            await storage.run(keep(name), APP)
            assert await changed_cells(handle, before) == WORLD
            assert await last_change(handle, around(*HERE)) == (await published(storage)).txn

    async def test_a_removed_collection_comes_back(self, empty_storage: Storage) -> None:
        handle = await new_collection(empty_storage)
        await handle.create(point("x", *HERE))
        await empty_storage.run(lambda s: s.drop_collection(handle.name, 1), APP)
        dropped = await handle.published()
        assert await last_change(handle, around(*HERE)) == dropped.txn
        await empty_storage.maintain()
        info = CollectionInfo(id=handle.name)
        await empty_storage.run(lambda s: s.create_collection(info), APP)
        again = await handle.published()
        assert again.txn > dropped.txn
        for box in (around(*HERE), EVERYWHERE):
            assert await last_change(handle, box) == again.txn

    async def test_an_unknown_collection_never_changed(self, empty_storage: Storage) -> None:
        log = await empty_storage.cell_log(0)
        assert (log.seq_number, log.txn, log.is_settled, log.changes) == (0, 0, True, [])
        await new_collection(empty_storage)
        assert await empty_storage.last_cell_change("unknown", EVERYWHERE) == 0
        assert await empty_storage.last_cell_change("unknown", EVERYWHERE, overlay=7) == 0


class TestCellLog:
    async def test_nothing_new(self, places: Handle) -> None:
        await places.create(point("x", *HERE))
        last = await places.published()
        for _ in range(2):
            log = await places.storage.cell_log(last.txn)
            assert (log.seq_number, log.txn) == (last.seq_number, last.txn)
            assert (log.is_settled, log.changes) == (True, [])
        await places.delete("x")
        assert await changed_cells(places, last) == cells_at(HERE)

    async def test_it_sees_what_another_instance_wrote(
        self, places: Handle, make_storage: Callable[..., Awaitable[Storage]]
    ) -> None:
        second = await make_storage(beside=places.storage)
        there = Handle(second, places.name)
        for n in range(3):
            before = await published(second)
            assert (await settled_log(second, before)).changes == []
            await places.upsert(point("x", n, n))
            new = {(n, n), (max(n - 1, 0), max(n - 1, 0))}
            assert await changed_cells(there, before) == cells_at(*new)
            assert await last_change(there, around(n, n)) > before.txn

    async def test_changes_come_in_the_order_of_transactions(self, places: Handle) -> None:
        before = await places.published()
        for n in range(5):
            await places.create(point(f"k{n}", n, n))
        log = await settled_log(places.storage, before)
        assert log.changes is not None
        assert [{*change.cells} for change in log.changes] == [cells_at((n, n)) for n in range(5)]
        assert [change.txn for change in log.changes] == sorted(c.txn for c in log.changes)
        assert {(change.collection, change.overlay) for change in log.changes} == {(places.name, 0)}
        rest = await places.storage.cell_log(log.changes[2].txn)
        assert rest.changes == log.changes[3:]

    async def test_a_reader_that_polls_gets_each_change_once(self, storage: Storage) -> None:
        handles = [await new_collection(storage) for _ in range(4)]
        start = await published(storage)
        polled: list[CellChange] = []
        after = start.txn

        async def write(number: int) -> None:
            for n in range(12):
                await handles[(number + n) % 4].upsert(point(f"k{number}", n, number))

        async def poll() -> None:
            nonlocal after
            log = await storage.cell_log(after)
            assert log.changes is not None
            assert all(after < change.txn <= log.txn for change in log.changes)
            polled.extend(log.changes)
            after = log.txn

        writers = asyncio.gather(*(write(number) for number in range(6)))
        while not writers.done():
            await poll()
            await asyncio.sleep(0)
        await writers
        await published(storage)
        await poll()
        whole = (await settled_log(storage, start)).changes
        assert whole is not None
        assert len(whole) == 72
        assert polled == whole

    async def test_a_write_that_is_held_back_is_not_settled(self, storage: Storage) -> None:
        start = await published(storage)
        one, two = await new_collection(storage), await new_collection(storage)
        before = await published(storage)
        async with storage.write(APP) as session:
            await session.create(one.name, [point("x", *HERE)])
            await two.create(point("y", *THERE))
            later = (await two.get("y")).txn
            if session.txn is not None and later > session.txn:
                log = await storage.cell_log(before.txn)
                assert (log.seq_number, log.txn) == (before.seq_number, before.txn)
                assert (log.is_settled, log.changes) == (False, [])
                (pending,) = log.pending or []
                assert (pending.txn, pending.collection) == (later, two.name)
                assert {*pending.cells} == cells_at(THERE)
                earlier = (await storage.cell_log(start.txn)).changes or []
                assert [change.txn for change in earlier][-1] == before.txn
                assert await last_change(two, around(*THERE)) == before.txn
        assert await changed_cells(one, before) == cells_at(HERE)
        assert await changed_cells(two, before) == cells_at(THERE)

    async def test_too_many_changes_are_none(
        self, places: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "TILE_CELL_CHANGES_MAX", 3)
        before = await places.published()
        for n in range(3):
            await places.create(point(f"k{n}", n, n))
        assert len((await settled_log(places.storage, before)).changes or []) == 3
        await places.create(point("k3", 3, 3))
        assert (await settled_log(places.storage, before)).changes is None
        last = await places.published()
        assert (await settled_log(places.storage, last)).changes == []

    async def test_changes_are_known_after_the_log_expired(self, logged: LoggedDays) -> None:
        storage, handle = logged.storage, logged.handle
        await handle.create(point("old", *THERE))
        moved = (await handle.published()).txn
        for _ in range(3):
            logged.clock.time_ms += 5 * DAY_MS
            await logged.write()
        last = logged.versions[-1]
        await storage.keep_log(2)
        await storage.maintain(logged.clock.time_ms)
        assert moved not in await logged.kept()
        assert (await storage.cell_log(0)).changes is None
        assert (await storage.cell_log(moved - 1)).changes is None
        assert (await storage.cell_log(last.txn)).changes == []
        assert await last_change(handle, around(*THERE)) == moved
        assert await last_change(handle, around(8.5, 50.25)) == last.txn
        assert await last_change(handle, EVERYWHERE) == last.txn
        created = await last_change(handle, around(*ELSEWHERE))
        assert 0 < created < logged.versions[0].txn
        await handle.update(point("old", *ELSEWHERE))
        txn = (await handle.published()).txn
        assert await last_change(handle, around(*THERE)) == txn
        assert await last_change(handle, around(*ELSEWHERE)) == txn
