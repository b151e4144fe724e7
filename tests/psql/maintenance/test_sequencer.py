"""Publication: dense, in txn order, held back only by open draws, and never lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg
import pytest

from naksha.model.version import HEAD
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.schema.install import install
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.maintenance.draws import DRAW_STEPS, HandWriter, play
from tests.psql.support import (
    Connect,
    advisory_locks,
    begin,
    check_log,
    connect_to,
    draw,
    insert,
    open_draws,
    publish,
    published,
    sign,
    until,
    until_blocked,
)

ASLEEP = "SELECT pg_try_advisory_lock(naksha_lock_class(), 3)"


async def test_versions_are_dense_although_numbers_are_not(bare: str, connect: Connect) -> None:
    writer = await connect()
    kept = []
    for n in range(20):
        await begin(writer)
        txn = await sign(writer)
        await writer.execute("ROLLBACK" if n % 3 == 0 else "COMMIT")
        if n % 3:
            kept.append(txn)
    await publish(writer)
    assert (await published(writer))[1:] == kept
    await check_log(writer)


async def test_many_that_wait_are_not_compared_with_each_other(bare: str, connect: Connect) -> None:
    writer = await connect()
    for _ in range(20):
        await begin(writer)
        await sign(writer)
        await writer.execute("COMMIT")
    plans: list[str] = []
    writer.add_log_listener(lambda _, message: plans.append(str(message)))
    await writer.execute(
        """LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;
        SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on;
        SET client_min_messages = log"""
    )
    await publish(writer)
    [plan] = [each for each in plans if "Update on naksha_tx" in each and "actual time" in each]
    assert "rows=20 loops=1" in plan
    assert "Nested Loop" not in plan
    assert "Removed by Join Filter" not in plan


async def test_a_transaction_with_many_signals_has_one_version(bare: str, connect: Connect) -> None:
    writer = await connect()
    await begin(writer)
    for collection in ("roads", "places", "roads"):
        await insert(writer, collection, collection + str(random.random()))
    await sign(writer, "a")
    await sign(writer, "b")
    await writer.execute("COMMIT")
    before = len(await published(writer))
    assert await publish(writer) == before + 1
    assert await publish(writer) == before + 1
    await check_log(writer)


# ---- Interleavings of the draw -------------------------------------------------------------------


def test_draws_by_hand_do_what_the_schema_does() -> None:
    """The steps below are worth something only while they are those of naksha_tx_draw."""
    from naksha.psql.sql import schema_files

    source = dict(schema_files())["040_transaction.sql"]
    body = source[source.index("FUNCTION naksha_tx_draw()") :]
    body = body[: body.index("END $$")]
    marks = [
        "pg_advisory_xact_lock_shared(naksha_lock_class(), 0)",
        "coalesce(pg_sequence_last_value('naksha_tx_object_id_seq'), 1)",
        "nextval('naksha_tx_object_id_seq')",
        "set_config(naksha_var('txn')",
    ]
    assert [body.index(mark) for mark in marks] == sorted(body.index(mark) for mark in marks)


async def test_a_writer_stopped_anywhere_in_its_draw_is_never_overtaken(
    bare: str, connect: Connect
) -> None:
    watcher, others = await connect(), [await connect(), await connect()]
    for stop_before in range(1, len(DRAW_STEPS)):
        stopped = HandWriter(await connect())
        for step in DRAW_STEPS[:stop_before]:
            await stopped.step(step)
        for other in others:
            await begin(other)
            await sign(other)
            await other.execute("COMMIT")
            await publish(watcher)
            if stopped.number is not None:
                assert stopped.number > max(await published(watcher))
        for step in DRAW_STEPS[stop_before:]:
            await stopped.step(step)
            await publish(watcher)
        await check_log(watcher, [stopped.number or 0])


async def test_no_interleaving_of_draws_inverts_the_order(bare: str, connect: Connect) -> None:
    for seed in range(8):
        await play(connect, random.Random(seed), rounds=30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
async def test_no_interleaving_of_draws_inverts_the_order_long(
    bare: str, connect: Connect, seed: int
) -> None:
    await play(connect, random.Random(seed), rounds=300)


async def test_the_interleavings_find_a_draw_without_its_lock(bare: str, connect: Connect) -> None:
    """Breaks the rule on purpose: the lock comes after the number."""
    wrong = ("begin", "mark", "next", "last", "lock", "write", "commit")
    with pytest.raises(AssertionError):
        for seed in range(20):
            await play(connect, random.Random(seed), rounds=30, steps=wrong)


# ---- When the number is drawn --------------------------------------------------------------------


async def test_a_writer_that_waits_for_a_row_has_no_number_yet(
    storage: PsqlStorage, connect: Connect
) -> None:
    first, plain, watcher = await connect(), await connect(), await connect()
    await begin(first)
    await insert(first, "roads", "r")
    await first.execute("COMMIT")
    await begin(first)
    await first.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '1')")
    await begin(plain)
    blocked = asyncio.create_task(
        plain.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{a}', '2')")
    )
    await until_blocked(watcher, plain)

    async def library() -> None:
        async with storage.write("lib") as session:
            feature = {"type": "Feature", "id": "r", "geometry": None, "properties": {"n": 1}}
            await session.update("roads", [feature])

    waiting = asyncio.create_task(library())

    async def two_wait() -> bool:
        count: int = await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return count == 2

    await until(two_wait)
    assert await open_draws(watcher) == [first.get_server_pid()]
    await first.execute("COMMIT")
    await blocked
    await plain.execute("COMMIT")
    await waiting
    await publish(watcher)
    await check_log(watcher)
    assert await watcher.fetchval("SELECT count(*) FROM roads_hst") == 3


async def test_a_draw_in_a_rolled_back_savepoint_is_forgotten(bare: str, connect: Connect) -> None:
    writer, other = await connect(), await connect()
    await begin(writer)
    await writer.execute("SAVEPOINT s")
    lost = await sign(writer)
    await begin(other)
    between = await sign(other)
    await other.execute("COMMIT")
    await publish(other)
    assert between not in await published(other)
    await writer.execute("ROLLBACK TO SAVEPOINT s")
    assert await open_draws(other) == []
    await publish(other)
    assert between in await published(other)
    kept = await sign(writer)
    assert lost < between < kept
    assert await open_draws(other) == [writer.get_server_pid()]
    await writer.execute("COMMIT")
    await publish(other)
    assert (await published(other))[-2:] == [between, kept]
    await check_log(other)


async def test_a_released_savepoint_keeps_its_draw(bare: str, connect: Connect) -> None:
    writer, other = await connect(), await connect()
    await begin(writer)
    await writer.execute("SAVEPOINT s")
    txn = await sign(writer)
    await writer.execute("RELEASE SAVEPOINT s")
    await writer.execute("SAVEPOINT t")
    assert await sign(writer, "again") == txn
    await writer.execute("ROLLBACK TO SAVEPOINT t")
    assert await open_draws(other) == [writer.get_server_pid()]
    await writer.execute("COMMIT")
    await publish(other)
    await check_log(other, [txn])


# ---- What holds publication back, and what does not ----------------------------------------------


@asynccontextmanager
async def _endless_copy(connection: Direct) -> AsyncIterator[None]:
    """A COPY that has begun and gets no more rows until the block ends."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def rows() -> AsyncIterator[bytes]:
        yield b"1\n"
        begun.set()
        await end.wait()

    copy = asyncio.create_task(
        connection.copy_to_table("foreign_table", schema_name="public", source=rows())
    )
    await begun.wait()
    try:
        yield
    finally:
        end.set()
        await copy


