"""The recent changes of cells: shared questions, bounds, and what is forgotten."""

import asyncio
import random

import pytest

from naksha.hub.tiles.cell_tail import EVERYWHERE, CellTail, ChangedCells, TileArea
from naksha.model.geo.tile_cells import WORLD_CELL, cover
from naksha.model.query import Bbox
from naksha.spi.tile_cells import CellChange, CellLog


class SlowLog:
    """A storage whose answers are what was true when the question began."""

    def __init__(self) -> None:
        self.txn = 0
        self.changes: list[CellChange] = []
        self.is_settled = True
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: Exception | None = None

    def change(self, *cells: int, collection: str = "roads", overlay: int = 0) -> int:
        self.txn += 1
        self.changes.append(CellChange(self.txn, collection, overlay, [*cells]))
        return self.txn

    async def cell_log(self, after_txn: int) -> CellLog:
        self.asked += 1
        found = [one for one in self.changes if one.txn > after_txn]
        log = CellLog(self.txn, self.txn, self.is_settled, found)
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        return log

    async def last_cell_change(self, collection: str, box: Bbox, *, overlay: int = 0) -> int:
        raise AssertionError("not asked")


BERLIN = TileArea(Bbox(13.0, 52.0, 13.1, 52.1))
ROME = TileArea(Bbox(12.5, 41.9, 12.6, 42.0))


def cells_of(area: TileArea) -> list[int]:
    box = area.box
    return sorted(cover(box.west, box.south, box.east, box.north))


async def pause() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_question_that_began_before_a_request_does_not_answer_it() -> None:
    log = SlowLog()
    tail = CellTail(log)
    log.answers.clear()
    first = asyncio.create_task(tail.now())
    await pause()
    assert log.asked == 1
    changed = log.change(*cells_of(BERLIN))
    later = [asyncio.create_task(tail.now()) for _ in range(10)]
    await pause()
    log.answers.set()
    assert (await first).txn == 0
    assert {(await one).txn for one in later} == {changed}
    assert log.asked == 2  # all that waited shared one question
    assert tail.last_change("roads", 0, BERLIN) == changed


async def test_requests_share_questions_under_random_timing() -> None:
    """No request gets an answer that is older than its arrival."""
    log = SlowLog()
    tail = CellTail(log)
    rng = random.Random(7)
    checked = 0

    async def request() -> None:
        nonlocal checked
        for _ in range(30):
            before = log.txn
            moment = await tail.now()
            assert moment.txn >= before
            assert tail.txn >= moment.txn
            checked += 1
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

    async def write() -> None:
        for _ in range(300):
            log.change(*cells_of(rng.choice([BERLIN, ROME])))
            log.answers.set() if rng.random() < 0.5 else log.answers.clear()
            await asyncio.sleep(0)
        log.answers.set()

    await asyncio.gather(write(), *(request() for _ in range(10)))
    assert checked == 300
    assert log.asked < 300


async def test_a_cancelled_request_does_not_cancel_the_question_of_others() -> None:
    log = SlowLog()
    tail = CellTail(log)
    log.answers.clear()
    first, second = asyncio.create_task(tail.now()), asyncio.create_task(tail.now())
    await pause()
    first.cancel()
    log.answers.set()
    assert (await second).txn == 0
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failure_is_raised_and_the_next_question_works() -> None:
    log = SlowLog()
    tail = CellTail(log)
    log.failure = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        await tail.now()
    log.failure = None
    assert (await tail.now()).txn == 0


async def test_changes_are_found_by_place_collection_and_overlay() -> None:
    log = SlowLog()
    tail = CellTail(log)
    txn = log.change(*cells_of(BERLIN))
    other = log.change(*cells_of(BERLIN), collection="rails")
    branch = log.change(*cells_of(ROME), overlay=3)
    await tail.now()
    assert tail.last_change("roads", 0, BERLIN) == txn
    assert tail.last_change("roads", 0, ROME) == 0
    assert tail.last_change("rails", 0, BERLIN) == other
    assert tail.last_change("roads", 3, ROME) == branch
    assert tail.last_change("roads", 0, EVERYWHERE) == txn
    world = log.change(WORLD_CELL)
    await tail.now()
    assert tail.last_change("roads", 0, ROME) == world


