"""Small collections, and their growth from one table of current states to sixteen."""

import asyncio
import itertools
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionChange
from naksha.model.errors import InvalidArgument, NotSupported, Retryable
from naksha.model.query import Query, QueryPart, States
from naksha.model.version import HEAD, AtSeq, VersionSelector
from naksha.psql import PsqlStorage
from naksha.psql.bulk import apply_staged
from naksha.psql.connection.driver import Direct
from naksha.psql.maintenance import growth
from naksha.psql.maintenance.growth import grow, index_tables
from naksha.spi.storage import BranchLayer, Split
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.bulk.suite_staging import written
from naksha.testing.storage.suite_support import Handle, new_collection, point, published
from tests.psql.bulk.tables import catalog_of, staging_tables
from tests.psql.support import Connect, begin, check_log, insert, restore, until, until_blocked

RELATIONS_MAX = 18
BYTES_MAX = 130_000


@pytest.fixture(autouse=True)
def not_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections do not grow in the background, unless a test lowers the limit."""
    monkeypatch.setattr(growth, "NOTICED_ROWS", 10**9)


async def partitions_of(connection: Direct, collection: str) -> int:
    leaves: int = await connection.fetchval(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass", f'"{collection}"'
    )
    kept: int = await connection.fetchval(
        "SELECT partitions FROM naksha_collection WHERE id = $1", collection
    )
    assert leaves == kept
    return kept


async def edited(storage: PsqlStorage, count: int = 60) -> Handle:
    """A collection of which some features were updated, deleted, or deleted and made again."""
    handle = await new_collection(storage, id="ways")
    ids = [f"w{n}" for n in range(count)]
    await handle.create(*(point(i, n % 90, n % 45) for n, i in enumerate(ids)))
    await handle.update(*(point(i, 1, 2, edited=True) for i in ids[::3]))
    await handle.delete(*ids[::5])
    await handle.create(*(point(i, 3, 4, again=True) for i in ids[::10]))
    await handle.published()
    return handle


async def all_versions(handle: Handle) -> list[Any]:
    """Everything that can be read of a collection."""
    last = await handle.published()
    found: list[Any] = [last]
    versions: list[VersionSelector] = [HEAD]
    versions += [AtSeq(n) for n in range(1, last.seq_number + 1)]
    for at in versions:
        for read in (handle.live, handle.deleted, handle.all):
            states = await read(at)
            found.append(sorted((state.id, state.raw) for state in states))
    return found


async def rows_of(storage: PsqlStorage, splits: list[Split]) -> list[tuple[str, int]]:
    """Id and transaction of all that some splits read."""
    found = []
    for split in splits:
        async for batch in storage.read(split, ["id", "txn"]):
            found += [(row["id"], row["txn"]) for row in batch.to_pylist()]
    return sorted(found)


# ---- Light ---------------------------------------------------------------------------------------


async def test_an_empty_collection_has_few_relations_and_bytes(connect: Connect) -> None:
    connection = await connect()
    rows = await connection.fetch(
        "SELECT k.relname, CASE WHEN k.relkind IN ('p', 'I') THEN 0 "
        "ELSE pg_relation_size(k.oid) END AS bytes FROM pg_class k WHERE k.relname ~ '^roads(_|$)' "
        "OR k.oid IN (SELECT unnest(ARRAY[t.reltoastrelid, x.indexrelid]) FROM pg_class t "
        "JOIN pg_index x ON x.indrelid = t.reltoastrelid WHERE t.relname ~ '^roads(_|$)')"
    )
    assert 0 < len(rows) <= RELATIONS_MAX
    assert sum(row["bytes"] for row in rows) <= BYTES_MAX
    assert await partitions_of(connection, "roads") == 1


async def test_tables_get_their_other_indices_when_they_are_not_small_any_more(
    storage: PsqlStorage, connect: Connect
) -> None:
    connection = await connect()
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    await roads.create(*(point(f"r{n}") for n in range(1000)))
    await places.create(*(point(f"p{n}") for n in range(400)))
    await connection.execute("ANALYZE roads, places")
    assert await index_tables(connection) == ["roads_p0"]
    assert await index_tables(connection) == []
    await roads.update(*(point(f"r{n}", 1, 1) for n in range(1000)))
    await connection.execute("ANALYZE roads_hst")
    (history,) = await index_tables(connection)
    assert history.startswith("roads_hst_")
    for table in ("roads_p0", history):
        for index in ("txn", "mrid", "qrid", "action", "tags"):
            assert await connection.fetchval("SELECT to_regclass($1)", f"{table}_{index}")
    assert not await connection.fetchval("SELECT to_regclass('places_p0_txn')")


async def test_maintenance_makes_the_other_indices(storage: PsqlStorage, connect: Connect) -> None:
    await Handle(storage, "roads").create(*(point(f"r{n}") for n in range(1000)))
    connection = await connect()
    await connection.execute("ANALYZE roads")
    await storage.maintain()
    assert await connection.fetchval("SELECT to_regclass('roads_p0_tags')")


async def test_a_table_that_is_written_to_gets_its_indices_later(
    storage: PsqlStorage, connect: Connect
) -> None:
    await Handle(storage, "roads").create(*(point(f"r{n}") for n in range(1000)))
    writer, connection = await connect(), await connect()
    await connection.execute("ANALYZE roads")
    await begin(writer)
    await insert(writer, "roads", "other")
    assert await index_tables(connection) == []
    await writer.execute("COMMIT")
    assert await index_tables(connection) == ["roads_p0"]


# ---- Growing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["library", "sql", "change"])
async def test_growth_changes_nothing_that_can_be_read(
    storage: PsqlStorage, connect: Connect, how: str
) -> None:
    handle = await edited(storage)
    before, connection = await all_versions(handle), await connect()
    if how == "library":
        assert await grow(storage._server, handle.name)
        assert not await grow(storage._server, handle.name)
    elif how == "sql":
        assert await connection.fetchval("SELECT naksha_grow('ways')")
        assert not await connection.fetchval("SELECT naksha_grow('ways')")
    else:
        info = await storage.run(
            lambda session: session.change_collection("ways", CollectionChange(partitions=16)), "a"
        )
        assert info.partitions == 16
    assert await partitions_of(connection, "ways") == 16
    after = await all_versions(handle)
    if how == "change":  # which is a version of its own
        assert after[0].seq_number == before[0].seq_number + 1
        assert after[1 : len(before)] == before[1:]
    else:
        assert after == before
    assert await staging_tables(connection) == 0
    await check_log(connection)


async def test_grown_tables_are_those_of_a_collection_that_was_made_so(
    storage: PsqlStorage, connect: Connect
) -> None:
    for points_only in (False, True):
        made, grown = f"made{points_only}".lower(), f"grown{points_only}".lower()
        await new_collection(storage, id=made, partitions=16, points_only=points_only)
        handle = await new_collection(storage, id=grown, points_only=points_only)
        await handle.create(*(point(f"f{n}") for n in range(40)))
        assert await grow(storage._server, grown)
        connection = await connect()
        wanted = await catalog_of(connection, made)
        assert len(wanted) > 300
        assert await catalog_of(connection, grown) == wanted


async def test_a_grown_collection_is_written_to_as_before(
    storage: PsqlStorage, connect: Connect
) -> None:
    handle = await edited(storage)
    assert await grow(storage._server, handle.name)
    (outcome,) = await handle.update(point("w1", 7, 7))
    assert outcome.version == 2
    await handle.delete("w2")
    await handle.restore("w2")
    connection = await connect()
    await begin(connection)
    await connection.execute(
        "UPDATE ways SET jsondata = jsonb_set(jsondata, '{properties,plain}', '1') "
        "WHERE jsondata->>'id' IN ('w3', 'w4')"
    )
    await insert(connection, "ways", "plain")
    await connection.execute("COMMIT")
    assert (await handle.get("w4")).xyz["version"] == 2
    assert (await handle.get("plain")).xyz["version"] == 1
    with pytest.raises(asyncpg.PostgresError, match="not allowed"):
        await connection.execute("TRUNCATE ways_p7")


async def test_a_number_of_partitions_is_1_or_16_and_does_not_shrink(storage: PsqlStorage) -> None:
    with pytest.raises(InvalidArgument, match="1 or 16") as wrong:
        await new_collection(storage, id="ways", partitions=4)
    assert wrong.value.field == "partitions"
    handle = await new_collection(storage, id="ways", partitions=16)
    with pytest.raises(NotSupported, match="cannot be reduced"):
        await handle.change(partitions=1)
    assert (await handle.change(partitions=16)).partitions == 16
    assert (await storage.collection("ways")).partitions == 16


async def test_indices_of_a_user_come_along(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are built before the swap, which would build them while readers wait."""
    handle, connection = await edited(storage), await connect()
    await connection.execute("CREATE INDEX ways_names ON ways ((jsondata->'properties'->>'name'))")
    swap = growth._GrowthRun._swap
    built: list[int] = []

    async def look_and_swap(self: Any, control: Direct, job: int) -> None:
        rows = await connection.fetch(
            "SELECT x.indexrelid FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid "
            "WHERE t.relname ~ $1 AND pg_get_indexdef(x.indexrelid) LIKE '%''name''%'",
            rf"^naksha_stage_{job}_p[0-9a-f]$",
        )
        built.extend(row[0] for row in rows)
        await swap(self, control, job)

    monkeypatch.setattr(growth._GrowthRun, "_swap", look_and_swap)
    assert await grow(storage._server, handle.name)
    children = await connection.fetch(
        "SELECT inhrelid FROM pg_inherits WHERE inhparent = 'ways_names'::regclass"
    )
    assert len(built) == 16
    assert sorted(row[0] for row in children) == sorted(built)