async def test_foreign_long_writers_do_not_hold_publication_back(
    bare: str, connect: Connect
) -> None:
    table, index, advisory = await connect(), await connect(), await connect()
    await table.execute("CREATE TABLE public.foreign_table (a int)")
    await table.execute("BEGIN")
    await table.execute("INSERT INTO public.foreign_table SELECT generate_series(1, 10)")
    await index.execute("BEGIN")
    await index.execute("CREATE TABLE public.other_table (a int)")
    await index.execute("CREATE INDEX ON public.other_table (a)")
    await advisory.execute("BEGIN")
    await advisory.execute("SELECT pg_advisory_xact_lock(1), pg_current_xact_id()")
    async with _endless_copy(await connect()):
        writer = await connect()
        await begin(writer)
        txn = await sign(writer)
        await writer.execute("COMMIT")
        await publish(writer)
        assert txn in await published(writer)
        assert await open_draws(writer) == []
    await check_log(writer)


async def test_an_open_draw_in_another_database_does_not_hold_publication_back(
    bare: str, connect: Connect, database_factory: DatabaseFactory
) -> None:
    with database_factory.fresh() as elsewhere:
        first = await asyncpg.connect(elsewhere)
        await install(first, "naksha", "other", 8)
        await first.close()
        stranger = await connect_to(elsewhere)
        await begin(stranger)
        await sign(stranger)
        writer = await connect()
        await begin(writer)
        txn = await sign(writer)
        await writer.execute("COMMIT")
        await publish(writer)
        assert txn in await published(writer)
        assert await open_draws(writer) == []
        stranger.terminate()