async def test_too_many_changes_are_dropped() -> None:
    log = SlowLog()
    tail = CellTail(log, cells_max=40)
    txn = log.change(*cells_of(BERLIN))
    await tail.now()
    assert (tail.start, tail.last_change("roads", 0, BERLIN)) == (0, txn)
    for n in range(20):
        log.change(*cover(n * 5, 0, n * 5, 0))
        await tail.now()
    assert tail.start > txn
    assert tail.last_change("roads", 0, BERLIN) == 0


async def test_a_reply_with_too_many_cells_is_not_kept() -> None:
    """Recording them would stop the process for seconds."""

    class Busy(SlowLog):
        async def cell_log(self, after_txn: int) -> CellLog:
            cells = [*range(1 << 24, (1 << 24) + 500)]
            many = [CellChange(txn, "roads", 0, cells) for txn in range(1, 101)]
            pending = [CellChange(txn, "roads", 0, cells) for txn in range(101, 201)]
            return CellLog(100, 100, is_settled=False, changes=many, pending=pending)

    tail = CellTail(Busy())
    moment = await tail.now()
    assert (tail.start, tail.txn) == (100, 100)
    assert (moment.is_settled, moment.pending) == (False, None)
    assert moment.has_pending("rails", 0, ROME)


async def test_a_log_without_changes_begins_again() -> None:
    class Long(SlowLog):
        async def cell_log(self, after_txn: int) -> CellLog:
            return CellLog(9, 9, is_settled=True, changes=None)

    tail = CellTail(Long())
    await tail.now()
    assert tail.start == tail.txn == 9


async def test_a_storage_whose_numbers_go_back_begins_again() -> None:
    log = SlowLog()
    tail = CellTail(log)
    for _ in range(3):
        log.change(*cells_of(BERLIN))
    await tail.now()
    log.txn, log.changes = 1, log.changes[:1]
    assert (await tail.now()).txn == 1
    assert (tail.start, tail.last_change("roads", 0, BERLIN)) == (1, 0)


def test_an_area_was_changed_by_its_cells_by_larger_and_by_smaller_ones() -> None:
    rng = random.Random(1)

    def box() -> Bbox:
        west, south = rng.uniform(-180, 179), rng.uniform(-90, 89)
        size = 10 ** rng.uniform(-4, 2)
        return Bbox(west, south, min(180.0, west + size), min(90.0, south + size / 2))

    for _ in range(300):
        written, asked = box(), box()
        changed = ChangedCells()
        changed.add(cover(written.west, written.south, written.east, written.north), 5)
        meets = (
            written.west <= asked.east
            and asked.west <= written.east
            and written.south <= asked.north
            and asked.south <= written.north
        )
        if meets:
            assert changed.last(TileArea(asked)) == 5
        assert changed.last(EVERYWHERE) == 5


async def test_an_unpublished_change_matters_inside_its_area() -> None:
    class Waiting(SlowLog):
        pending: list[CellChange] | None = None

        async def cell_log(self, after_txn: int) -> CellLog:
            return CellLog(5, 5, is_settled=False, changes=[], pending=self.pending)

    log = Waiting()
    tail = CellTail(log)
    unknown = await tail.now()
    assert not unknown.is_settled
    assert unknown.has_pending("roads", 0, ROME)
    log.pending = [CellChange(7, "roads", 0, cells_of(BERLIN))]
    moment = await tail.now()
    assert moment.has_pending("roads", 0, BERLIN)
    assert not moment.has_pending("roads", 0, ROME)
    assert not moment.has_pending("roads", 1, BERLIN)
    assert not moment.has_pending("rails", 0, BERLIN)
    assert tail.last_change("roads", 0, BERLIN) == 0  # it is not published
