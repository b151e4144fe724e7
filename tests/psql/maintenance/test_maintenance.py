"""Merging of partitions: their number, nothing lost or doubled, and blocked sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import date, timedelta
from itertools import pairwise

import asyncpg
import pytest

from naksha.model.errors import InUse, NakshaError
from naksha.model.query import Query
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.maintenance import rounds
from naksha.psql.maintenance.maintenance_task import MaintenanceTask
from naksha.psql.maintenance.rounds import MaintenanceRound
from naksha.spi.maintenance import RoundMemory, StepBackoff, StorageRound
from tests.psql.aging import Aging, aging_storage, ms
from tests.psql.support import connect_to, until

FIRST = date(2030, 11, 26)
DAYS = 70
PARTITIONS_MAX = 120


@pytest.fixture
async def aging(database: str) -> AsyncIterator[Aging]:
    async with aging_storage(database, FIRST) as made:
        await made.create()
        yield made


@pytest.fixture
async def winter(aging: Aging) -> Aging:
    """Ten weeks over the end of a year, written to every fifth day."""
    await aging.write_days(FIRST, DAYS // 5, 5)
    await aging.write_days(date(2031, 2, 4), 2)
    return aging


async def test_days_become_months_and_months_years(winter: Aging) -> None:
    before = await winter.everything()
    days = [f"2030_12_{day:02}" for day in (1, 6, 11, 16, 21, 26, 31)]
    assert set(days) < set(await winter.partitions())
    await winter.storage.maintain()
    left = ["2030", "2031_01", "2031_02_04", "2031_02_05"]
    assert await winter.partitions() == [*left, "2031_02_06"]
    log = [name for name in await winter.partitions("naksha_tx") if name.startswith("203")]
    # The log has every day, so that it had 50 of them before the last month.
    assert log == ["2030", "2031_01", "2031_02"]
    assert await winter.everything() == before
    assert not [name for name in await winter.tables() if "_new_" in name]
    await winter.storage.maintain()
    assert await winter.everything() == before


async def test_the_log_is_the_same_after_a_merge(winter: Aging) -> None:
    before = await winter.storage.transactions()
    assert len(before) == len(winter.versions) + 1
    await winter.storage.maintain()
    assert await winter.storage.transactions() == before


async def test_states_are_found_by_their_id_after_a_merge(winter: Aging) -> None:
    every = [raw for version in await winter.everything() for raw in version["ALL"]]
    await winter.storage.maintain()
    page = await winter.storage.page(
        "roads", Query(ids=("always",)), AtSeq(winter.versions[3].seq_number)
    )
    state = page.states[0]
    assert state.raw in every
    assert (await winter.storage.state(state.uuid)).uuid == state.uuid


async def test_merged_tables_are_as_if_made_at_once(winter: Aging) -> None:
    """Same indices, guards, triggers and replica identity as a day; rows along the curve."""

    async def shape(table: str) -> dict[str, object]:
        rows = await winter.plain.fetch(
            "SELECT replace(pg_get_indexdef(indexrelid), $1, '') FROM pg_index"
            " WHERE indrelid = $1::regclass AND indisvalid AND indisready",
            table,
        )
        triggers = await winter.plain.fetch(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = $1::regclass", table
        )
        kept = await winter.plain.fetchrow(
            "SELECT relreplident, (SELECT count(*) FROM pg_constraint WHERE conrelid = c.oid)"
            " FROM pg_class c WHERE oid = $1::regclass",
            table,
        )
        # Indices of the log get names from PostgreSQL on a day and from us on a merged table.
        definitions = sorted(str(row[0]).split(" ON ")[1] for row in rows)
        return {"i": definitions, "t": sorted(row[0] for row in triggers), "k": tuple(kept or ())}

    await winter.storage.maintain()
    tail = (await winter.partitions("naksha_tx"))[-1]
    for parent, young in (("roads_hst", "2031_02_04"), ("naksha_tx", tail)):
        day = await shape(f"{parent}_{young}")
        assert day["i"]
        assert await shape(f"{parent}_2030") == day
        assert await shape(f"{parent}_2031_01") == day
    order = "SELECT array_agg(i) FROM (SELECT i FROM roads_hst_2030 ORDER BY {}) AS x"
    assert await winter.plain.fetchval(order.format("ctid")) == await winter.plain.fetchval(
        order.format("geo, i")
    )


async def test_a_day_stays_while_something_in_it_is_open(aging: Aging) -> None:
    aging.clock.day = date(2030, 11, 28)
    await aging.write()
    # A transaction that creates a partition locks the parent until it commits; maintenance creates
    # partitions ahead of time.
    ensure = "SELECT naksha_ensure_day($1, naksha_day_txn($2))"
    for day in (date(2030, 11, 29), date(2030, 12, 2)):
        await aging.plain.execute(ensure, "naksha_tx", day)
        await aging.plain.execute(ensure, "roads_hst", day)
    writer = await connect_to(aging.dsn)
    try:
        await writer.execute("BEGIN")
        await writer.execute(
            "SELECT naksha_tx_start('slow', NULL, to_timestamp($1 / 1000.0), false)",
            ms(date(2030, 11, 29)),
        )
        await writer.execute("SELECT naksha_upsert('roads', '{\"id\": \"always\"}')")
        aging.clock.day = date(2030, 12, 2)
        await aging.storage.run(lambda s: s.message("m", "later"), "app")
        await aging.storage.maintain()
        assert await aging.partitions() == ["2030_11_28", "2030_11_29", "2030_12_02"]
        await writer.execute("COMMIT")
        await aging.storage.maintain()
        assert await aging.partitions() == ["2030_11", "2030_12_02"]
        assert len(await aging.storage.transactions()) == 4
    finally:
        writer.terminate()


async def test_nothing_is_lost_while_merging(winter: Aging) -> None:
    """Readers at all versions and writers at HEAD go on during the rounds, and are never wrong."""
    expected = await winter.everything()
    versions = list(winter.versions)
    stop = asyncio.Event()
    dice = random.Random(5)
    reads = 0

    async def read() -> None:
        nonlocal reads
        while not stop.is_set():
            n = dice.randrange(len(versions))
            assert await winter.at(versions[n]) == expected[n]
            reads += 1

    async def write() -> None:
        while not stop.is_set():
            await winter.write()

    async with asyncio.TaskGroup() as tasks:
        for work in (read, read, write):
            tasks.create_task(work())
        await winter.storage.maintain()
        stop.set()
    assert reads > 3
    assert len(await winter.partitions()) == 5
    assert [await winter.at(version) for version in versions] == expected


async def test_an_older_snapshot_never_sees_a_merged_table_empty(
    winter: Aging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SNAPSHOT_WAIT_S_MAX", 0.2)
    reader = await connect_to(winter.dsn)
    try:
        async with reader.transaction(isolation="repeatable_read"):
            await reader.fetchval("SELECT count(*) FROM naksha_collection")
            await winter.storage.maintain()
            seen = await reader.fetchval("SELECT count(*) FROM roads_hst")
            assert seen == await winter.plain.fetchval("SELECT count(*) FROM roads_hst") > 0
        assert "2030_12_01" in await winter.partitions()
        assert "roads_hst_new_2030_12" in await winter.tables(), "left for the next round"
        await winter.storage.maintain()
        assert (await winter.partitions())[0] == "2030"
    finally:
        reader.terminate()


async def test_writers_do_not_queue_behind_a_long_reader(
    winter: Aging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SWAP_TRIES_MAX", 5)
    expected = await winter.everything()
    period = {"label": "2030_12", "from_day": date(2030, 12, 1), "to_day": date(2031, 1, 1)}
    reader, swapper = await connect_to(winter.dsn), await connect_to(winter.dsn)
    writes = 0
    try:
        await swapper.execute(
            "SELECT naksha_merge_build('roads_hst', $1, $2, $3)", *period.values()
        )
        await reader.execute("BEGIN")
        await reader.fetchval("SELECT count(*) FROM roads_hst")
        round_ = rounds.MaintenanceRound(swapper, winter.clock.now_ms(), StorageRound())
        swap = asyncio.create_task(round_._swap("roads_hst", tuple(period.values()), []))
        while not swap.done():
            # The reader ends after the loop: a writer behind it would wait until then.
            async with asyncio.timeout(60):
                await winter.write()
                await winter.at(winter.versions[0])
            writes += 1
        with pytest.raises(asyncpg.LockNotAvailableError):
            await swap
        await reader.execute("COMMIT")
    finally:
        reader.terminate()
        swapper.terminate()
    assert writes > 0
    await winter.storage.maintain()
    assert (await winter.partitions())[0] == "2030"
    assert (await winter.everything())[: len(expected)] == expected


async def test_a_merge_that_dies_leaves_nothing(winter: Aging) -> None:
    expected, tables = await winter.everything(), await winter.tables()
    builder = await connect_to(winter.dsn)
    await builder.execute("BEGIN")
    await builder.execute(
        "SELECT naksha_merge_build('roads_hst', '2030_12', '2030-12-01', '2031-01-01')"
    )
    await builder.execute(
        "SELECT naksha_merge_swap('roads_hst', '2030_12', '2030-12-01', '2031-01-01')"
    )
    await winter.plain.execute("SELECT pg_terminate_backend($1)", builder.get_server_pid())
    await until(lambda: _is_gone(winter, builder.get_server_pid()))
    assert await winter.tables() == tables
    assert await winter.everything() == expected
    await winter.storage.maintain()
    assert await winter.everything() == expected


async def _is_gone(aging: Aging, pid: int) -> bool:
    found: bool = await aging.plain.fetchval(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid
    )
    return found


async def test_a_table_made_for_a_namesake_is_not_taken(winter: Aging) -> None:
    build = "SELECT naksha_merge_build('roads_hst', '2030_12', '2030-12-01', '2031-01-01')"
    await winter.plain.execute(build)
    await winter.plain.execute("COMMENT ON TABLE roads_hst_new_2030_12 IS '999'")
    await winter.plain.execute("SET naksha.depth = '0'; DELETE FROM roads_hst_new_2030_12")
    expected = await winter.everything()
    await winter.storage.maintain()
    assert await winter.everything() == expected


async def test_too_little_to_keep_is_not_merged(aging: Aging) -> None:
    """With 40 days to keep, a month would hold expired states for too long."""
    await aging.create("short", max_age=40)
    await aging.write_days(date(2030, 11, 29), 6, name="short")
    await aging.storage.maintain()
    assert [p for p in await aging.partitions("short_hst") if len(p) < 10] == []


async def test_the_number_of_partitions_is_bounded_without_any_maintenance(aging: Aging) -> None:
    days = [date(2031, 1, 1) + timedelta(days=n) for n in range(55)]
    days += [date(2031 + n // 12, 1 + n % 12, 5) for n in range(2, 40)]
    days += [date(2034 + n, 7, 1) for n in range(60)]
    await aging.plain.execute(
        "SELECT naksha_ensure_day('roads_hst', naksha_day_txn(d)) FROM unnest($1::date[]) d", days
    )
    rows = await aging.plain.fetch("SELECT lo, hi FROM naksha_partitions('roads_hst')")
    assert 100 < len(rows) <= PARTITIONS_MAX
    assert all(a["hi"] <= b["lo"] for a, b in pairwise(rows))
    found = await aging.plain.fetchval(
        "SELECT count(naksha_partition_of('roads_hst', naksha_day_txn(d)))"
        " FROM unnest($1::date[]) d",
        days,
    )
    assert found == len(days)


async def test_a_late_day_before_a_long_partition_gets_one_of_its_own(aging: Aging) -> None:
    ensure = "SELECT naksha_ensure_day('roads_hst', naksha_day_txn($1))"
    for n in range(50):
        await aging.plain.execute(ensure, date(2031, 1, 1) + timedelta(days=2 * n))
    assert await aging.plain.fetchval(ensure, date(2031, 5, 10)) == "roads_hst_2031_05"
    assert await aging.plain.fetchval(ensure, date(2031, 5, 31)) == "roads_hst_2031_05"
    assert await aging.plain.fetchval(ensure, date(2031, 1, 2)) == "roads_hst_2031_01"
    assert await aging.plain.fetchval(ensure, date(2031, 1, 6)) == "roads_hst_2031_01_06"


async def test_many_years_become_decades(aging: Aging) -> None:
    for year in range(2001, 2028):
        span = (f"roads_hst_{year}", date(year, 1, 1), date(year + 1, 1, 1))
        for step in ("create", "attach"):
            await aging.plain.execute(
                f"SELECT naksha_{step}_partition('roads_hst', $1, $2, $3)", *span
            )
    aging.clock.day = date(2030, 11, 30)
    await aging.write()
    await aging.storage.maintain()
    years = [str(year) for year in range(2010, 2028)]
    assert await aging.partitions() == ["200", *years, "2030_11_30"]


async def test_only_one_maintainer_at_a_time(winter: Aging) -> None:
    other = await PsqlStorage.open(winter.dsn, "test", clock=winter.clock)
    expected = await winter.everything()
    try:
        await asyncio.gather(winter.storage.maintain(), other.maintain())
    finally:
        await other.close()
    assert await winter.everything() == expected
    assert (await winter.partitions())[0] == "2030"


async def test_in_the_background_errors_do_not_end_it() -> None:
    calls = 0
    enough = asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            enough.set()
        raise RuntimeError("broken")

    maintainer = MaintenanceTask(work, 0.01)
    maintainer.start()
    await asyncio.wait_for(enough.wait(), 10)
    await maintainer.close()
    stopped_at = calls
    await asyncio.sleep(0.05)
    assert calls == stopped_at


async def test_a_storage_can_maintain_itself(winter: Aging) -> None:
    itself = await PsqlStorage.open(winter.dsn, "test", clock=winter.clock, maintain_every_s=0.05)

    async def merged() -> bool:
        return (await winter.partitions())[0] == "2030"

    try:
        await until(merged)
    finally:
        await itself.close()


# ---- What is not ours, and what fails ------------------------------------------------------------


async def test_tables_of_others_survive_whatever_they_are_called(winter: Aging) -> None:
    foreign = ["customer_hst_2024", "customer_hst_2024_01_02", "roads_hst_2024", "naksha_tx_2024",
               "roads_hst_new_2030", "roads_hst_new_stuff"]  # fmt: skip
    for name in foreign:
        await winter.plain.execute(f"CREATE TABLE {name} AS SELECT 1 AS i")
    await winter.plain.execute("DROP TABLE roads_hst_new_2030")
    await winter.storage.maintain()
    kept = set(foreign) - {"roads_hst_new_2030"}
    assert kept <= await winter.tables()
    for name in kept:
        assert await winter.plain.fetchval(f"SELECT i FROM {name}") == 1


async def test_a_table_of_others_in_the_place_of_a_merged_one_survives(winter: Aging) -> None:
    await winter.plain.execute("CREATE TABLE roads_hst_new_2030 AS SELECT 1 AS i")
    with pytest.raises(NakshaError, match="roads_hst_new_2030"):
        await winter.storage.maintain()
    assert await winter.plain.fetchval("SELECT i FROM roads_hst_new_2030") == 1


async def test_a_day_is_never_a_table_of_others(aging: Aging) -> None:
    name = f"roads_hst_{aging.clock.day:%Y_%m_%d}"
    await aging.plain.execute(f"CREATE TABLE {name} AS SELECT 1 AS i, 2 AS geo, 3 AS jsondata")
    found = "SELECT naksha_partition_of('roads_hst', naksha_day_txn($1))"
    assert await aging.plain.fetchval(found, aging.clock.day) is None


async def test_a_view_on_a_dropped_collection_delays_nothing_else(
    aging: Aging, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, every round ended there, for all collections and the log."""
    for name in ("bridges", "tunnels"):
        await aging.create(name)
    await aging.plain.execute("CREATE VIEW seen AS SELECT * FROM bridges")
    for name in ("bridges", "tunnels"):
        async with aging.storage.write("app") as session:
            await session.drop_collection(name)
    await aging.write_days(FIRST, 3)
    aging.clock.day += timedelta(days=1)
    with pytest.raises(InUse, match=r"removal of bridges: .*view seen depends on"):
        await aging.storage.maintain()
    tables = await aging.tables()
    assert "bridges" in tables
    assert "tunnels" not in tables
    info = await aging.storage.collection("roads")
    assert info.byte_size > 0
    await aging.plain.execute("DROP VIEW seen")
    await aging.storage.maintain()
    assert "bridges" not in await aging.tables()


