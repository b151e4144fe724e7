"""The number of statements of a write, and writes whose response is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, Unavailable
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.spi.changes import Delete, Put
from naksha.spi.storage import Storage, WriteSession
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite_support import Handle, point
from tests.psql.proxy import proxy_to
from tests.psql.read.branches import new_branch
from tests.psql.support import Connect, begin, check_log, until
from tests.psql.write.replay import check_intervals
from tests.psql.write.statement_log import PUBLISH, StatementLog

Work = Callable[[WriteSession], Awaitable[object]]
OTHER_MAX = 5
"""Round trips of any write, publication included."""


async def annotated(session: WriteSession) -> None:
    await session.message("why", "because", if_changed=True)
    await session.upsert("roads", [point("c", n=9)], commit=True)


SINGLE: dict[str, Work] = {
    "create": lambda s: s.create("roads", [point("a"), point("b")], commit=True),
    "update": lambda s: s.update("roads", [point("a", n=1)], commit=True),
    "upsert": lambda s: s.upsert("roads", [point("a", n=2), point("c")], commit=True),
    "delete": lambda s: s.delete("roads", ["a", "b"], commit=True),
    "with a message if changed": annotated,
    "restore": lambda s: s.restore("roads", ["a"], commit=True),
    "all kinds": lambda s: s.apply(
        "roads",
        [Put("create", [point("d")]), Put("update", [point("a", n=3)]), Delete(["c"])],
        commit=True,
    ),
}


async def read_and_write(session: WriteSession) -> None:
    page = await session.page("roads", Query(ids=("a",)))
    (state,) = page.states
    await session.apply("roads", [Put("upsert", [point("a", n=4)]), Delete(["d"])], commit=True)
    assert state.id == "a"


async def with_message(session: WriteSession) -> None:
    await session.upsert("roads", [point("a", n=5)])
    await session.message("why", "because")


OTHER: dict[str, Work] = {
    "read and write": read_and_write,
    "without commit": lambda s: s.upsert("roads", [point("a", n=6)]),
    "with a message": with_message,
    "delete": lambda s: s.delete("roads", ["a"], commit=True),
    "purge": lambda s: s.purge("roads", ["a"], commit=True),
    "message": lambda s: s.message("why", "because"),
    "new collection": lambda s: s.create_collection(CollectionInfo(id="fresh")),
    "kept object": lambda s: s.store_object("kind", "id", {}),
    "merge": lambda s: s.upsert("roads", [point("b")], merge=True),
}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> StatementLog:
    return StatementLog(monkeypatch)


@pytest.fixture
async def storage(log: StatementLog, bare: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(bare, "test")
    # What is read and made once, such as today's partition of the history.
    await opened.run(lambda s: s.upsert("roads", [point("warm")]), "app")
    await opened.run(lambda s: s.delete("roads", ["warm"]), "app")
    await settled(opened)
    yield opened
    await opened.close()


async def settled(storage: PsqlStorage) -> None:
    """Publish, and let the sequencer go to sleep."""

    async def is_published() -> bool:
        return (await storage.publication()).unpublished == 0

    await until(is_published)
    await asyncio.sleep(0.05)


async def written(storage: Storage, work: Work) -> int | None:
    txn: list[int | None] = []

    async def noted(session: WriteSession) -> None:
        await work(session)
        txn.append(session.txn)

    await storage.run(noted, "app")
    return txn[-1]


# ---- Counted -------------------------------------------------------------------------------------


async def test_a_single_write_is_one_statement_and_its_publication_another(
    storage: PsqlStorage, log: StatementLog
) -> None:
    for name, work in SINGLE.items():
        await settled(storage)
        log.take()
        txn = await written(storage, work)
        assert len(log.write()) == 1, name
        assert txn is not None
        version = await storage.wait_published(txn)
        assert version is not None
        assert version.txn == txn
        assert all(PUBLISH in each for each in log.take() if "advisory" not in each)


async def test_a_single_write_on_a_branch_is_one_statement(
    storage: PsqlStorage, log: StatementLog
) -> None:
    branch = (await new_branch(storage)).storage
    await branch.run(lambda s: s.upsert("roads", [point("warm")]), "app")
    await branch.run(lambda s: s.delete("roads", ["warm"]), "app")
    for name, work in SINGLE.items():
        await settled(storage)
        log.take()
        await written(branch, work)
        assert len(log.write()) == 1, name


async def test_waiting_for_publication_is_one_statement(
    storage: PsqlStorage, log: StatementLog
) -> None:
    """Also for many at once, and for those that another instance has published."""
    txns = [await written(storage, SINGLE["upsert"])]
    await settled(storage)
    log.take()
    assert all([await storage.wait_published(txn or 0) for txn in txns])
    assert [PUBLISH in each for each in log.take()] == [True]

    async def write(n: int) -> None:
        txn = await written(storage, lambda s: s.upsert("roads", [point(f"w{n}")], commit=True))
        version = await storage.wait_published(txn or 0)
        assert version is not None
        assert version.txn == txn

    await asyncio.gather(*(write(n) for n in range(8)))
    await settled(storage)


async def test_any_write_is_few_statements(storage: PsqlStorage, log: StatementLog) -> None:
    for work in SINGLE.values():
        await written(storage, work)
    for name, work in OTHER.items():
        await settled(storage)
        log.take()
        txn = await written(storage, work)
        statements = log.write()
        if txn is not None:
            statements.append(PUBLISH)
        assert len(statements) <= OTHER_MAX, (name, statements)


# ---- Answers that do not come, and backends that are killed --------------------------------------


@pytest.mark.parametrize("loses_request", [False, True])
async def test_a_write_whose_answer_is_lost_is_not_repeated(
    postgres_cluster: PostgresCluster, bare: str, loses_request: bool
) -> None:
    name = bare.split("@/")[1].split("?", maxsplit=1)[0]
    socket = postgres_cluster.directory / f".s.PGSQL.{postgres_cluster.port}"
    calls = 0

    async def work(session: WriteSession) -> None:
        nonlocal calls
        calls += 1
        await session.upsert("roads", [point("a", why="lose the answer")], commit=True)

    async with proxy_to(socket, mark=b"lose the answer") as proxy:
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
        storage = await PsqlStorage.open(dsn, "test")
        try:
            await storage.run(lambda s: s.create("roads", [point("a")], commit=True), "app")
            proxy.is_armed, proxy.loses_request = True, loses_request
            with pytest.raises(Unavailable):
                await storage.run(work, "app")
            assert (calls, proxy.lost) == (1, 1)
            (state,) = (await storage.page("roads", Query(ids=("a",)))).states
            assert state.xyz["version"] == (1 if loses_request else 2)
        finally:
            await storage.close()


async def test_a_write_that_is_cancelled_by_the_server_is_repeated(
    storage: PsqlStorage, connect: Connect
) -> None:
    """The connection stays open, so it is known that nothing was written."""
    await storage.run(SINGLE["upsert"], "app")
    holder, watcher = await connect(), await connect()
    await begin(holder)
    await holder.execute("SELECT FROM roads WHERE jsondata->>'id' = 'a' FOR UPDATE")
    writing = asyncio.create_task(storage.run(SINGLE["update"], "app"))
    pid = await waiting_backend(watcher)
    await watcher.execute("SELECT pg_cancel_backend($1)", pid)
    await holder.execute("ROLLBACK")
    await writing
    (state,) = (await storage.page("roads", Query(ids=("a",)))).states
    assert state.feature["properties"]["n"] == 1


async def waiting_backend(watcher: asyncpg.Connection[Any]) -> int:
    """The backend that waits for the lock of a row."""
    pids: list[int] = []

    async def waits() -> bool:
        rows = await watcher.fetch(
            "SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        )
        pids[:] = [row["pid"] for row in rows]
        return bool(pids)

    await until(waits)
    return pids[0]


async def test_a_deferred_error_at_the_commit_is_the_error_of_the_write(
    storage: PsqlStorage, connect: Connect
) -> None:
    """Deferred triggers run at the end of the statement, after its rows were sent."""
    plain = await connect()
    await plain.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'refused at the commit' USING ERRCODE = '23514'; END $$"
    )
    await plain.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON roads DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(InvalidArgument, match="refused at the commit"):
        await storage.run(lambda s: s.create("roads", [point("new")], commit=True), "app")
    await plain.execute("DROP FUNCTION refuse CASCADE")
    assert (await storage.page("roads", Query(ids=("new",)))).states == []
    await storage.run(lambda s: s.create("roads", [point("new")], commit=True), "app")


async def test_writers_whose_backends_are_killed_write_once_or_not_at_all(
    storage: PsqlStorage, connect: Connect
) -> None:
    """Each feature reported as written exists once; of the others, some may."""
    watcher = await connect()
    dice = random.Random(7)
    done: list[str] = []
    unsure: list[str] = []
    written = asyncio.Event()
    rounds = 40

    async def write(worker: int) -> None:
        for n in range(rounds):
            key = f"{worker}-{n}"
            try:
                (outcome,) = await Handle(storage, "roads").create(point(key))
            except Unavailable:
                unsure.append(key)
            else:
                assert outcome.version == 1
                done.append(key)

    async def kill() -> None:
        # The function waits for the end of the backend: none ends after the loop.
        while not written.is_set():
            await asyncio.sleep(dice.random() / 30)
            await watcher.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE pid <> $1 "
                "AND application_name = 'naksha test' AND query LIKE '%naksha_write_first%' "
                "ORDER BY random() LIMIT 1",
                watcher.get_server_pid(),
            )

    killing = asyncio.create_task(kill())
    await asyncio.gather(*(write(worker) for worker in range(6)))
    written.set()
    await killing
    await settled(storage)
    found = {state.id async for state in storage.states("roads", Query())}
    assert set(done) <= found <= {*done, *unsure}
    assert unsure, "none was killed"
    await check_intervals(watcher, "roads")
    await check_log(watcher)


async def test_the_log_row_of_a_write_is_written_once(connect: Connect) -> None:
    updates = "SELECT sum(n_tup_upd)::int FROM pg_stat_user_tables WHERE relname ~ '^naksha_tx_'"
    writer = await connect()  # nothing is published
    before = await writer.fetchval(updates)
    for id in ("a", "b"):
        await begin(writer)
        await writer.execute(
            "SELECT naksha_upsert('roads', jsonb_build_object('id', $1::text))", id
        )
        await writer.execute("COMMIT")
    await writer.execute("SELECT pg_stat_force_next_flush()")
    assert await writer.fetchval(updates) == before
    counts = await writer.fetch("SELECT created FROM naksha_tx WHERE action = 'MODIFY_FEATURES'")
    assert [row["created"] for row in counts] == [1, 1]


async def test_a_write_that_an_upgrade_overtakes_counts(connect: Connect) -> None:
    """A naksha_write that was running before the upgrade calls naksha_leaf_done, and only that."""
    writer = await connect()
    await begin(writer)
    await writer.execute(
        "SELECT naksha_leaf_done(c, naksha_txn(), ROW(NULL, NULL, 2, 1, NULL, NULL, "
        "ST_MakeEnvelope(1, 2, 3, 4, 4326), NULL, NULL)::naksha_written) "
        "FROM naksha_collection c WHERE c.id = 'roads'"
    )
    await writer.execute("COMMIT")
    row = await writer.fetchrow(
        "SELECT created, updated, deleted FROM naksha_tx WHERE action = 'MODIFY_FEATURES'"
    )
    assert row is not None
    assert tuple(row) == (0, 2, 1)
