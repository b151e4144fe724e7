"""Optimal partitioning: the tree compared with brute force, its plan, version and refresh."""

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import CollectionNotFound, Unavailable
from naksha.model.geo.quadkey import QRID_DIGITS, qrid
from naksha.model.query import Query
from naksha.model.version import HEAD, AtTxn
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Connection, Direct
from naksha.psql.maintenance.partitioning import CELLS_AT_ONCE_MAX, CellReader, PartitioningStore
from naksha.psql.maintenance.partitioning_task import PARTITIONER, PartitioningTask
from naksha.psql.sql import ident, queries, sql
from naksha.spi.partitioning import features_max, partition
from tests.psql.support import by_force

MOST = 10
"""Features of a partition in these tests."""
FOREVER_S = 60.0


# ---- the tree ------------------------------------------------------------------------------------


async def tree(keys: Iterable[str], most: int) -> dict[str, int]:
    counts = Counter(keys)

    async def count(prefix: str, limit: int | None) -> int:
        await asyncio.sleep(0)
        number = sum(n for key, n in counts.items() if key.startswith(prefix))
        return number if limit is None else min(number, limit)

    return await partition(count, most)


def check_partitions(found: dict[str, int], keys: list[str], most: int) -> None:
    """All that makes a partitioning right."""
    assert sum(found.values()) == len(keys)
    for prefix, number in found.items():
        assert 1 <= len(prefix) <= QRID_DIGITS
        assert number == sum(key.startswith(prefix) for key in keys) > 0
        assert number <= most or len(prefix) == QRID_DIGITS
        for length in range(1, len(prefix)):
            assert prefix[:length] not in found, "a cell and a part of it"
        parent = prefix[:-1]
        assert parent == "" or sum(key.startswith(parent) for key in keys) > most, "cut too far"


def quadkeys() -> st.SearchStrategy[str]:
    """Quad keys that like to be close to each other."""
    heads = st.sampled_from(["0", "012301230123", "3" * 17, "31"])
    return st.builds(
        lambda head, tail: (head + tail)[:QRID_DIGITS].ljust(QRID_DIGITS, "0"),
        heads,
        st.text("0123", max_size=QRID_DIGITS),
    )


@given(st.lists(quadkeys(), max_size=60), st.integers(1, 12))
async def test_the_tree_is_the_coarsest_that_fits(keys: list[str], most: int) -> None:
    check_partitions(await tree(keys, most), keys, most)


async def test_exactly_full_is_not_cut_and_one_more_is() -> None:
    keys = [qrid(lon, 45.0) for lon in (10.0, 60.0, 100.0, 170.0)]
    assert await tree(keys, 4) == {"1": 4}
    assert await tree(keys, 3) == {"12": 2, "13": 2}


async def test_points_on_top_of_each_other_end_at_the_last_level() -> None:
    key = qrid(8.5, 47.4)
    assert await tree([key] * 7, 3) == {key: 7}


async def test_a_failing_cell_stops_the_others() -> None:
    ended = []

    async def count(prefix: str, limit: int | None) -> int:
        if prefix == "2":
            raise Unavailable("gone")
        try:
            await asyncio.sleep(FOREVER_S)
        finally:
            ended.append(prefix)
        return 0

    with pytest.raises(Unavailable):
        await partition(count, 1)
    assert sorted(ended) == ["0", "1", "3"]


@pytest.mark.parametrize(
    ("byte_size", "most"),
    [(1, 1_000_000), (10, 1_000_000), (1024, 10_240), (3_000_000, 3), (99_000_000, 1), (0, 10**6)],
)
def test_a_partition_has_ten_mebibytes_and_a_million_features_at_most(
    byte_size: int, most: int
) -> None:
    assert features_max(byte_size) == most


# ---- in the database -----------------------------------------------------------------------------