async def test_a_step_that_fails_is_tried_again_after_longer_and_longer_pauses() -> None:
    now = [0.0]
    backoff = StepBackoff(lambda: now[0])
    pauses = []
    for _ in range(15):
        assert backoff.is_due("step")
        backoff.failed("step")
        pause = 0.0
        while not backoff.is_due("step"):
            now[0] += 60
            pause += 60
        pauses.append(pause)
    assert pauses[:4] == [60, 120, 240, 480]
    assert pauses[-1] == 86_400
    assert backoff.is_due("another step")
    backoff.done("step")
    backoff.failed("step")
    now[0] += 60
    assert backoff.is_due("step")


async def test_in_the_background_other_steps_go_on_beside_a_failing_one(aging: Aging) -> None:
    await aging.create("bridges")
    await aging.plain.execute("CREATE VIEW seen AS SELECT * FROM bridges")
    await aging.storage.run(lambda s: s.drop_collection("bridges"), "app")
    aging.clock.day += timedelta(days=1)
    memory = RoundMemory()
    with pytest.raises(InUse):
        await aging.storage._maintain_in_background(memory)
    await aging.write()
    await aging.storage._maintain_in_background(memory)  # The step that failed is not due yet.
    info = await aging.storage.collection("roads")
    assert info.byte_size > 0


