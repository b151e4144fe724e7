"""Folding of tile cells: the same answers before and after, beside writers, before log expires."""

from __future__ import annotations

import asyncio
import random
from datetime import date, timedelta

import pytest

from naksha.model.geo.tile_cells import cover
from naksha.model.query import Bbox
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance import cells
from naksha.spi.tile_cells import CellChange
from naksha.testing.storage.suite_support import APP, Handle, new_collection, point, published
from tests.psql.aging import aging_storage
from tests.psql.read.branches import new_branch
from tests.psql.support import Connect, begin, by_force, insert, sign, until
from tests.psql.write.test_lock_counts import HELD, LOCKS_MAX

HERE, THERE = (8.5, 50.25), (-100.0, -20.0)
FIRST = date(2031, 3, 3)
UNFOLDED = "SELECT count(*) FROM naksha_version WHERE txn > naksha_folded_txn()"
CELLS = "SELECT count(*) FROM naksha_cell WHERE collection > 0"
CELL_LOG = "SELECT count(*) FROM naksha_cell_log($1, 1000, true)"
LAST_CHANGE = "SELECT last FROM naksha_last_cell_change('roads', 0, ARRAY[1])"


def around(lon: float, lat: float, by: float = 0.001) -> Bbox:
    return Bbox(lon - by, lat - by, lon + by, lat + by)


def some_box(chance: random.Random) -> Bbox:
    lon, lat = chance.gauss(8, 0.3), chance.gauss(50, 0.3)
    size = chance.choice((0.001, 0.05, 0.1, 0.7, 20))
    return Bbox(lon, lat, lon + size, lat + size)


async def write_some(storage: PsqlStorage, chance: random.Random, count: int) -> None:
    for n in range(count):
        places = [(chance.gauss(8, 0.3), chance.gauss(50, 0.3)) for _ in range(3)]
        features = [point(f"f{chance.randint(0, 20)}-{n % 3}", *each) for each in places]
        unique = {feature["id"]: feature for feature in features}
        await Handle(storage, "roads").upsert(*unique.values())


async def fold(shell: Direct, most: int = 500) -> int:
    folded: int = await shell.fetchval("SELECT naksha_fold_cells($1)", most)
    return folded


