"""Days: numbers only roll forward, partitions are created on demand and block no reader."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.storage import WriteSession
from tests.psql.support import (
    Connect,
    check_log,
    draw,
    insert,
    publish,
    published,
    sign,
    until,
    until_blocked,
)
from tests.psql.write.replay import check_intervals

DAY = timedelta(days=1)
MIDNIGHT = datetime(2031, 3, 1, tzinfo=UTC)
BEFORE = MIDNIGHT - timedelta(milliseconds=1)


async def start(connection: Direct, at: datetime) -> None:
    """A transaction that the clock dates."""
    await connection.execute("BEGIN")
    await connection.execute("SELECT naksha_tx_start('app', NULL, $1, false)", at)


def first_of(day: datetime) -> int:
    return ((day.year * 100 + day.month) * 100 + day.day) * 10**11


class HandClock:
    """A clock that is set by hand."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now_ms(self) -> int:
        return int(self.at.timestamp() * 1000)


# ---- Numbers -------------------------------------------------------------------------------------


async def test_a_number_drawn_after_midnight_has_the_new_day(bare: str, connect: Connect) -> None:
    early, late = await connect(), await connect()
    await start(early, BEFORE)
    await start(late, MIDNIGHT)
    assert await draw(late) == first_of(MIDNIGHT)
    await sign(late)
    await late.execute("COMMIT")
    assert await draw(early) == first_of(MIDNIGHT) + 1
    await insert(early, "roads", "a")
    await early.execute("COMMIT")
    row = await late.fetchrow(
        "SELECT naksha_xyz(jsondata)->>'uuid' AS uuid, naksha_xyz(jsondata)->>'updatedAt' AS at "
        "FROM roads"
    )
    assert row is not None
    assert row["uuid"].startswith("test:roads:2031:3:1:")
    assert int(row["at"]) == int(BEFORE.timestamp() * 1000)
    await publish(late)
    await check_log(late)


