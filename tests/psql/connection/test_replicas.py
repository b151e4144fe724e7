"""Reads at a version from streaming replicas: correct while they lag, are dead, and after."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from naksha.model.errors import InvalidArgument, NotSupported
from naksha.model.query import Bbox, Query
from naksha.model.version import AtTxn, Version
from naksha.psql import PsqlStorage
from naksha.psql.bulk import splits
from naksha.psql.connection import servers
from naksha.psql.connection.servers import Replica, Servers
from naksha.psql.maintenance.partitioning import CELLS_AT_ONCE_MAX, CellReader
from naksha.spi.partitioning import PARTITION_BYTES_MAX
from naksha.testing.servers.pgbouncer_server import PgbouncerServer
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite_support import Handle, new_collection, point
from tests.psql.support import by_force, connect_to, until

DATABASE = "replicated"
T = TypeVar("T")


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresCluster]:
    # The copy for the second standby begins with a checkpoint, which would remove what the first
    # one may not have received yet.
    with PostgresCluster(
        {"fsync": False, "full_page_writes": False, "wal_keep_size": "1GB"}
    ) as cluster:
        cluster.create_database(DATABASE)
        cluster.execute("CREATE EXTENSION postgis SCHEMA public", DATABASE)
        yield cluster


@pytest.fixture(scope="module")
def standby(primary: PostgresCluster) -> Iterator[PostgresCluster]:
    with PostgresCluster(standby_of=primary) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def second_standby(primary: PostgresCluster) -> Iterator[PostgresCluster]:
    with PostgresCluster(standby_of=primary) as cluster:
        yield cluster


class Gauge:
    """How many calls of a coroutine go on at once, at the most."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0

    def around(self, call: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def gauged(*arguments: object) -> T:
            self._now += 1
            self.most = max(self.most, self._now)
            try:
                return await call(*arguments)
            finally:
                self._now -= 1

        return gauged


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Replica | None]:
    """The server of each read; None is the primary."""
    asked: list[Replica | None] = []
    original = Servers.replica_at

    @asynccontextmanager
    async def recorded(self: Servers, txn: int) -> AsyncIterator[object]:
        async with original(self, txn) as found:
            asked.append(None if found is None else found[0])
            yield found

    monkeypatch.setattr(Servers, "replica_at", recorded)
    monkeypatch.setattr(servers, "REST_S", 0.2)
    return asked


@pytest.fixture
async def storage(
    primary: PostgresCluster, standby: PostgresCluster, served: list[Replica | None]
) -> AsyncIterator[PsqlStorage]:
    standby.start()
    opened = await PsqlStorage.open(
        primary.dsn(DATABASE), "test", readers=[standby.dsn(DATABASE), standby.dsn(DATABASE)]
    )
    yield opened
    await opened.close()


@pytest.fixture
async def places(storage: PsqlStorage) -> Handle:
    handle = await new_collection(storage, partitions=16)
    await handle.create(*(point(f"f{n}", n=0) for n in range(30)))
    return handle


async def until_replayed(standby: PostgresCluster, version: Version) -> None:
    connection = await connect_to(standby.dsn(DATABASE))

    async def knows_it() -> bool:
        exists: bool = await connection.fetchval("SELECT to_regclass('naksha_version') IS NOT NULL")
        return exists and await connection.fetchval(
            "SELECT EXISTS (SELECT FROM naksha_version WHERE txn = $1)", version.txn
        )

    await until(knows_it)
    await connection.close()


async def read_split_rows(storage: PsqlStorage, collection: str, at: AtTxn) -> int:
    planned = await storage.plan(collection, Query(), at)
    return sum([batch.num_rows for split in planned async for batch in storage.read(split)])