async def test_look_ups_are_the_same_before_and_after(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell, chance = await connect(), random.Random(11)
    branch = await new_branch(storage)
    for _ in range(3):
        await write_some(storage, chance, 15)
        await branch.storage.run(lambda s: s.upsert("roads", [point("b", *HERE)]), APP)
        await published(storage)
        boxes = [some_box(chance) for _ in range(40)]
        before = [await storage.last_cell_change("roads", box) for box in boxes]
        on_branch = await storage.last_cell_change("roads", around(*HERE), overlay=branch.overlay)
        assert len({*before}) > 5
        left = await shell.fetchval(UNFOLDED)
        while left:
            folded = await fold(shell, 5)
            assert folded == min(left, 5)
            left -= folded
            assert left == await shell.fetchval(UNFOLDED)
            assert [await storage.last_cell_change("roads", box) for box in boxes] == before
        assert await fold(shell, 5) == 0
        assert on_branch == await storage.last_cell_change(
            "roads", around(*HERE), overlay=branch.overlay
        )


async def test_it_neither_waits_for_writers_nor_blocks_them(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell, writer, other = await connect(), await connect(), await connect()
    await begin(writer)
    await insert(writer, "roads", "open")
    await published(storage)
    async with shell.transaction():
        assert await fold(shell) > 0
        assert await fold(other) == 0, "another session is folding"
        await writer.execute("COMMIT")
        await storage.run(lambda s: s.create("roads", [point("x", *HERE)]), APP)
        last = await published(storage)
        assert await storage.last_cell_change("roads", around(*HERE)) == last.txn
    assert await fold(other) == 2
    assert await storage.last_cell_change("roads", around(*HERE)) == last.txn


async def test_transactions_that_are_not_published_are_not_folded(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell, writer = await connect(), await connect()
    before = await published(storage)
    await begin(writer)
    held = await sign(writer)
    await storage.run(lambda s: s.create("roads", [point("x", *HERE)]), APP)
    await fold(shell)
    assert await shell.fetchval("SELECT naksha_folded_txn()") == before.txn < held
    log = await storage.cell_log(before.txn)
    assert (log.txn, log.is_settled, log.changes) == (before.txn, False, [])
    await writer.execute("COMMIT")
    last = await published(storage)
    log = await storage.cell_log(before.txn)
    assert (log.txn, log.is_settled) == (last.txn, True)
    assert log.changes == [CellChange(last.txn, "roads", 0, sorted(cover(*HERE, *HERE)))]


async def test_folding_beside_writers(storage: PsqlStorage, connect: Connect) -> None:
    shell, chance = await connect(), random.Random(3)
    writing = asyncio.gather(
        *(write_some(storage, random.Random(seed), 15) for seed in range(3)),
    )
    while not writing.done():
        await fold(shell, 4)
        await asyncio.sleep(0)
    await writing
    await published(storage)
    boxes = [some_box(chance) for _ in range(60)]
    found = [await storage.last_cell_change("roads", box) for box in boxes]
    await by_force(shell, "DELETE FROM naksha_cell")
    assert [await storage.last_cell_change("roads", box) for box in boxes] == found


async def test_cells_of_removed_collections_and_branches_are_deleted(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    gone, kept = await new_collection(storage), await new_collection(storage)
    branch = await new_branch(storage)
    for handle in (gone, kept):
        await handle.create(point("x", *HERE))
        await Handle(branch.storage, handle.name).create(point("y", *THERE))
    last = await published(storage)
    await storage.maintain()
    every = await shell.fetchval(CELLS)
    await storage.unpin(f"branch {branch.overlay}")
    await storage.run(lambda s: s.drop_collection(gone.name, 1), APP)
    await storage.maintain()
    without_one = await shell.fetchval(CELLS)
    assert 0 < without_one < every
    await storage.run(lambda s: s.drop_overlay(branch.overlay), APP)
    await storage.maintain()
    assert 0 < await shell.fetchval(CELLS) < without_one
    assert await shell.fetchval("SELECT count(*) FROM naksha_cell WHERE overlay > 0") == 0
    found = await storage.last_cell_change(kept.name, around(*HERE))
    assert 0 < found < last.txn


async def test_the_log_does_not_expire_before_it_is_folded(database: str) -> None:
    async with aging_storage(database, FIRST) as aging:
        await aging.create()
        await aging.write_days(FIRST, 5)
        await aging.storage.keep_log(1)
        now_ms = aging.clock.now_ms()
        expire = "SELECT naksha_log_expire_next($1)"
        assert await aging.plain.fetchval(expire, now_ms) is None
        await fold(aging.plain)
        assert await aging.plain.fetchval(expire, now_ms) is not None


async def test_a_log_that_had_expired_before(storage: PsqlStorage, connect: Connect) -> None:
    """Nothing is known of the transactions before the first version of the log."""
    shell = await connect()
    await storage.run(lambda s: s.create("roads", [point("x", *HERE)]), APP)
    await storage.run(lambda s: s.create("roads", [point("y", *THERE)]), APP)
    first = await published(storage)
    for table in ("naksha_tx", "naksha_version"):
        await by_force(shell, f"DELETE FROM {table} WHERE txn < $1", first.txn)
    await storage.run(lambda s: s.update("roads", [point("y", *THERE, n=1)]), APP)
    last = await published(storage)
    assert await storage.last_cell_change("roads", around(*HERE)) == last.txn
    await fold(shell)
    assert await storage.last_cell_change("roads", around(*HERE)) == first.txn
    assert await storage.last_cell_change("roads", around(*THERE)) == last.txn


async def test_missing_log_rows_are_noticed(storage: PsqlStorage, connect: Connect) -> None:
    """As on a logical replica, which receives versions and log in any order."""
    shell = await connect()
    before = await published(storage)
    for n in range(3):
        await Handle(storage, "roads").upsert(point("x", n, n))
    last = await published(storage)
    await by_force(shell, "DELETE FROM naksha_tx WHERE txn > $1 AND txn < $2", before.txn, last.txn)
    assert (await storage.cell_log(before.txn)).changes is None
    assert (await storage.cell_log(last.txn)).changes == []
    assert await storage.last_cell_change("roads", around(*THERE)) == last.txn


async def test_many_look_ups_in_the_log_start_the_folding(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = await connect()
    monkeypatch.setattr(cells, "_UNFOLDED_MAX", 3)
    await storage.last_cell_change("roads", around(*HERE))
    assert await shell.fetchval(UNFOLDED) <= 3
    await write_some(storage, random.Random(1), 4)
    await published(storage)
    assert await shell.fetchval(UNFOLDED) > 3
    await storage.last_cell_change("roads", around(*HERE))

    async def is_folded() -> bool:
        return not await shell.fetchval(UNFOLDED)

    await until(is_folded)


async def test_a_read_only_storage_neither_publishes_nor_folds(
    storage: PsqlStorage, bare: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_UNFOLDED_MAX", 0)
    shell, writer = await connect(), await connect()
    reader = await PsqlStorage.open(bare, "test", read_only=True)
    try:
        await storage.run(lambda s: s.create("roads", [point("x", *HERE)]), APP)
        before = await published(storage)
        assert (await reader.cell_log(before.txn)).is_settled
        await begin(writer)
        await sign(writer)
        assert (await reader.cell_log(before.txn)).is_settled, "nothing new is committed"
        await storage.run(lambda s: s.update("roads", [point("x", *THERE)]), APP)
        log = await reader.cell_log(before.txn)
        assert (log.txn, log.is_settled, log.changes) == (before.txn, False, [])
        await writer.execute("COMMIT")
        last = await published(storage)
        log = await reader.cell_log(before.txn)
        assert (log.txn, log.is_settled) == (last.txn, True)
        assert log.changes is not None
        assert {*log.changes[0].cells} == cover(*HERE, *HERE) | cover(*THERE, *THERE)
        assert await reader.last_cell_change("roads", around(*THERE)) == last.txn
        assert await shell.fetchval(UNFOLDED) > 0
    finally:
        await reader.close()


async def test_locks_do_not_grow_with_the_log(database: str) -> None:
    async with aging_storage(database, FIRST) as aging:
        await aging.create()
        for day in range(30):
            aging.clock.day = FIRST + timedelta(days=day)
            await aging.write()
        await fold(aging.plain)
        versions = [aging.versions[-1], await aging.write()]
        for statement in (CELL_LOG, LAST_CHANGE):
            values = [versions[0].txn] if statement == CELL_LOG else []
            async with aging.plain.transaction():
                assert await aging.plain.fetchval(statement, *values) > 0
                pid = aging.plain.get_server_pid()
                assert await aging.plain.fetchval(HELD, pid) <= LOCKS_MAX