# ---- By itself -----------------------------------------------------------------------------------


async def test_maintenance_grows_what_is_large(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "GROW_ROWS", 50)
    await edited(storage)
    await Handle(storage, "roads").create(*(point(f"r{n}") for n in range(10)))
    connection = await connect()
    await connection.execute("ANALYZE ways, roads")
    await storage.maintain()
    assert await partitions_of(connection, "ways") == 16
    assert await partitions_of(connection, "roads") == 1


class Traffic:
    """Writers of the library and of plain SQL, and a reader, until a collection has grown."""

    def __init__(self, storage: PsqlStorage, shell: Direct, watcher: Direct) -> None:
        self.handle = Handle(storage, "roads")
        self.shell = shell
        self.watcher = watcher
        self.written: set[str] = set()
        self.is_over = asyncio.Event()

    async def write(self, name: str) -> None:
        for n in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
            ids = [f"{name}{n}-{m}" for m in range(10)]
            await self.handle.create(*(point(i) for i in ids))
            await self.handle.update(point(ids[0], 1, 1))
            self.written.update(ids)

    async def write_plainly(self) -> None:
        for n in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
            await begin(self.shell)
            await insert(self.shell, "roads", f"s{n}")
            await self.shell.execute("COMMIT")
            self.written.add(f"s{n}")

    async def read(self) -> None:
        while not self.is_over.is_set():
            known = set(self.written)
            found = [state.id for state in await self.handle.live()]
            assert len(found) == len(set(found))
            assert known <= set(found)
            assert await self.handle.storage.count("roads", Query()) >= len(found)

    async def end(self) -> None:
        async def has_grown() -> bool:
            info = await self.handle.storage.collection("roads")
            return info.partitions == 16

        try:
            await until(has_grown)
            await asyncio.sleep(0.3)
        finally:
            self.is_over.set()