async def test_replicas_serve_versions_in_turn(
    storage: PsqlStorage,
    places: Handle,
    standby: PostgresCluster,
    served: list[Replica | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(splits, "HEAD_SPLIT_BYTES", 1)
    version = await places.published()
    await until_replayed(standby, version)
    served.clear()
    at = AtTxn(version.txn)
    for _ in range(2):
        assert await storage.count(places.name, Query(), at) == 30
        assert len((await storage.page(places.name, Query(limit=100), at)).states) == 30
        assert len(await places.live(at)) == 30
    assert None not in served
    assert len(set(served)) == 2
    served.clear()
    assert await read_split_rows(storage, places.name, at) == 30
    assert len(served) == 16
    assert None not in served


async def test_cells_of_a_partitioning_are_counted_by_all_replicas_in_turn(
    primary: PostgresCluster,
    standby: PostgresCluster,
    second_standby: PostgresCluster,
    served: list[Replica | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = Gauge()
    monkeypatch.setattr(CellReader, "_count", at_once.around(CellReader._count))
    standby.start()
    readers = [standby.dsn(DATABASE), second_standby.dsn(DATABASE)]
    storage = await PsqlStorage.open(primary.dsn(DATABASE), "test", readers=readers)
    try:
        places = await new_collection(storage)
        await places.create(*(point(f"f{n}", n / 2 - 90, n / 5 - 40) for n in range(360)))
        plain = await storage._servers.primary.connect()
        await by_force(
            plain,
            "UPDATE naksha_collection SET byte_size = $2 WHERE id = $1",
            places.name,
            PARTITION_BYTES_MAX // 5,
        )
        version = await places.published()
        for follower in (standby, second_standby):
            await until_replayed(follower, version)
        served.clear()
        assert sum((await storage.partitioning(places.name)).values()) == 360
        turns = Counter(served)
        assert set(turns) == set(storage._servers.replicas)
        assert max(turns.values()) - min(turns.values()) <= 1
        assert at_once.most == CELLS_AT_ONCE_MAX * len(readers)
    finally:
        await storage.close()


async def test_head_and_what_is_not_replayed_come_from_the_primary(
    storage: PsqlStorage, places: Handle, standby: PostgresCluster, served: list[Replica | None]
) -> None:
    first = await places.published()
    await until_replayed(standby, first)
    standby.execute("SELECT pg_wal_replay_pause()")
    try:
        await places.update(*(point(f"f{n}", n=1) for n in range(10)))
        await places.delete("f29")
        assert len(await places.live()) == 29
        second = await places.published()
        served.clear()
        assert await storage.count(places.name, Query(), AtTxn(second.txn)) == 29
        assert await read_split_rows(storage, places.name, AtTxn(second.txn)) == 29
        # Version one is known there, but not all that the splits count as history.
        assert await read_split_rows(storage, places.name, AtTxn(first.txn)) == 30
        assert set(served) == {None}
        assert await storage.count(places.name, Query(), AtTxn(first.txn)) == 30
        assert served[-1] is not None
    finally:
        standby.execute("SELECT pg_wal_replay_resume()")
    await until_replayed(standby, second)
    served.clear()
    assert await read_split_rows(storage, places.name, AtTxn(first.txn)) == 30
    assert None not in served


async def test_a_dead_replica_is_left_out_and_comes_back(
    storage: PsqlStorage, places: Handle, standby: PostgresCluster, served: list[Replica | None]
) -> None:
    version = await places.published()
    await until_replayed(standby, version)
    at = AtTxn(version.txn)
    assert await storage.count(places.name, Query(), at) == 30
    standby.kill()
    served.clear()
    for _ in range(3):
        assert await storage.count(places.name, Query(), at) == 30
        assert len(await places.live(at)) == 30
    assert await read_split_rows(storage, places.name, at) == 30
    assert set(served) == {None}
    standby.start()

    async def serves_again() -> bool:
        assert await storage.count(places.name, Query(), at) == 30
        return served[-1] is not None

    await until(serves_again)


async def test_a_replica_that_dies_during_a_read_is_replaced(
    storage: PsqlStorage,
    places: Handle,
    standby: PostgresCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = await places.published()
    await until_replayed(standby, version)
    at = AtTxn(version.txn)
    original = Servers.replica_at

    @asynccontextmanager
    async def dies_when_chosen(self: Servers, txn: int) -> AsyncIterator[object]:
        async with original(self, txn) as found:
            if found is not None and standby.running:
                standby.kill()
            yield found

    for read in (
        storage.count(places.name, Query(), at),
        read_split_rows(storage, places.name, at),
    ):
        standby.start()
        monkeypatch.setattr(Servers, "replica_at", original)
        await until_replayed(standby, version)
        monkeypatch.setattr(Servers, "replica_at", dies_when_chosen)
        assert await read == 30


async def test_a_storage_opens_while_its_replica_is_dead(
    primary: PostgresCluster, standby: PostgresCluster, served: list[Replica | None]
) -> None:
    standby.stop()
    storage = await PsqlStorage.open(primary.dsn(DATABASE), "test", readers=[standby.dsn(DATABASE)])
    places = await new_collection(storage)
    await places.create(point("x"))
    version = await places.published()
    assert await storage.count(places.name, Query(), AtTxn(version.txn)) == 1
    await storage.close()


async def test_a_replica_without_the_storage_yet_is_not_an_error(
    primary: PostgresCluster, standby: PostgresCluster, served: list[Replica | None]
) -> None:
    standby.start()
    standby.execute("SELECT pg_wal_replay_pause()")
    try:
        storage = await PsqlStorage.open(
            primary.dsn(DATABASE), "late", schema="late", readers=[standby.dsn(DATABASE)]
        )
        places = await new_collection(storage)
        version = await places.published()
        assert await storage.count(places.name, Query(), AtTxn(version.txn)) == 0
        assert served == [None]
        await storage.close()
    finally:
        standby.execute("SELECT pg_wal_replay_resume()")


async def test_a_replica_behind_pgbouncer_serves_in_session_mode_only(
    primary: PostgresCluster, standby: PostgresCluster, served: list[Replica | None]
) -> None:
    standby.start()
    with PgbouncerServer(standby) as pooler:
        readers = [pooler.dsn(DATABASE)]
        storage = await PsqlStorage.open(primary.dsn(DATABASE), "test", readers=readers)
        places = await new_collection(storage)
        version = await places.published()
        await until_replayed(standby, version)
        served.clear()
        assert await storage.count(places.name, Query(), AtTxn(version.txn)) == 0
        assert served
        assert None not in served
        await storage.close()
        pooler.settings["pool_mode"] = "transaction"
        pooler.restart()
        with pytest.raises(NotSupported, match="pool_mode=session"):
            await PsqlStorage.open(primary.dsn(DATABASE), "test", readers=readers)


async def test_a_reader_with_other_data_is_refused(
    primary: PostgresCluster, storage: PsqlStorage
) -> None:
    other = primary.create_database("other")
    with pytest.raises(InvalidArgument, match="reader"):
        await PsqlStorage.open(primary.dsn(DATABASE), "test", readers=[other])


async def test_a_standby_knows_the_changed_cells(
    storage: PsqlStorage, places: Handle, primary: PostgresCluster, standby: PostgresCluster
) -> None:
    before = await places.published()
    await until_replayed(standby, before)
    shell = await connect_to(primary.dsn(DATABASE))
    reader = await PsqlStorage.open(standby.dsn(DATABASE), "test", read_only=True)
    try:
        log = await reader.cell_log(before.txn)
        assert (log.txn, log.is_settled, log.changes) == (before.txn, True, [])
        await places.update(point("f1", 7, 8))
        after = await places.published()
        await until_replayed(standby, after)
        log = await reader.cell_log(before.txn)
        assert (log.txn, log.is_settled) == (after.txn, True)
        assert log == await storage.cell_log(before.txn)
        box = Bbox(6.99, 7.99, 7.01, 8.01)
        assert await reader.last_cell_change(places.name, box) == after.txn
        while await shell.fetchval("SELECT naksha_fold_cells()"):
            pass
        await places.create(point("other", 100, 50))
        await until_replayed(standby, await places.published())
        assert await reader.last_cell_change(places.name, box) == after.txn
    finally:
        await reader.close()
        await shell.close()