async def test_a_round_leaves_collections_alone_that_nothing_is_due_for(
    aging: Aging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step locks the row of the collection, and computes statistics of all its features."""
    await aging.create("bridges")
    steps: list[str] = []
    attempt = MaintenanceRound._try

    async def spy(
        self: MaintenanceRound, what: str, step: rounds.Step, *, is_heavy: bool = False
    ) -> None:
        steps.append(what)
        await attempt(self, what, step, is_heavy=is_heavy)

    monkeypatch.setattr(MaintenanceRound, "_try", spy)
    memory = RoundMemory()

    async def done() -> list[str]:
        """The steps of a round that are about a collection."""
        steps.clear()
        await aging.storage._maintain_in_background(memory)
        return [step for step in steps if step.endswith((" roads", " bridges"))]

    refreshed: list[str] = []

    async def written() -> bool:
        refreshed.extend(await done())
        return "statistics of roads" in refreshed

    async def quiet() -> bool:
        return await done() == []

    assert {"statistics of bridges", "statistics of roads"} <= set(await done())
    await until(quiet)
    await aging.write()
    await aging.write()
    # A history that is in use today gets tomorrow's partition.
    refreshed += await done()
    assert "preparing of roads" in refreshed
    await until(written)
    assert set(refreshed) == {"preparing of roads", "statistics of roads"}
    await until(quiet)