async def test_an_open_draw_holds_publication_back_and_is_named(
    storage: PsqlStorage, connect: Connect
) -> None:
    idle, writer = await connect(application_name="the idle one"), await connect()
    await begin(idle)
    low = await sign(idle)
    await begin(writer)
    high = await sign(writer)
    await writer.execute("COMMIT")
    assert await storage.wait_published(high, 0.05) is None
    status = await storage.publication()
    assert status.unpublished == 1
    assert status.held_back_by is not None
    assert f"backend {idle.get_server_pid()} (the idle one)" in status.held_back_by
    assert status.held_back_since_ms is not None
    await idle.execute("COMMIT")
    assert await storage.wait_published(high, 60) is not None
    status = await storage.publication()
    assert (status.unpublished, status.held_back_by, status.last_txn) == (0, None, high)
    await check_log(writer, [low, high])


async def test_an_open_draw_that_is_rolled_back_lets_publication_go_on(
    storage: PsqlStorage, connect: Connect
) -> None:
    idle, writer = await connect(), await connect()
    await begin(idle)
    await sign(idle)
    await begin(writer)
    high = await sign(writer)
    await writer.execute("COMMIT")
    await idle.execute("ROLLBACK")
    assert await storage.wait_published(high, 60) is not None


async def test_a_prepared_transaction_holds_publication_back() -> None:
    """Its locks belong to no backend, but its number is open all the same."""
    settings = {"fsync": False, "max_prepared_transactions": 4}
    with PostgresCluster(settings) as cluster:
        cluster.create_database("two_phase")
        dsn = cluster.dsn("two_phase")
        first = await asyncpg.connect(dsn)
        await install(first, "naksha", "test", 7)
        await first.close()
        writer, other = await connect_to(dsn), await connect_to(dsn)
        await begin(writer)
        first_of_the_day = await sign(writer)
        await writer.execute("COMMIT")
        await begin(writer)
        low = await sign(writer)
        await writer.execute("PREPARE TRANSACTION 'one'")
        await begin(other)
        high = await sign(other)
        await other.execute("COMMIT")
        await publish(other)
        assert await published(other) == [first_of_the_day]
        held_by = await other.fetchval("SELECT held_by FROM naksha_publication()")
        assert "prepared" in held_by
        await writer.execute("COMMIT PREPARED 'one'")
        await publish(other)
        assert await published(other) == [first_of_the_day, low, high]
        await writer.close()
        await other.close()


async def test_another_default_isolation_of_the_database_does_no_harm(
    bare: str, connect: Connect
) -> None:
    """With a snapshot older than the locks, a number could be skipped for ever."""
    admin = await connect()
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(
        f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'"
    )
    strict = await connect()
    with pytest.raises(asyncpg.PostgresError) as refused:
        await strict.fetch("SELECT * FROM naksha_publish()")
    assert refused.value.sqlstate == "N0009"
    storage = await PsqlStorage.open(bare, "test")
    try:
        async with storage.write("app") as session:
            await session.message("m", "text")
        assert session.txn is not None
        assert await storage.wait_published(session.txn, 60) is not None
    finally:
        await storage.close()