async def test_a_collection_grows_while_it_is_written_to(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No writer fails, and no feature is lost or doubled."""
    monkeypatch.setattr(growth, "GROW_ROWS", 300)
    monkeypatch.setattr(growth, "NOTICED_ROWS", 100)
    monkeypatch.setattr(growth, "SETTLE_S", 0.1)
    watcher = await connect()
    traffic = Traffic(storage, await connect(), watcher)
    async with asyncio.timeout(100):
        await asyncio.gather(
            *(traffic.write("a"), traffic.write("b"), traffic.write_plainly()),
            *(traffic.read(), traffic.end()),
        )
    assert {state.id for state in await traffic.handle.live()} == traffic.written
    assert await partitions_of(watcher, "roads") == 16
    await published(storage)
    await check_log(watcher)


async def test_a_collection_that_is_replicated_does_not_grow_by_itself(
    storage: PsqlStorage, connect: Connect
) -> None:
    await edited(storage)
    connection = await connect()
    await connection.execute("ANALYZE ways")
    found = "SELECT * FROM naksha_collections_to_grow(10)"
    assert await connection.fetchval(found) == "ways"
    await connection.execute("CREATE PUBLICATION p FOR TABLE ways_p0")
    assert await connection.fetchval(found) is None
    assert await connection.fetchval("SELECT naksha_grow('ways')")  # on request it does


# ---- In the way ----------------------------------------------------------------------------------


async def test_a_long_reader_delays_growth_only(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "OLDER_WAIT_S_MAX", 0.5)
    handle, reader, watcher = await edited(storage), await connect(), await connect()
    await reader.execute("BEGIN")
    count = await reader.fetchval("SELECT count(*) FROM ways")
    with pytest.raises(Retryable, match="cannot be split into partitions"):
        await grow(storage._server, "ways")
    await handle.update(point("w1", 5, 5))
    assert await reader.fetchval("SELECT count(*) FROM ways") == count
    await reader.execute("COMMIT")
    assert await grow(storage._server, "ways")
    assert await partitions_of(watcher, "ways") == 16


async def test_writers_go_on_while_growth_waits_for_older_transactions(
    storage: PsqlStorage, connect: Connect
) -> None:
    handle, reader, watcher = await edited(storage), await connect(), await connect()
    await reader.execute("BEGIN")
    await reader.fetchval("SELECT count(*) FROM ways")
    growing = asyncio.create_task(grow(storage._server, "ways"))
    await asyncio.sleep(0.3)
    async with asyncio.timeout(5):
        await handle.update(point("w1", 5, 5))
    assert not growing.done()
    await reader.execute("COMMIT")
    assert await growing
    assert await partitions_of(watcher, "ways") == 16


async def test_a_reader_that_begins_meanwhile_makes_the_swap_try_again(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    await edited(storage)
    reader, other, watcher = await connect(), await connect(), await connect()
    wait = growth._GrowthRun._older_ended
    calls = 0

    async def then_read(self: Any, connection: Direct) -> None:
        nonlocal calls
        await wait(self, connection)
        calls += 1
        if calls == 2:
            await reader.execute("BEGIN")
            await reader.fetchval("SELECT count(*) FROM ways")

    monkeypatch.setattr(growth._GrowthRun, "_older_ended", then_read)
    growing = asyncio.create_task(grow(storage._server, "ways"))

    async def holds_out() -> bool:
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = $1)"
        oid = await watcher.fetchval("SELECT 'ways'::regclass::oid")
        return bool(await watcher.fetchval(waiting, oid))

    await until(holds_out)
    # A reader that comes now waits for one attempt at most.
    async with asyncio.timeout(5):
        assert await other.fetchval("SELECT count(*) FROM ways") > 0
    assert not growing.done()
    await reader.execute("COMMIT")
    assert await growing
    assert await partitions_of(watcher, "ways") == 16


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_older_snapshot_never_finds_the_collection_empty(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """pg_dump takes its snapshot before it locks the tables: before growth begins, or when the
    writers wait already."""
    await edited(storage)
    dump, count = await connect(), await (await connect()).fetchval("SELECT count(*) FROM ways")
    fill, filled = growth._GrowthRun._fill, asyncio.Event()

    async def look() -> None:
        await dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await dump.fetchval("SELECT 1 FROM naksha_storage")

    async def look_and_fill(self: Any, *values: Any) -> None:
        if is_late:
            await look()
        await fill(self, *values)
        filled.set()

    monkeypatch.setattr(growth._GrowthRun, "_fill", look_and_fill)
    if not is_late:
        await look()
    growing = asyncio.create_task(grow(storage._server, "ways"))
    if is_late:
        await filled.wait()
    await asyncio.sleep(0.5)
    assert await dump.fetchval("SELECT count(*) FROM ways") == count
    await dump.execute("COMMIT")
    assert await growing


async def test_plain_sql_waits_for_older_transactions_and_then_gives_up(
    storage: PsqlStorage, connect: Connect
) -> None:
    await edited(storage)
    shell, reader = await connect(), await connect()
    await reader.execute("BEGIN")
    await reader.fetchval("SELECT 1 FROM naksha_storage")
    with pytest.raises(asyncpg.LockNotAvailableError, match="older transactions are open"):
        await shell.fetchval("SELECT naksha_grow('ways')")
    await reader.execute("COMMIT")
    assert await shell.fetchval("SELECT naksha_grow('ways')")


async def test_an_open_transaction_of_a_writer_is_waited_for(
    storage: PsqlStorage, connect: Connect
) -> None:
    handle, writer, watcher = await edited(storage), await connect(), await connect()
    await begin(writer)
    await insert(writer, "ways", "late")
    growing = asyncio.create_task(grow(storage._server, "ways"))
    await asyncio.sleep(0.3)
    await writer.execute("COMMIT")
    assert await growing
    assert (await handle.get("late")).id == "late"
    assert await partitions_of(watcher, "ways") == 16


async def test_growth_gives_way_to_a_writer_that_has_read_the_collection(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for each other, and the server would end one of them."""
    await edited(storage)
    writer, watcher = await connect(), await connect()
    wait = growth._GrowthRun._older_ended
    calls, writing = 0, None

    async def then_write(self: Any, connection: Direct) -> None:
        nonlocal calls, writing
        await wait(self, connection)
        calls += 1
        if calls == 2:
            await begin(writer)
            await writer.fetchval("SELECT count(*) FROM ways")
            writing = asyncio.create_task(insert(writer, "ways", "late"))
            await until_blocked(watcher, writer)

    monkeypatch.setattr(growth._GrowthRun, "_older_ended", then_write)
    with pytest.raises(Retryable, match="waits to write to it"):
        await grow(storage._server, "ways")
    assert writing is not None
    await writing
    await writer.execute("COMMIT")
    assert await grow(storage._server, "ways")
    assert (await Handle(storage, "ways").get("late")).id == "late"


# ---- With everything else ------------------------------------------------------------------------


async def test_a_plan_made_before_growth_reads_the_same_after_it(
    storage: PsqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naksha.psql.bulk.splits.HEAD_SPLIT_BYTES", 1)
    handle = await edited(storage)
    last = await handle.published()
    at, every = AtSeq(last.seq_number), Query(states=States.ALL)
    plans = [
        await storage.plan("ways", query, version)
        for query in (Query(), every, Query(ids=("w1", "w2")))
        for version in (at, AtSeq(last.seq_number - 1))
    ]
    assert len(plans[0]) > 1
    before = [await rows_of(storage, plan) for plan in plans]
    assert all(before)
    assert await grow(storage._server, "ways")
    assert [await rows_of(storage, plan) for plan in plans] == before
    await handle.update(*(point(f"w{n}", 8, 8) for n in range(1, 60, 2) if n % 5))
    await handle.delete("w2")
    assert [await rows_of(storage, plan) for plan in plans] == before
    again = [await rows_of(storage, await storage.plan("ways", Query(), at))]
    assert again == before[:1]


async def test_parts_are_the_same_before_and_after_growth(storage: PsqlStorage) -> None:
    handle = await edited(storage)

    async def parts() -> list[list[str]]:
        return [
            sorted(state.id for state in await handle.states(Query(part=QueryPart(n, 5))))
            for n in range(1, 6)
        ]

    before = await parts()
    assert sum(len(part) for part in before) == len(await handle.live())
    assert await grow(storage._server, "ways")
    assert await parts() == before


async def test_a_branch_stays_what_it_is_when_its_base_grows(storage: PsqlStorage) -> None:
    handle = await edited(storage)
    base = await handle.published()
    overlay = await storage.run(lambda session: session.new_overlay(), "app")
    branch = storage.on_branch([BranchLayer(overlay, None), BranchLayer(0, base.txn)])
    on_branch = Handle(branch, "ways")
    await on_branch.update(point("w1", 9, 9, branched=True))
    before = {state.id: state.raw for state in await on_branch.live()}
    assert await grow(storage._server, "ways")
    await handle.delete("w1", "w2")
    assert {state.id: state.raw for state in await on_branch.live()} == before
    await on_branch.delete("w2")
    await on_branch.update(point("w3", 4, 4))
    assert set(before) - {state.id for state in await on_branch.live()} == {"w2"}


async def test_a_grown_collection_is_dumped_and_restored(
    storage: PsqlStorage, bare: str, database: str, postgres_cluster: PostgresCluster
) -> None:
    handle = await edited(storage)
    assert await grow(storage._server, "ways")
    await handle.update(point("w1", 5, 5))
    before = await all_versions(handle)
    restore(postgres_cluster, bare, database)
    copy = await PsqlStorage.open(database, "test")
    try:
        assert await all_versions(Handle(copy, "ways")) == before
        light = Handle(copy, "roads")
        await light.create(*(point(f"r{n}") for n in range(20)))
        assert (await copy.collection("ways")).partitions == 16
        assert (await copy.collection("roads")).partitions == 1
        assert await grow(copy._server, "roads")
        assert len(await light.live()) == 20
    finally:
        await copy.close()


async def test_a_load_into_an_empty_collection_gives_it_sixteen_partitions(
    storage: PsqlStorage, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_staged, "_FILL_FEATURES_MIN", 30)
    await written(storage, "roads", [point(f"r{n}") for n in range(30)])
    assert await partitions_of(await connect(), "roads") == 16
    assert (await storage.collection("roads")).partitions == 16
    assert len(await Handle(storage, "roads").live()) == 30


async def test_writers_wait_at_the_gate_and_go_on(storage: PsqlStorage, connect: Connect) -> None:
    """A writer that waits for growth writes to the leaves that there are then."""
    handle, control, writer = await edited(storage), await connect(), await connect()
    await control.execute("BEGIN")
    await control.fetchval("SELECT naksha_grow('ways')")
    await begin(writer)
    waiting = asyncio.create_task(
        writer.fetchval("""SELECT naksha_upsert('ways', '{"id": "later"}')""")
    )
    await until_blocked(await connect(), writer)
    await control.execute("COMMIT")
    assert await waiting
    await writer.execute("COMMIT")
    assert (await handle.get("later")).xyz["version"] == 1
