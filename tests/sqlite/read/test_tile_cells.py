"""Tile cells in a file: from the shell, folded, and read without waiting for a thread."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.model.geo.tile_cells import WORLD_CELL, CellLookUp, cover
from naksha.model.limits import TILE_CELLS_MAX
from naksha.model.query import Bbox
from naksha.model.version import Version
from naksha.sqlite import SqliteStorage
from naksha.sqlite.maintenance import cells as folding
from naksha.sqlite.read import layered_storage
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import DAY_MS, Handle, feature, point
from naksha.testing.storage.versions.tile_cell_case import (
    EVERYWHERE,
    around,
    cells_at,
    changed_cells,
    edges_of,
    last_change,
    settled_log,
)
from tests.sqlite.support import rows, shell

HERE, THERE = (8.5, 50.25), (-100.0, -20.0)


@pytest.fixture
def roads(storage: SqliteStorage) -> Handle:
    return Handle(storage, "roads")


def geojson(*position: float) -> str:
    return msgspec.json.encode({"type": "Point", "coordinates": position}).decode()


def insert(name: str, *geometries: dict[str, Any] | None) -> str:
    """Return one statement that inserts features."""
    values = [
        f"('{name}', 'k{n}', {'NULL' if g is None else repr(msgspec.json.encode(g).decode())})"
        for n, g in enumerate(geometries)
    ]
    return f"INSERT INTO feature (collection, id, geometry) VALUES {', '.join(values)}"


class TestPlainSql:
    async def test_each_statement(self, roads: Handle, path: Path) -> None:
        steps = [
            (insert("roads", {"type": "Point", "coordinates": HERE}, None), cells_at(HERE)),
            (
                f"UPDATE feature SET geometry = '{geojson(*THERE)}' WHERE id = 'k0'",
                cells_at(HERE, THERE),
            ),
            ("UPDATE feature SET properties = '{\"n\": 1}'", cells_at(THERE)),
            (f"UPDATE roads SET geometry = '{geojson(*HERE, 7)}' WHERE id = 'k1'", cells_at(HERE)),
            ("UPDATE feature SET geometry = NULL WHERE id = 'k1'", cells_at(HERE)),
            ("DELETE FROM feature WHERE id = 'k1'", set()),
            ("DELETE FROM roads", cells_at(THERE)),
            (insert("roads", {"type": "Point", "coordinates": (1, 1)}), cells_at((1, 1))),
        ]
        for statement, cells in steps:
            before = await roads.published()
            assert (await settled_log(roads.storage, before)).changes == []
            shell(path, statement)
            log = await roads.storage.cell_log(before.txn)
            assert (log.is_settled, log.seq_number) == (True, before.seq_number + 1)
            assert await changed_cells(roads, before) == cells
            if cells:
                assert await last_change(roads, EVERYWHERE) == log.txn

    async def test_boxes_are_covered_as_by_the_library(self, roads: Handle, path: Path) -> None:
        random_ = random.Random(1)
        edges = [-180, 180, -90, 90, 0, 45, 8.4375, -78.75, 8.43749999999, 0.087890625]
        shapes = []
        for _ in range(120):
            lon, lat = random_.uniform(-180, 180), random_.uniform(-90, 90)
            if random_.random() < 0.4:
                lon, lat = random_.choice(edges), max(-90, min(90, random_.choice(edges)))
            size = random_.choice((0, 0.01, 0.3, 5, 100))
            line = [[lon, lat], [max(-180, lon - size), min(90, lat + size * random_.random())]]
            shapes.append({"type": "LineString", "coordinates": line})
        statements = [
            insert("roads", shape).replace("'k0'", f"'x{n}'") for n, shape in enumerate(shapes)
        ]
        before = await roads.published()
        shell(path, *statements)
        log = await settled_log(roads.storage, before)
        assert log.changes is not None
        found = [{*change.cells} for change in log.changes]
        assert found == [cover(*edges_of(shape)) for shape in shapes]

    async def test_a_large_statement_is_recorded_by_larger_cells(
        self, roads: Handle, path: Path
    ) -> None:
        random_ = random.Random(2)
        spread = [(random_.uniform(-180, 180), random_.uniform(0, 90)) for _ in range(700)]
        before = await roads.published()
        points = [{"type": "Point", "coordinates": each} for each in spread]
        shell(path, insert("roads", *points))
        cells = await changed_cells(roads, before)
        assert 1 < len(cells) <= TILE_CELLS_MAX
        assert all(CellLookUp(around(*each)).meets(cells) for each in spread)
        assert not CellLookUp(Bbox(-170, -80, 170, -10)).meets(cells)


class TestFolding:
    async def test_look_ups_fold_a_long_log(
        self, roads: Handle, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(layered_storage, "UNFOLDED_MAX", 3)
        txns = []
        for n in range(5):
            await roads.create(point(f"k{n}", 10 * n, 10))
            txns.append((await roads.published()).txn)
        assert await last_change(roads, around(40, 10)) == txns[4]
        assert rows(path, "SELECT cells_txn FROM naksha_storage") == [(0,)]
        assert await last_change(roads, around(0, 10)) == txns[0]
        assert rows(path, "SELECT cells_txn FROM naksha_storage") == [(txns[4],)]
        for n, txn in enumerate(txns):
            assert await last_change(roads, around(10 * n, 10)) == txn
        assert await last_change(roads, Bbox(15, 0, 35, 20)) == txns[3]
        assert await last_change(roads, around(-10, 10)) < txns[0]

    async def test_it_is_the_same_in_steps(
        self, roads: Handle, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cell keeps its last transaction, and the last one inside of it."""
        branch = await branch_of(roads.storage)
        for n in range(4):
            await roads.upsert(point("x", n, n), feature("wide", _line(20 * n)))
            await branch.on(roads).upsert(point("x", n, -n))
        boxes = [around(n, m) for n in range(4) for m in (n, -n)] + [EVERYWHERE, around(33, 1)]
        views = [(overlay, box) for overlay in (0, branch.overlay) for box in boxes]
        before = [await last_change(roads, box, overlay) for overlay, box in views]
        monkeypatch.setattr(folding, "_STEP_LENGTH", 0)
        await roads.storage.maintain()
        last = (await roads.published()).txn
        assert rows(path, "SELECT cells_txn FROM naksha_storage") == [(last,)]
        assert [await last_change(roads, box, overlay) for overlay, box in views] == before
        assert (await settled_log(roads.storage, await roads.published())).changes == []

    async def test_the_log_expires_as_far_as_it_is_folded(
        self, roads: Handle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await roads.create(point("x", *HERE))
        txn = (await roads.published()).txn
        await roads.update(point("x", *THERE))
        await roads.storage.keep_log(0)
        later = _later(await roads.published())
        with monkeypatch.context() as patched:
            patched.setattr(folding, "fold", lambda _: 0)
            await roads.storage.maintain(later)
        assert (await roads.storage.transaction(txn)).txn == txn
        found = await last_change(roads, around(*HERE))
        await roads.storage.maintain(later)
        assert (await roads.storage.cell_log(txn)).changes is None
        assert await last_change(roads, around(*HERE)) == found > txn

    async def test_cells_of_what_is_gone_are_removed(self, roads: Handle, path: Path) -> None:
        branch = await branch_of(roads.storage)
        await roads.create(point("x", *HERE))
        await branch.on(roads).create(point("y", *HERE))
        await roads.storage.maintain()
        overlays = "SELECT DISTINCT collection, overlay FROM naksha_cell ORDER BY 1, 2"
        assert rows(path, overlays) == [("places", 0), ("roads", 0), ("roads", branch.overlay)]
        await roads.write(lambda s: s.drop_overlay(branch.overlay))
        await roads.write(lambda s: s.drop_collection("places", 1))
        await roads.storage.maintain()
        assert rows(path, overlays) == [("roads", 0)]


class TestReading:
    async def test_nothing_new_is_noticed_without_reading(
        self, roads: Handle, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = roads.storage
        await roads.create(point("x", *HERE))
        last = await roads.published()
        first = await settled_log(storage, last)

        async def refuse(_: object, __: object) -> None:
            raise AssertionError("read")

        with monkeypatch.context() as patched:
            patched.setattr(layered_storage.LayeredStorage, "_read", refuse)
            assert await storage.cell_log(last.txn) == first
            shell(path, "DELETE FROM feature")
            with pytest.raises(AssertionError, match="read"):
                await storage.cell_log(last.txn)
        assert await changed_cells(roads, last) == cells_at(HERE)

    async def test_a_storage_opened_read_only(self, roads: Handle, path: Path) -> None:
        before = await roads.published()
        await roads.create(point("x", *HERE))
        await roads.published()
        reader = await SqliteStorage.open(path, read_only=True)
        try:
            there = Handle(reader, "roads")
            assert await changed_cells(there, before) == cells_at(HERE)
            await roads.update(point("x", *THERE))
            assert await changed_cells(there, before) == cells_at(HERE, THERE)
            assert await last_change(there, around(*THERE)) == (await roads.published()).txn
        finally:
            await reader.close()

    async def test_transactions_before_the_log_had_cells_are_everywhere(
        self, roads: Handle, path: Path
    ) -> None:
        before = await roads.published()
        await roads.create(point("x", *HERE))
        last = await roads.published()
        shell(
            path,
            "UPDATE naksha_shell SET managed = 1",
            "UPDATE naksha_tx SET cells = NULL",
            "UPDATE naksha_shell SET managed = 0",
        )
        assert await changed_cells(roads, before) == {WORLD_CELL}
        assert await last_change(roads, around(*THERE)) == last.txn
        await roads.storage.maintain()
        assert await last_change(roads, around(*THERE)) == last.txn


def _line(lon: float) -> dict[str, Any]:
    return {"type": "LineString", "coordinates": [[lon, 0], [lon + 19, 5]]}


def _later(version: Version) -> int:
    return version.published_ms + 100 * DAY_MS
