"""Conformance: the tile cells that transactions on branches changed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from naksha.model.query import Bbox
from naksha.model.transaction import MAIN
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import APP, Handle, feature, new_collection, point
from naksha.testing.storage.versions.tile_cell_case import (
    EVERYWHERE,
    around,
    cells_at,
    changed_cells,
    last_change,
    settled_log,
)
from naksha.versioning import Attribution, create_branch, line_of, merge

HERE, THERE, ELSEWHERE = (8.5, 50.25), (-100.0, -20.0), (100.0, -60.0)
ME = Attribution("me")


async def main_of(storage: Storage) -> Handle:
    """Return a collection with `a`, `b` and `c` in one place and a deleted one."""
    handle = await new_collection(storage)
    await handle.create(*(point(key, *HERE, n=1) for key in ("a", "b", "c", "dead")))
    await handle.delete("dead")
    return handle


class TestTileCellsOfBranches:
    async def test_writes_on_a_branch(self, storage: Storage) -> None:
        """The first write to a feature finds its old geometry in a lower layer."""
        main = await main_of(storage)
        branch = await branch_of(storage)
        there, overlay = branch.on(main), branch.overlay
        assert await last_change(main, EVERYWHERE, overlay) == 0
        steps: list[tuple[Callable[[], Awaitable[object]], set[int]]] = [
            (lambda: there.update(point("a", *THERE)), cells_at(HERE, THERE)),
            (lambda: there.delete("b"), cells_at(HERE)),
            (lambda: there.restore("dead"), cells_at(HERE)),
            (lambda: there.create(point("new", *ELSEWHERE)), cells_at(ELSEWHERE)),
            (lambda: there.create(point("b", 1, 1)), cells_at((1, 1))),
            (lambda: there.update(feature("c")), cells_at(HERE)),
            (lambda: there.update(point("a", 2, 2)), cells_at(THERE, (2, 2))),
        ]
        for step, cells in steps:
            before = await main.published()
            await step()
            assert await changed_cells(main, before, overlay) == cells
            assert await changed_cells(main, before, MAIN) == set()
        assert await last_change(main, around(2, 2), overlay) == (await main.published()).txn

    async def test_main_and_branches_do_not_change_each_other(self, storage: Storage) -> None:
        main = await main_of(storage)
        one, two = await branch_of(storage), await branch_of(storage)
        base = await main.published()
        await one.on(main).update(point("a", *THERE))
        first = await main.published()
        await main.update(point("a", *ELSEWHERE))
        second = await main.published()
        await two.on(main).delete("a")
        third = await main.published()
        assert await changed_cells(main, base) == cells_at(HERE, ELSEWHERE)
        assert await changed_cells(main, base, one.overlay) == cells_at(HERE, THERE)
        assert await changed_cells(main, base, two.overlay) == cells_at(HERE)
        for overlay, box, txn in (
            (MAIN, around(*HERE), second.txn),
            (MAIN, around(*THERE), None),
            (one.overlay, EVERYWHERE, first.txn),
            (one.overlay, around(*ELSEWHERE), 0),
            (two.overlay, around(*HERE), third.txn),
            (two.overlay, around(*THERE), 0),
        ):
            found = await last_change(main, box, overlay)
            assert found == txn or (txn is None and found <= base.txn)

    async def test_the_view_of_a_branch_knows_the_same(self, storage: Storage) -> None:
        main = await main_of(storage)
        branch = await branch_of(storage)
        there, before = branch.on(main), await main.published()
        await there.update(point("a", *THERE))
        await main.update(point("b", *ELSEWHERE))
        log = await settled_log(storage, before)
        assert log.changes is not None
        assert [change.overlay for change in log.changes] == [branch.overlay, MAIN]
        assert await settled_log(there.storage, before) == log
        for overlay in (MAIN, branch.overlay):
            for box in (around(*THERE), around(*ELSEWHERE)):
                found = await last_change(there, box, overlay)
                assert found == await last_change(main, box, overlay)

    async def test_a_branch_of_a_branch(self, storage: Storage) -> None:
        main = await main_of(storage)
        one = await branch_of(storage)
        await one.on(main).update(point("a", *THERE))
        two = await one.branch()
        before = await main.published()
        await two.on(main).update(point("a", *ELSEWHERE), point("b", 1, 1))
        assert await changed_cells(main, before, two.overlay) == cells_at(
            HERE, THERE, ELSEWHERE, (1, 1)
        )
        assert await changed_cells(main, before, one.overlay) == set()
        before = await main.published()
        await two.on(main).delete("a", "c")
        assert await changed_cells(main, before, two.overlay) == cells_at(HERE, ELSEWHERE)

    async def test_a_merge_into_main(self, storage: Storage) -> None:
        main = await main_of(storage)
        scope_name = f"fix-{main.name}"
        await create_branch(storage, scope_name, ME)
        line = await line_of(storage, scope_name)
        there = Handle(line.storage, main.name)
        await there.update(point("a", *THERE))
        await there.delete("b")
        before = await main.published()
        await merge(storage, scope_name, "main", ME)
        assert await changed_cells(main, before) == cells_at(HERE, THERE)
        assert await last_change(main, around(*THERE)) == (await main.published()).txn

    async def test_large_writes(self, storage: Storage) -> None:
        random_ = random.Random(3)
        main = await new_collection(storage)
        places = [(random_.uniform(-170, -50), random_.uniform(-80, 80)) for _ in range(1_200)]
        await main.create(*(point(f"k{n}", *each) for n, each in enumerate(places)))
        branch = await branch_of(storage)
        there = branch.on(main)
        await there.update(*(point(f"k{n}", -lon, lat) for n, (lon, lat) in enumerate(places)))
        txn = (await main.published()).txn
        for lon, lat in places[:20]:
            assert await last_change(main, around(lon, lat), branch.overlay) == txn
            assert await last_change(main, around(-lon, lat), branch.overlay) == txn
        assert await last_change(main, Bbox(-1, 10, 1, 12), branch.overlay) == 0

    async def test_a_session_that_branches_off(self, storage: Storage) -> None:
        main = await main_of(storage)
        before = await main.published()
        branch = await branch_of(storage)

        async def work(session: WriteSession) -> int:
            overlay = await session.branch_off(branch.layers[1:])
            await session.update(main.name, [point("a", *THERE)])
            return overlay

        overlay = await storage.run(work, APP)
        assert await changed_cells(main, before, overlay) == cells_at(HERE, THERE)
        assert await changed_cells(main, before) == set()

    async def test_cells_are_known_after_maintenance(self, storage: Storage) -> None:
        main = await main_of(storage)
        one = await branch_of(storage)
        kept = await branch_of(storage)
        await one.on(main).update(point("a", *THERE))
        await kept.on(main).update(point("a", *ELSEWHERE))
        txn = (await main.published()).txn
        await storage.maintain()
        await storage.run(lambda s: s.drop_overlay(one.overlay), APP)
        await storage.maintain()
        assert await last_change(main, around(*ELSEWHERE), kept.overlay) == txn
        assert await last_change(main, around(*THERE), kept.overlay) == 0