async def test_a_number_drawn_before_midnight_keeps_the_old_day_and_is_published_first(
    bare: str, connect: Connect
) -> None:
    early, late = await connect(), await connect()
    await start(early, BEFORE)
    await sign(early)
    await early.execute("COMMIT")  # Otherwise its new day would block other writers.
    await start(early, BEFORE)
    low = await sign(early)
    await start(late, MIDNIGHT)
    high = await sign(late)
    await late.execute("COMMIT")
    await publish(late)
    assert high not in await published(late)
    await early.execute("COMMIT")
    await publish(late)
    assert (await published(late))[-2:] == [low, high]
    assert (low // 10**11, high // 10**11) == (20310228, 20310301)


async def test_numbers_increase_with_any_clock(bare: str, connect: Connect) -> None:
    """The defect of earlier implementations: a late one reset the sequence backwards."""
    writer, dice = await connect(), random.Random(1)
    last, furthest = 0, first_of(MIDNIGHT)
    for _ in range(150):
        at = MIDNIGHT + timedelta(hours=dice.randint(-60 * 24, 40 * 24))
        await start(writer, at)
        number = await draw(writer)
        await writer.execute(dice.choice(["COMMIT", "ROLLBACK"]))
        furthest = max(furthest if last else 0, first_of(at))
        assert last < number
        assert number // 10**11 == max(furthest, last) // 10**11
        last = number


async def test_ends_of_months_and_years_have_partitions(bare: str, connect: Connect) -> None:
    writer = await connect()
    days = ["2031-12-31", "2032-01-01", "2032-02-28", "2032-02-29", "2032-03-01"]
    await start(writer, datetime.fromisoformat(days[0] + "T00:00:00+00:00") - DAY)
    await insert(writer, "roads", "a")
    await writer.execute("COMMIT")
    for n, day in enumerate(days):
        for hour in ("00:00:00.000", "23:59:59.999"):
            await start(writer, datetime.fromisoformat(f"{day}T{hour}+00:00"))
            await writer.execute(
                "UPDATE roads SET jsondata = jsonb_set(jsondata, '{at}', $1::jsonb)",
                f'"{n} {hour}"',
            )
            await writer.execute("COMMIT")
        table = "roads_hst_" + day.replace("-", "_")
        assert await writer.fetchval(f"SELECT count(*) FROM {table}") == 2
    await publish(writer)
    await check_log(writer)
    await check_intervals(writer, "roads")


async def test_many_at_midnight_get_numbers_of_their_own(bare: str, connect: Connect) -> None:
    dice = random.Random(2)
    writers = [await connect() for _ in range(10)]
    kept: list[int] = []

    async def work(writer: Direct) -> None:
        for n in range(8):
            # Every round is another midnight, with writers on both sides of it.
            await start(writer, MIDNIGHT + n * DAY + timedelta(seconds=dice.choice([-1, 1])))
            number = await sign(writer)
            await writer.execute(dice.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            kept.append(number)

    await asyncio.gather(*(work(writer) for writer in writers))
    assert len(set(kept)) == len(kept)
    await publish(writers[0])
    await check_log(writers[0])


async def test_a_storage_with_a_clock_goes_from_day_to_day(bare: str, connect: Connect) -> None:
    clock = HandClock(BEFORE)
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    try:
        seen = []
        for n in range(4):
            feature: dict[str, Any] = {"type": "Feature", "id": "a", "properties": {"n": n}}
            async with storage.write("app") as session:
                await session.upsert("roads", [feature])
            assert session.txn is not None
            assert session.txn // 10**11 == first_of(max(clock.at, BEFORE)) // 10**11
            version = await storage.wait_published(session.txn, 60)
            assert version is not None
            seen.append(version.seq_number)
            clock.at += DAY
        clock.at -= 10 * DAY
        async with storage.write("app") as session:
            await session.delete("roads", ["a"])
        assert session.txn is not None
        assert session.txn // 10**11 == first_of(BEFORE + 3 * DAY) // 10**11
        assert await storage.wait_published(session.txn, 60) is not None
        for n, seq_number in enumerate(seen):
            page = await storage.page("roads", Query(ids=("a",)), AtSeq(seq_number))
            assert [state.feature["properties"]["n"] for state in page.states] == [n]
        await check_intervals(await connect(), "roads")
    finally:
        await storage.close()


# ---- Partitions ----------------------------------------------------------------------------------


async def test_a_new_day_blocks_no_reader_and_is_blocked_by_none(
    bare: str, connect: Connect
) -> None:
    writer = await connect(lock_timeout="5s")
    old, new = await connect(lock_timeout="5s"), await connect(lock_timeout="5s")
    await start(writer, BEFORE)
    await insert(writer, "roads", "a")
    await writer.execute("COMMIT")
    reads = ["roads", "roads_hst", "roads_del", "naksha_tx", "naksha_version"]
    await old.execute("BEGIN")
    for table in reads:
        await old.fetch(f"SELECT count(*) FROM {table}")
    await start(writer, MIDNIGHT)
    await writer.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1')")
    for reader in (old, new):
        for table in reads:
            await reader.fetch(f"SELECT count(*) FROM {table}")
    await writer.execute("COMMIT")
    await old.execute("COMMIT")
    for reader in (old, new):
        assert await reader.fetchval("SELECT count(*) FROM roads_hst") == 1


async def _write_without_end(storage: PsqlStorage, dice: random.Random) -> None:
    for n in itertools.count():
        ids = [f"f{key}" for key in dice.sample(range(20), 3)]
        features = [{"type": "Feature", "id": key, "properties": {"n": n}} for key in ids]

        async def work(session: WriteSession, features: Sequence[Any] = features) -> None:
            await session.upsert("roads", features)

        await storage.run(work, "app")


async def _read_without_end(reader: Direct, reads: list[int], number: int) -> None:
    while True:
        for table in ("roads", "roads_hst", "roads_del", "naksha_tx", "naksha_version"):
            await reader.fetch(f"SELECT count(*) FROM {table}")
        reads[number] += 1


async def test_days_begin_under_load_and_no_reader_waits(bare: str, connect: Connect) -> None:
    """For a lock, that is: the time-out is so short that every wait would be an error."""
    clock = HandClock(BEFORE)
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    watcher, readers = await connect(), [await connect(lock_timeout="20ms") for _ in range(2)]
    reads = [0, 0]
    tasks = [
        *(asyncio.create_task(_write_without_end(storage, random.Random(n))) for n in range(4)),
        *(asyncio.create_task(_read_without_end(each, reads, n)) for n, each in enumerate(readers)),
    ]
    days = [MIDNIGHT + number * DAY for number in range(5)]
    try:
        for day in days:
            before, clock.at = list(reads), day

            async def begun(day: datetime = day, before: Sequence[int] = before) -> bool:
                assert not any(task.done() for task in tasks)
                tables = [f"{name}_{day:%Y_%m_%d}" for name in ("roads_hst", "naksha_tx")]
                made = await watcher.fetchval(
                    "SELECT bool_and(to_regclass(t) IS NOT NULL) FROM unnest($1::text[]) t", tables
                )
                return made and all(now > then for now, then in zip(reads, before, strict=True))

            await until(begun)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await storage.close()
    assert {type(result) for result in results} == {asyncio.CancelledError}
    await publish(watcher)
    await check_log(watcher)
    await check_intervals(watcher, "roads")


async def _update_on(writer: Direct, key: str) -> None:
    await start(writer, MIDNIGHT)
    await writer.execute(
        "UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1') WHERE jsondata->>'id' = $1",
        key,
    )


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_two_that_need_the_same_new_day_share_it(
    bare: str, connect: Connect, end: str
) -> None:
    """The second one waits for the first, and makes the day itself when that rolls back."""
    first, second, watcher = await connect(), await connect(), await connect()
    await start(first, BEFORE)
    await insert(first, "roads", "a", "b")
    await first.execute("COMMIT")
    await _update_on(first, "a")
    waiting = asyncio.create_task(_update_on(second, "b"))
    await until_blocked(watcher, second)
    await first.execute(end)
    await waiting
    await second.execute("COMMIT")
    expected = 2 if end == "COMMIT" else 1
    assert await watcher.fetchval("SELECT count(*) FROM roads_hst_2031_03_01") == expected
    await publish(watcher)
    await check_log(watcher)
    await check_intervals(watcher, "roads")


async def test_a_message_may_be_the_first_of_its_day(bare: str, connect: Connect) -> None:
    writer = await connect()
    for day in range(3):
        await start(writer, MIDNIGHT + day * DAY)
        await sign(writer)
        await writer.execute("COMMIT")
    await publish(writer)
    await check_log(writer)


async def test_restoring_from_history_by_sql_may_be_the_first_of_its_day(
    bare: str, connect: Connect
) -> None:
    """The statement that needs the new partition reads its parent."""
    writer = await connect()
    await start(writer, BEFORE)
    await insert(writer, "roads", "a")
    await writer.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1')")
    await writer.execute("COMMIT")
    await start(writer, MIDNIGHT)
    await writer.execute(
        # Without what it was read as, which is not HEAD any more.
        "UPDATE roads r SET jsondata = h.jsondata #- '{properties,@ns:com:here:xyz,uuid}' "
        "FROM roads_hst h WHERE h.jsondata->>'id' = r.jsondata->>'id'"
    )
    await writer.execute("COMMIT")
    assert not await writer.fetchval("SELECT jsondata ? 'a' FROM roads")


async def test_a_session_may_write_what_it_streams_from_history(
    bare: str, connect: Connect
) -> None:
    clock = HandClock(BEFORE)
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    try:
        txns = []
        for n in range(2):
            feature = {"type": "Feature", "id": "a", "properties": {"n": n}}
            async with storage.write("app") as session:
                await session.upsert("roads", [feature])
            txns.append(session.txn or 0)
        version = await storage.wait_published(txns[-1], 60)
        assert version is not None
        clock.at = MIDNIGHT
        async with storage.write("app") as session:
            async for state in session.states("roads", Query(), AtSeq(version.seq_number - 1)):
                await session.upsert("roads", [{**state.feature, "properties": {"n": 9}}])
        page = await storage.page("roads", Query())
        assert page.states[0].feature["properties"]["n"] == 9
    finally:
        await storage.close()
