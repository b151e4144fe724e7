"""Conformance: the last changes of tile cells after random edits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from naksha.model.geo.tile_cells import cover
from naksha.model.query import Bbox
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.branch_case import SEEDS
from naksha.testing.storage.suite_support import APP, Handle, feature, new_collection
from naksha.testing.storage.versions.tile_cell_case import (
    Edges,
    boxes_meet,
    do_meet,
    edges_of,
    last_change,
)


class TestRandomCellChanges:
    @pytest.mark.parametrize("seed", SEEDS)
    async def test_the_last_change_of_a_box(self, storage: Storage, seed: int) -> None:
        """It is that of the last change that meets the box, or of one in the same cells."""
        random_ = random.Random(seed)
        handle = await new_collection(storage)
        edits = _Edits(handle, random_, (await handle.published()).txn)
        for step in range(60):
            await edits.write()
            if step == 40:
                await storage.maintain()
            if step % 6 == 5:
                await handle.published()
                for _ in range(25):
                    await edits.check(_box(random_))


class _Edits:
    """Random writes to one collection, and the boxes that each transaction changed."""

    def __init__(self, handle: Handle, random_: random.Random, created: int) -> None:
        self._handle = handle
        self._random = random_
        self._live: dict[str, Edges] = {}
        self._dead: dict[str, Edges] = {}
        # Of each transaction, boxes that must and boxes that may be recorded.
        world = [(-180.0, -90.0, 180.0, 90.0)]
        self._changed: list[tuple[int, list[Edges], list[Edges]]] = [(created, world, world)]

    async def write(self) -> None:
        """Write one transaction of up to four steps."""
        before, keys, touched = dict(self._live), set[str](), list[Edges]()
        async with self._handle.storage.write(APP) as session:
            for _ in range(self._random.randint(1, 4)):
                for key in await self._step(session):
                    keys.add(key)
                    touched += _present(before.get(key), self._live.get(key), self._dead.get(key))
            if session.txn is not None:
                seen = [e for key in keys for e in _present(before.get(key), self._live.get(key))]
                self._changed.append((session.txn, seen, touched))

    async def _step(self, session: WriteSession) -> list[str]:
        """Write to some features; return their ids."""
        kind, name = self._random.choice(("put", "put", "delete", "restore")), self._handle.name
        if kind == "delete" and self._live:
            key = self._random.choice(sorted(self._live))
            await session.delete(name, [key])
            self._dead[key] = self._live.pop(key)
            return [key]
        if kind == "restore" and self._dead:
            key = self._random.choice(sorted(self._dead))
            await session.restore(name, [key])
            self._live[key] = self._dead.pop(key)
            return [key]
        shapes = {f"k{self._random.randint(0, 30)}": _shape(self._random) for _ in range(3)}
        made = [feature(key, each, n=self._random.random()) for key, each in shapes.items()]
        await session.upsert(name, made)
        for key, each in shapes.items():
            self._dead.pop(key, None)
            self._live[key] = edges_of(each)
        return [*shapes]

    async def check(self, box: Bbox) -> None:
        """Compare the last change of a box with the model."""
        found = await last_change(self._handle, box)
        met = max(
            txn for txn, seen, _ in self._changed if any(boxes_meet(each, box) for each in seen)
        )
        near = max(
            txn
            for txn, _, touched in self._changed
            if any(do_meet(cover(*each), box) for each in touched)
        )
        assert met <= found <= near


def _present(*edges: Edges | None) -> list[Edges]:
    return [each for each in edges if each is not None]


def _shape(random_: random.Random) -> dict[str, Any]:
    """Return a point or a line; most of them are near each other, and most lines short."""
    lon, lat = random_.gauss(8, 0.3), random_.gauss(50, 0.3)
    if random_.random() < 0.3:
        lon, lat = random_.uniform(-180, 180), random_.uniform(-90, 90)
    if random_.random() < 0.6:
        return {"type": "Point", "coordinates": [lon, lat]}
    length = random_.choice((0.01, 0.01, 0.1, 1, 30))
    end = [max(-180.0, lon - length), min(90.0, lat + length * random_.random())]
    return {"type": "LineString", "coordinates": [[lon, lat], end]}


def _box(random_: random.Random) -> Bbox:
    (west, south, _, _) = edges_of(_shape(random_))
    width = random_.choice((0.0, 0.001, 0.05, 0.7, 20, 200))
    return Bbox(west, south, min(180.0, west + width), min(90.0, south + width))