@pytest.fixture
async def storage(database: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(database, "parts")
    async with opened.write("setup") as session:
        await session.create_collection(CollectionInfo(id="roads", optimal_partitioning=True))
    yield opened
    await opened.close()


@pytest.fixture
async def connection(storage: PsqlStorage, database: str) -> AsyncIterator[Direct]:
    opened = await asyncpg.connect(database, server_settings={"search_path": "naksha, public"})
    small = 10 * 1024 * 1024 // MOST
    await by_force(opened, "UPDATE naksha_collection SET byte_size = $1", small)
    yield opened
    await opened.close()


def points(count: int, chance: random.Random, name: str = "f") -> list[dict[str, Any]]:
    """Most of them in a few towns; every tenth has no geometry."""
    towns = [(13.4, 52.5), (-74.0, 40.7), (151.2, -33.9)]
    made = []
    for n in range(count):
        lon, lat = chance.choice(towns)
        place = [lon + chance.gauss(0, 1), lat + chance.gauss(0, 1)]
        shape = None if n % 10 == 0 else {"type": "Point", "coordinates": place}
        made.append({"type": "Feature", "id": f"{name}{n}", "geometry": shape, "properties": {}})
    return made


async def write(storage: PsqlStorage, features: list[dict[str, Any]], c: str = "roads") -> int:
    async with storage.write("app") as session:
        await session.upsert(c, features)
        assert session.txn is not None
        return session.txn


async def keys_at(storage: PsqlStorage, txn: int | None = None) -> list[str | None]:
    at = HEAD if txn is None else AtTxn(txn)
    return [
        state.feature["properties"]["@ns:com:here:xyz"]["qrid"]
        async for state in storage.states("roads", Query(), at)
    ]


def check(found: dict[str, int], keys: list[str | None], most: int = MOST) -> None:
    found = dict(found)
    assert found.pop("", 0) == keys.count(None)
    check_partitions(found, [key for key in keys if key is not None], most)


async def stored(connection: Direct) -> dict[str, Any]:
    (row,) = await connection.fetch("SELECT jsondata FROM roads_meta")
    feature: dict[str, Any] = msgspec.json.decode(row[0])
    return feature


async def test_the_tree_of_a_collection(storage: PsqlStorage, connection: Direct) -> None:
    txn = await write(storage, points(400, random.Random(1)))
    found = await storage.partitioning("roads")
    check(found, await keys_at(storage))
    assert found[""] == 40
    assert len(found) > 40
    feature = await stored(connection)
    assert feature["id"] == "naksha:partitioning"
    assert feature["type"] == "Feature"
    properties = feature["properties"]
    assert properties["by_qrid"] == found
    assert (properties["txn"], properties["seq"], properties["max"]) == (str(txn), 2, MOST)
    assert properties["computedAt"] > 1_700_000_000_000


async def test_no_features_no_partitions(storage: PsqlStorage, connection: Direct) -> None:
    assert await storage.partitioning("roads") == {}
    with pytest.raises(CollectionNotFound):
        await storage.partitioning("nowhere")


async def test_unknown_sizes_are_measured(storage: PsqlStorage, connection: Direct) -> None:
    await by_force(connection, "UPDATE naksha_collection SET byte_size = -1")
    big = points(50, random.Random(2))
    big[7]["properties"]["text"] = "x" * 1024 * 1024
    await write(storage, big)
    check(await storage.partitioning("roads"), await keys_at(storage), 9)
    assert (await stored(connection))["properties"]["max"] == 9


async def test_updates_and_deletes_move_and_remove(
    storage: PsqlStorage, connection: Direct
) -> None:
    features = points(100, random.Random(3))
    await write(storage, features)
    await storage.partitioning("roads")
    async with storage.write("app") as session:
        await session.delete("roads", [f"f{n}" for n in range(30, 60)])
        await session.update(
            "roads", [f | {"id": f"f{n}"} for n, f in enumerate(features[60:])][:30]
        )
    check(await storage.partitioning("roads"), await keys_at(storage))


async def test_unpublished_transactions_are_not_counted(
    storage: PsqlStorage, connection: Direct
) -> None:
    """A transaction with a lower number is open, so nothing after it is published."""
    features = points(60, random.Random(4))
    first = await write(storage, features)
    await storage.wait_published(first)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT naksha_tx_start('slow'), naksha_txn()")
    try:
        moved = points(60, random.Random(5)) + points(20, random.Random(6), "new")
        async with storage.write("app") as session:
            await session.upsert("roads", moved)
            await session.delete("roads", ["f1", "f2", "f3"])
        found = await storage.partitioning("roads")
        check(found, await keys_at(storage, first))
        assert sum(found.values()) == 60
        assert (await stored(connection))["properties"]["txn"] == str(first)
    finally:
        await transaction.rollback()
    check(await storage.partitioning("roads"), await keys_at(storage))


async def test_it_is_computed_once_per_version_of_the_collection(
    storage: PsqlStorage, connection: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(storage, points(50, random.Random(7)))
    found = await storage.partitioning("roads")
    async with storage.write("app") as session:
        await session.create_collection(CollectionInfo(id="other"))
    await write(storage, points(5, random.Random(7)), "other")

    async def never(*_: object) -> int:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(CellReader, "cell", never)
        assert await storage.partitioning("roads") == found
        await write(storage, points(60, random.Random(8)))
        with pytest.raises(AssertionError):
            await storage.partitioning("roads")
    check(await storage.partitioning("roads"), await keys_at(storage))


async def test_an_unreadable_partitioning_is_computed_again(
    storage: PsqlStorage, connection: Direct
) -> None:
    await write(storage, points(20, random.Random(7)))
    found = await storage.partitioning("roads")
    old = """UPDATE roads_meta SET jsondata = '{"properties": {"old": 1}}'"""
    await by_force(connection, old)
    assert await storage.partitioning("roads") == found
    assert (await stored(connection))["properties"]["by_qrid"] == found


async def test_a_collection_without_history_is_read_at_a_version_that_stays(
    storage: PsqlStorage, connection: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with storage.write("app") as session:
        await session.change_collection("roads", CollectionChange(history_enabled=False))
    await write(storage, points(60, random.Random(9)))
    plain = CellReader.nowhere
    moved = False

    async def disturbed(reader: CellReader) -> int:
        nonlocal moved
        if not moved:
            moved = True
            await write(storage, points(70, random.Random(10)))
        return await plain(reader)

    monkeypatch.setattr(CellReader, "nowhere", disturbed)
    found = await storage.partitioning("roads")
    check(found, await keys_at(storage))
    assert sum(found.values()) == 70


async def test_an_older_result_never_replaces_a_newer_one(
    storage: PsqlStorage, connection: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(storage, points(30, random.Random(11)))
    plain = CellReader.nowhere
    nested: list[dict[str, int]] = []

    async def overtaken(reader: CellReader) -> int:
        if not nested:
            nested.append({})
            await write(storage, points(40, random.Random(12)))
            nested[0] = await storage.partitioning("roads")
        return await plain(reader)

    monkeypatch.setattr(CellReader, "nowhere", overtaken)
    assert sum((await storage.partitioning("roads")).values()) == 30
    assert (await stored(connection))["properties"]["by_qrid"] == nested[0]


async def test_cells_are_counted_through_the_index(
    storage: PsqlStorage, connection: Direct
) -> None:
    txn = await write(storage, points(3000, random.Random(13)))
    await write(storage, points(500, random.Random(14)))
    await connection.execute("SELECT naksha_grow('roads')")
    await connection.execute(
        "SELECT naksha_index_table(tbl, kind, points_only) FROM naksha_tables_to_index('roads', 0)"
    )
    await connection.execute("ANALYZE roads; ANALYZE roads_hst")
    tables = {"head": ident("roads"), "hst": ident("roads_hst")}
    for name, types, values in (
        ("partition_cell", "text, text, int8, int8", f"'1', '14', {txn}, 11"),
        ("partition_cell", "text, text, int8, int8", f"'120223', '1202234', {txn}, NULL"),
        ("partition_nowhere", "int8", f"{txn}"),
    ):
        async with connection.transaction():
            await connection.execute(queries()["partition_plan"])
            await connection.execute(f"PREPARE counted ({types}) AS {sql(name, **tables)}")
            rows = await connection.fetch(
                f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF) EXECUTE counted ({values})"
            )
            await connection.execute("DEALLOCATE counted")
        plan = [row[0].strip() for row in rows]
        places = [n for n, line in enumerate(plan) if " on naksha.roads" in line]
        assert len(places) >= 17
        for place in places:
            assert re.match(r"(->  )?Index Scan using \w+_qrid on ", plan[place]), plan
            condition = next(line for line in plan[place:] if line.startswith("Index Cond"))
            assert "->> 'qrid'" in condition
            if name == "partition_cell":
                assert "->> 'txn'" in condition
                assert not plan[plan.index(condition) + 1].startswith("Filter"), "JSON is parsed"


# ---- which connections ---------------------------------------------------------------------------

Source = Callable[[int], Any]


def counted(storage: PsqlStorage, used: list[int]) -> Source:
    """A source that tells how many of its connections are in use whenever one is taken."""
    open_now = 0

    @asynccontextmanager
    async def source(_: int) -> AsyncIterator[Connection]:
        nonlocal open_now
        open_now += 1
        used.append(open_now)
        try:
            async with storage._connection() as connection:
                yield connection
        finally:
            open_now -= 1

    return source


async def nothing() -> None:
    return None


async def test_cells_are_read_side_by_side_but_not_by_too_many(
    storage: PsqlStorage, connection: Direct
) -> None:
    await write(storage, points(400, random.Random(15)))
    await storage.partitioning("roads")
    used: list[int] = []
    found = await PartitioningStore(counted(storage, used), nothing).refresh("roads")
    check(found, await keys_at(storage))
    assert max(used) == CELLS_AT_ONCE_MAX


async def test_a_pool_of_one_connection_is_enough(
    storage: PsqlStorage, connection: Direct, database: str
) -> None:
    await write(storage, points(100, random.Random(15)))
    small = await PsqlStorage.open(database, "parts", pool_max=1)
    try:
        async with asyncio.timeout(FOREVER_S):
            check(await small.partitioning("roads"), await keys_at(storage))
    finally:
        await small.close()


async def test_reads_rotate_over_replicas_and_spare_the_primary(
    storage: PsqlStorage, connection: Direct
) -> None:
    await write(storage, points(200, random.Random(16)))
    await storage.partitioning("roads")
    primary: list[int] = []
    replicas: list[list[int]] = [[], [], []]
    sources = [counted(storage, used) for used in replicas]
    found = await PartitioningStore(counted(storage, primary), nothing, sources).refresh("roads")
    check(found, await keys_at(storage))
    assert len(primary) == 2, "to begin with and to keep the result"
    sizes = sorted(len(used) for used in replicas)
    assert sizes[0] > 0
    assert sizes[-1] - sizes[0] <= 1


async def test_a_replica_that_lags_or_is_dead_is_replaced_by_the_primary(
    storage: PsqlStorage, connection: Direct, caplog: pytest.LogCaptureFixture
) -> None:
    await write(storage, points(100, random.Random(17)))
    await storage.partitioning("roads")

    def dead(_: int) -> AbstractAsyncContextManager[Connection]:
        raise Unavailable("no route")

    @asynccontextmanager
    async def lagging(_: int) -> AsyncIterator[Connection]:
        async with storage._connection() as behind:
            path = await behind.fetchval("SHOW search_path")
            await behind.execute("CREATE TEMP TABLE naksha_version (txn int8)")
            await behind.execute("SET search_path = pg_temp, naksha, public")
            try:
                yield behind
            finally:
                await behind.execute(f"SET search_path = {path}; DROP TABLE pg_temp.naksha_version")

    used: list[int] = []
    replicas: list[Source] = [dead, lagging]
    for replica in replicas:
        used.clear()
        found = await PartitioningStore(counted(storage, used), nothing, [replica]).refresh("roads")
        check(found, await keys_at(storage))
        assert len(used) > 10
    assert "no route" in caplog.text


# ---- in the background ---------------------------------------------------------------------------


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(FOREVER_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


def partitioner(storage: PsqlStorage, dsn: str, interval_s: float = 3600) -> PartitioningTask:
    async def connect() -> Direct:
        return await asyncpg.connect(dsn, server_settings={"search_path": "naksha, public"})

    news = storage._sequencer.wait_for_version
    return PartitioningTask(storage._partitionings, connect, news, interval_s, pause_s=0.01)


async def test_only_what_was_written_to_and_wants_it_is_refreshed(
    storage: PsqlStorage, connection: Direct, database: str
) -> None:
    async with storage.write("app") as session:
        await session.create_collection(CollectionInfo(id="ways", optimal_partitioning=True))
        await session.create_collection(CollectionInfo(id="off"))
    for name in ("roads", "ways", "off"):
        await write(storage, points(20, random.Random(18)), name)
    await storage.resolve(HEAD)
    worker = partitioner(storage, database)
    assert await worker.round() == ["roads", "ways"]
    assert await worker.round() == []
    txn = await write(storage, points(30, random.Random(18)), "ways")
    await storage.wait_published(txn)
    assert await worker.round() == ["ways"]


async def test_one_process_at_a_time(
    storage: PsqlStorage, connection: Direct, database: str
) -> None:
    await write(storage, points(20, random.Random(19)))
    worker = partitioner(storage, database)
    await connection.fetchval("SELECT pg_advisory_lock(naksha_lock_class(), $1)", PARTITIONER)
    assert await worker.round() == []
    await connection.fetchval("SELECT pg_advisory_unlock(naksha_lock_class(), $1)", PARTITIONER)
    assert await worker.round() == ["roads"]


async def test_a_publication_wakes_it(
    storage: PsqlStorage, connection: Direct, database: str
) -> None:
    worker = partitioner(storage, database)
    worker.start()
    try:
        for size in (20, 30):
            await write(storage, points(size, random.Random(20)))

            async def done(size: int = size) -> bool:
                rows = await connection.fetch("SELECT jsondata FROM roads_meta")
                parts = [msgspec.json.decode(row[0])["properties"]["by_qrid"] for row in rows]
                return any(sum(part.values()) == size for part in parts)

            await eventually(done)
    finally:
        await worker.close()


async def test_an_error_is_logged_and_the_others_go_on(
    storage: PsqlStorage,
    connection: Direct,
    database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with storage.write("app") as session:
        await session.create_collection(CollectionInfo(id="ways", optimal_partitioning=True))
    await write(storage, points(20, random.Random(21)))
    await write(storage, points(20, random.Random(21)), "ways")
    await connection.execute("ALTER TABLE roads_meta RENAME TO hidden")
    worker = partitioner(storage, database, interval_s=0.2)
    with caplog.at_level(logging.WARNING):
        worker.start()
        try:

            async def done() -> bool:
                return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM ways_meta)"))

            await eventually(done)
            assert "Could not compute the partitioning of collection roads" in caplog.text
            await connection.execute("ALTER TABLE hidden RENAME TO roads_meta")

            async def repaired() -> bool:
                return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM roads_meta)"))

            await eventually(repaired)
        finally:
            await worker.close()


async def test_maintenance_does_it_too(storage: PsqlStorage, connection: Direct) -> None:
    for size in (20, 30):
        await write(storage, points(size, random.Random(23)))
        await storage.maintain()
        assert sum((await stored(connection))["properties"]["by_qrid"].values()) == size


async def test_an_open_storage_partitions_at_the_configured_interval(
    storage: PsqlStorage, connection: Direct, database: str
) -> None:
    second = await PsqlStorage.open(database, "parts", partition_every_s=3600)
    try:
        await write(storage, points(20, random.Random(22)))

        async def done() -> bool:
            return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM roads_meta)"))

        await eventually(done)
    finally:
        await second.close()
