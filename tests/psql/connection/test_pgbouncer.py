"""Storage and catalog behind pgbouncer: accepted in session mode, refused in the other modes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import NotSupported
from naksha.model.query import Query
from naksha.model.version import AtTxn
from naksha.psql import PsqlStorage
from naksha.psql.catalog.catalog import PsqlCatalog
from naksha.psql.connection import poolers
from naksha.psql.connection.poolers import connect_checked
from naksha.spi.catalog import PointerRow
from naksha.testing.servers.pgbouncer_server import PgbouncerServer, Setting
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.bulk.suite_staging import written
from naksha.testing.storage.suite_support import Handle, ids_of, point
from tests.psql.proxy import SlowProxy, proxy_to
from tests.psql.support import Connect, begin, insert

FOREVER_S = 3600.0
PATIENCE_S = 60.0
REFUSED = "does not keep sessions.*pool_mode=session for this database, or connect to PostgreSQL"
SETTING = "SELECT setting FROM pg_settings WHERE name = $1"
MODES: dict[str, dict[str, Setting]] = {
    "transaction": {"pool_mode": "transaction"},
    "transaction-one-server": {"pool_mode": "transaction", "default_pool_size": 1},
    "transaction-in-turn": {"pool_mode": "transaction", "server_round_robin": 1},
    "statement": {"pool_mode": "statement"},
    "statement-one-server": {"pool_mode": "statement", "default_pool_size": 1},
}


@pytest.fixture(scope="module")
def sessions(postgres_cluster: PostgresCluster) -> Iterator[PgbouncerServer]:
    """pgbouncer as it comes, with as many connections as the tests need."""
    with PgbouncerServer(postgres_cluster, {"default_pool_size": 50}) as pooler:
        yield pooler


def behind(pooler: PgbouncerServer, dsn: str) -> str:
    """The DSN of a database behind the pooler."""
    return pooler.dsn(dsn.partition("@/")[2].partition("?")[0])


@asynccontextmanager
async def opened(dsn: str, **options: object) -> AsyncIterator[PsqlStorage]:
    storage = await PsqlStorage.open(dsn, "test", **options)  # type: ignore[arg-type]
    try:
        yield storage
    finally:
        await storage.close()


@asynccontextmanager
async def busy(dsn: str, count: int) -> AsyncIterator[None]:
    """Clients that run one transaction after the other meanwhile."""

    async def work() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            while True:
                # The probe may end the server connection that they happen to use.
                with contextlib.suppress(asyncpg.PostgresError):
                    await connection.execute("SELECT pg_sleep(0.001)")
        finally:
            connection.terminate()

    clients = [asyncio.create_task(work()) for _ in range(count)]
    await asyncio.sleep(0.05)
    try:
        yield
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def test_a_storage_works_in_session_mode(sessions: PgbouncerServer, database: str) -> None:
    async with opened(behind(sessions, database)) as storage:
        info = CollectionInfo(id="roads")
        await storage.run(lambda session: session.create_collection(info), "app")
        roads = Handle(storage, "roads")
        await roads.create(point("a", n=1))
        before = await roads.published()
        await roads.update(point("a", n=2))
        assert ids_of(await roads.live()) == ["a"]
        [old] = await roads.live(AtTxn(before.txn))
        assert old.feature["properties"]["n"] == 1
        await storage.maintain()
    async with opened(behind(sessions, database), must_exist=True) as storage:
        assert await storage.count("roads", Query()) == 1


async def test_versions_of_others_are_notified_in_session_mode(
    sessions: PgbouncerServer, bare: str, connect: Connect
) -> None:
    async with opened(behind(sessions, bare)) as storage:
        # It does not look by itself, so that only LISTEN can wake it.
        storage._sequencer.version_signal._poll_s = FOREVER_S
        last = await storage.wait_beyond(-1, 0)
        waiting = asyncio.create_task(storage.wait_beyond(last, PATIENCE_S))
        writer = await connect()
        await begin(writer)
        await insert(writer, "roads", "a")
        await writer.execute("COMMIT")
        assert await waiting == last + 1


async def test_bulk_work_in_session_mode(sessions: PgbouncerServer, bare: str) -> None:
    async with opened(behind(sessions, bare)) as storage:
        info = CollectionInfo(id="bulk", partitions=16)
        await written(storage, info, [point(f"f{n}") for n in range(100)])
        planned = await storage.plan("bulk", Query())
        batches = [batch for split in planned async for batch in storage.read(split)]
        assert sum(batch.num_rows for batch in batches) == 100


async def test_connections_keep_their_settings_in_session_mode(
    sessions: PgbouncerServer, bare: str
) -> None:
    """Also after the pool has reset them; and each knows its process on the server."""
    async with opened(behind(sessions, bare), pool_max=1) as storage:
        for _ in range(2):
            await storage.mismatches("roads", 1)
            async with storage._connections.pool.acquire() as connection:
                for name, value in storage._servers.primary.settings.items():
                    assert await connection.fetchval(SETTING, name) == value
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                assert connection.get_server_pid() == pid


async def test_a_catalog_works_in_session_mode(sessions: PgbouncerServer, database: str) -> None:
    catalog = await PsqlCatalog.open(behind(sessions, database))
    try:
        row = PointerRow("config", b"a", 1, 1)
        assert await catalog.create_pointer("realm", row)
        assert await catalog.fetch_pointers("realm", ["config"]) == {"config": row}
    finally:
        await catalog.close()


@pytest.mark.parametrize("settings", MODES.values(), ids=list(MODES))
async def test_other_modes_are_refused(
    postgres_cluster: PostgresCluster,
    settings: Mapping[str, Setting],
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not other clients are busy, or have left many server connections behind."""
    monkeypatch.setattr(poolers, "PROBES_MAX", 2)
    with PgbouncerServer(postgres_cluster, settings) as pooler:
        dsn = behind(pooler, database)
        with pytest.raises(NotSupported, match=REFUSED):
            await PsqlStorage.open(dsn)
        async with busy(dsn, 8):
            with pytest.raises(NotSupported, match=REFUSED):
                await PsqlStorage.open(dsn)
        with pytest.raises(NotSupported, match=REFUSED):
            await PsqlCatalog.open(dsn)
    direct = await asyncpg.connect(database)
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^naksha'"
    assert await direct.fetchval(schemas) == 0
    await direct.close()


async def test_other_modes_are_refused_for_readers_and_forks(
    postgres_cluster: PostgresCluster, bare: str
) -> None:
    with PgbouncerServer(postgres_cluster, MODES["transaction"]) as pooler:
        dsn = behind(pooler, bare)
        with pytest.raises(NotSupported, match=REFUSED):
            await PsqlStorage.open(bare, readers=[dsn])
        with pytest.raises(NotSupported, match=REFUSED):
            await PsqlStorage.fork(dsn)


async def test_slow_answers_do_not_hide_the_mode(
    postgres_cluster: PostgresCluster, database: str
) -> None:
    """When the end of the session comes together with the answer before it, pgbouncer ends the
    connection of the client in every mode."""
    socket = postgres_cluster.directory / f".s.PGSQL.{postgres_cluster.port}"
    async with proxy_to(socket, kind=SlowProxy) as proxy:
        with PgbouncerServer(postgres_cluster, proxy_port=proxy.port) as pooler:
            connection = await connect_checked(behind(pooler, database))
            await connection.close()
            pooler.settings["pool_mode"] = "transaction"
            pooler.restart()
            with pytest.raises(NotSupported, match=REFUSED):
                await connect_checked(behind(pooler, database))