# ---- Waking and electing -------------------------------------------------------------------------


async def test_writers_notify_only_a_sequencer_that_sleeps(bare: str, connect: Connect) -> None:
    writer, sequencer, ear = await connect(), await connect(), await connect()
    heard: list[object] = []
    await ear.add_listener("naksha_written", lambda *args: heard.append(args[3]))

    async def write(times: int) -> None:
        for _ in range(times):
            await begin(writer)
            await insert(writer, "roads", f"r{random.random()}")
            await sign(writer)
            await writer.execute("COMMIT")

    await write(5)
    await ear.execute("SELECT 1")
    assert heard == []
    assert await sequencer.fetchval(ASLEEP)
    await write(3)
    await until(lambda: _at_least(heard, 3))
    await sequencer.execute("SELECT pg_advisory_unlock_all()")
    await write(5)
    await writer.execute("NOTIFY naksha_written, 'end'")
    await until(lambda: _at_least(heard, 4))
    assert heard[3:] == ["end"]


async def _at_least(things: list[object], count: int) -> bool:
    return len(things) >= count


async def _sleeps(watcher: Direct) -> bool:
    found: bool = await watcher.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
        " AND objid = 3 AND mode = 'ExclusiveLock' AND granted"
        " AND classid = 'naksha_tx_object_id_seq'::regclass)"
    )
    return found


async def test_plain_sql_wakes_a_sleeping_sequencer(storage: PsqlStorage, connect: Connect) -> None:
    """Elected and asleep it waits for ever, so only the notification can have told it."""
    writer = await connect()
    for n in range(5):
        await until(lambda: _sleeps(writer))
        await begin(writer)
        await insert(writer, "roads", f"r{n}")
        txn = await draw(writer)
        await writer.execute("COMMIT")

        async def is_published(txn: int = txn) -> bool:
            return txn in await published(writer)

        await until(is_published)
    await check_log(writer)


async def test_two_storages_in_one_database_are_independent(
    bare: str, storage: PsqlStorage, connect: Connect
) -> None:
    second = await PsqlStorage.open(bare, "second", schema="se cond")
    try:
        here, there = await connect(), await connect("se cond")
        await begin(here)
        held = await sign(here)
        async with second.write("app") as session:
            await session.message("m", "text")
        assert session.txn is not None
        version = await second.wait_published(session.txn, 60)
        assert version is not None
        assert version.seq_number == 1
        assert (await second.publication()).held_back_by is None
        assert await open_draws(there) == []
        await here.execute("COMMIT")
        assert await storage.wait_published(held, 60) is not None
        await check_log(here)
        await check_log(there)
        assert (await second.resolve(HEAD)).seq_number == 1
    finally:
        await second.close()


# ---- Load and accidents --------------------------------------------------------------------------


async def _load(storage: PsqlStorage, connect: Connect, writers: int, rounds: int) -> None:
    """Writers that commit, roll back, roll back to savepoints and are cancelled, all at once."""
    kept: list[int] = []
    canceller = await connect()
    connections = [await connect() for _ in range(writers)]

    async def work(number: int) -> None:
        dice = random.Random(number)
        connection = connections[number]
        for n in range(rounds):
            try:
                await begin(connection, f"writer {number}")
                if dice.random() < 0.2:
                    await connection.execute("SAVEPOINT s")
                    await sign(connection, "lost")
                    await connection.execute("ROLLBACK TO SAVEPOINT s")
                txn = await sign(connection, f"{number}.{n}")
                if dice.random() < 0.3:
                    await insert(connection, "roads", f"{number}.{n}")
                if dice.random() < 0.3:
                    await connection.execute("ROLLBACK")
                else:
                    await connection.execute("COMMIT")
                    kept.append(txn)
            except asyncpg.QueryCanceledError:
                await connection.execute("ROLLBACK")

    async def cancel() -> None:
        dice = random.Random(99)
        while True:
            pid = dice.choice(connections).get_server_pid()
            await canceller.execute("SELECT pg_cancel_backend($1)", pid)
            await asyncio.sleep(0.003)

    cancelling = asyncio.create_task(cancel())
    await asyncio.gather(*(work(n) for n in range(writers)))
    cancelling.cancel()
    await asyncio.gather(cancelling, return_exceptions=True)
    watcher = await connect()
    await until(lambda: _all_published(storage))
    await check_log(watcher, kept)
    assert await advisory_locks(watcher, *connections) == []


