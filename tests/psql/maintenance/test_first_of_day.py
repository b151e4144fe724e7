"""The first transaction of a day, which blocks no other.

Partitions are created ahead, or in short separate transactions, and the log has a partition for
every day to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.storage import WriteSession
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite_support import point
from tests.psql.aging import Aging, DayClock, aging_storage, ms
from tests.psql.support import Connect, begin, check_log, connect_to, insert, publish, sign
from tests.psql.write.replay import check_intervals

FAR_DAY = datetime(2031, 3, 1, 12, tzinfo=UTC)
HANGS_S = 60


async def start(connection: Direct, at: datetime = FAR_DAY) -> None:
    await connection.execute("BEGIN")
    await connection.execute("SELECT naksha_tx_start('app', NULL, $1, false)", at)


async def log_days(connection: Direct) -> list[str]:
    rows = await connection.fetch("SELECT name FROM naksha_partitions('naksha_tx')")
    return [row["name"].removeprefix("naksha_tx_") for row in rows]


async def test_plain_sql_writes_beside_the_first_transaction_of_a_day(
    bare: str, connect: Connect
) -> None:
    """No partition was made for that day, and no Naksha process runs."""
    first, second = await connect(), await connect(lock_timeout="2s")
    await start(first)
    await insert(first, "roads", "a")
    await start(second)
    await insert(second, "roads", "b")
    await insert(second, "places", "c")
    await sign(second)
    await second.execute("COMMIT")
    await start(second, FAR_DAY + timedelta(days=3))
    await insert(second, "places", "d")
    await second.execute("COMMIT")
    await first.execute("COMMIT")
    await publish(second)
    await check_log(second)


async def test_a_log_written_beyond_its_days_gets_days_again(bare: str, connect: Connect) -> None:
    writer, maker = await connect(), await connect()
    await start(writer)
    await insert(writer, "roads", "a")
    # As long as the transaction is open its partition cannot be replaced, and that harms nobody.
    with pytest.raises(Exception, match="lock timeout"):
        await maker.execute("SELECT naksha_prepare_log()")
    await writer.execute("COMMIT")
    await maker.execute("SELECT naksha_prepare_log()")
    days = await log_days(maker)
    assert days[-8:] == [*(f"2031_03_0{day}" for day in range(2, 9)), "from_2031_03_09"]
    for day in range(4):
        await start(writer, FAR_DAY + timedelta(days=day))
        await insert(writer, "roads", f"b{day}")
        await writer.execute("COMMIT")
    assert await maker.fetchval("SELECT count(*) FROM naksha_tx_2031_03_02") == 1
    await publish(maker)
    await check_log(maker)
    await check_intervals(maker, "roads")


async def test_opening_a_storage_makes_the_days_ahead(bare: str, connect: Connect) -> None:
    clock = DayClock(date(2031, 3, 1))
    storage = await PsqlStorage.open(bare, "test", clock=clock)
    await storage.close()
    watcher = await connect()
    ahead = [*(f"2031_03_0{day}" for day in range(1, 9)), "from_2031_03_09"]
    assert (await log_days(watcher))[-9:] == ahead
    # As long as there is one for tomorrow nothing is to be made.
    await watcher.execute("SELECT naksha_prepare_log($1)", ms(date(2031, 3, 7)))
    assert (await log_days(watcher))[-9:] == ahead
    await watcher.execute("SELECT naksha_prepare_log($1)", ms(date(2031, 3, 8)))
    days = [*(f"2031_03_{day:02}" for day in range(8, 16)), "from_2031_03_16"]
    assert (await log_days(watcher))[-9:] == days


async def change(session: WriteSession, key: str) -> None:
    await session.upsert("roads", [point(key, day=1)])


async def test_library_sessions_do_not_wait_for_the_first_of_the_day(bare: str) -> None:
    async with aging_storage(bare, date(2031, 3, 1)) as aging:
        await aging.storage.run(lambda s: s.upsert("roads", [point("a"), point("b")]), "app")
        aging.clock.day = date(2031, 3, 9)
        async with asyncio.timeout(HANGS_S), aging.storage.write("app") as first:
            await change(first, "a")
            await aging.storage.run(lambda session: change(session, "b"), "app")
            rows = await aging.plain.fetch("SELECT jsondata->>'id' AS id FROM roads_hst_2031_03_09")
            assert [row["id"] for row in rows] == ["b"]


async def test_histories_in_use_get_their_partition_of_tomorrow(bare: str) -> None:
    async with aging_storage(bare, date(2031, 3, 1)) as aging:
        for n in range(2):
            async with aging.storage.write("app") as session:
                await session.upsert("roads", [point("a", n=n)])
        await aging.storage._days.prepare_ahead()
        tables = await aging.tables()
        assert "roads_hst_2031_03_02" in tables
        assert "places_hst_2031_03_02" not in tables


# ---- Prepared transactions -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with PostgresCluster({"fsync": False, "max_prepared_transactions": 4}) as cluster:
        dsn = cluster.create_database("store")
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", "store")
        yield dsn


@pytest.fixture
async def aged(dsn: str) -> AsyncIterator[Aging]:
    async with aging_storage(dsn, date(2031, 3, 1)) as aging:
        await aging.create("roads")
        await aging.create("places")
        yield aging


@pytest.mark.postgres
async def test_a_prepared_first_transaction_of_a_day_blocks_no_writer(
    dsn: str, aged: Aging
) -> None:
    first, second = await connect_to(dsn), await connect_to(dsn, lock_timeout="2s")
    at = FAR_DAY + timedelta(days=30)
    await start(first, at)
    await first.execute("SET LOCAL naksha.two_phase = 'on'")
    await insert(first, "roads", "a")
    await first.execute("PREPARE TRANSACTION 'first'")
    aged.clock.day = at.date()
    async with asyncio.timeout(HANGS_S):
        await aged.storage.run(lambda session: change(session, "b"), "app")
    await start(second, at)
    await insert(second, "roads", "c")
    await second.execute("COMMIT")
    await first.execute("COMMIT PREPARED 'first'")
    await publish(second)
    await check_log(second)
    await begin(second)
    await second.execute("ROLLBACK")
    for connection in (first, second):
        connection.terminate()