async def _all_published(storage: PsqlStorage) -> bool:
    return (await storage.publication()).unpublished == 0


async def test_twelve_writers_leave_no_hole_and_no_inversion(
    storage: PsqlStorage, connect: Connect
) -> None:
    await _load(storage, connect, writers=12, rounds=40)


@pytest.mark.long
async def test_twelve_writers_leave_no_hole_and_no_inversion_long(
    storage: PsqlStorage, connect: Connect
) -> None:
    await _load(storage, connect, writers=12, rounds=2000)


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_nothing_leaks_when_a_writer_is_stopped_at_a_random_moment(
    bare: str, connect: Connect, how: str
) -> None:
    """Draw, roll to another day, write, publish: whatever was going on, the locks are gone."""
    dice = random.Random(how)
    executioner, writer = await connect(), await connect()
    day = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
    for n in range(60):
        if writer.is_closed():
            writer = await connect()
        day += timedelta(days=1)
        work = asyncio.create_task(_accident(writer, day, n))
        await asyncio.sleep(dice.random() * 0.02)
        await executioner.execute(f"SELECT pg_{how}_backend($1)", writer.get_server_pid())
        await asyncio.gather(work, return_exceptions=True)
        if not writer.is_closed():
            await writer.execute("ROLLBACK")
            assert await advisory_locks(executioner, writer) == []
    await until(lambda: _no_locks(executioner))
    await begin(executioner)
    txn = await sign(executioner)
    await executioner.execute("COMMIT")
    await publish(executioner)
    await check_log(executioner, [txn])


async def _no_locks(watcher: Direct) -> bool:
    return await advisory_locks(watcher) == []


async def _accident(writer: Direct, day: datetime, n: int) -> None:
    await writer.execute("BEGIN")
    await writer.execute("SELECT naksha_tx_start('app', NULL, $1, false)", day)
    await sign(writer)
    await insert(writer, "roads", f"r{n}")
    await writer.execute("COMMIT")
    await publish(writer)


async def test_the_rollover_lock_survives_no_hail_of_cancels(bare: str, connect: Connect) -> None:
    """A lock left behind here would stop all writers at the next midnight."""
    writer, bomber, watcher = await connect(), await connect(), await connect()
    pid = writer.get_server_pid()
    hail = asyncio.create_task(
        bomber.execute(f"DO $$ BEGIN LOOP PERFORM pg_cancel_backend({pid}); END LOOP; END $$")
    )
    for n in range(3000):
        with contextlib.suppress(asyncpg.QueryCanceledError):
            await writer.execute(f"SELECT naksha_tx_roll({20300101 + n} * 100000000000)")
    await watcher.execute("SELECT pg_terminate_backend($1)", bomber.get_server_pid())
    await asyncio.gather(hail, return_exceptions=True)
    assert await advisory_locks(watcher, writer) == []


async def test_a_storage_closes_while_a_notification_arrives(
    bare: str, storage: PsqlStorage, connect: Connect
) -> None:
    """A wake-up and the cancellation within a few turns of the loop: neither hides the other."""
    watcher = await connect()
    for turns in range(6):
        await until(lambda: _sleeps(watcher))
        second = await PsqlStorage.open(bare, "test", pool_max=2)
        # Not elected, it looks again and again; it is at rest once it has looked.
        await second.publication()
        await asyncio.sleep(0.1)
        second._sequencer.poke()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await second.close()
