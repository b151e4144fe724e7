"""Tests specific to a catalog in PostgreSQL: its schema, and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from naksha.model.errors import InvalidArgument, NotSupported, OutcomeUnknown, Unavailable
from naksha.psql import PsqlCatalog
from naksha.psql.catalog.catalog import SCHEMA
from naksha.spi.catalog import ObjectKey, PointerRow
from naksha.testing.catalog.suite_pointers import NAMES, in_byte_order
from naksha.testing.catalog.suite_support import get, get_pointer, moved, pointer, thing
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.proxy import Proxy, proxy_to

IN_DOUBT = "in-doubt"
"""The realm whose statements may get lost."""

KILL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = 'naksha catalog'"
)


@asynccontextmanager
async def opened(dsn: str, schema: str = SCHEMA, **options: float) -> AsyncIterator[PsqlCatalog]:
    backend = await PsqlCatalog.open(dsn, schema=schema, **options)  # type: ignore[arg-type]
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def locked(dsn: str, name: str = "main") -> AsyncIterator[None]:
    """Hold a lock on a pointer that another session is about to change."""
    async with connected(dsn) as other, other.transaction():
        await other.execute(f"SELECT FROM {SCHEMA}.p WHERE n = $1 FOR UPDATE", name)
        yield


class TestSchema:
    async def test_foreign_tables_are_refused_and_left_alone(self, database: str) -> None:
        async with connected(database) as connection:
            await connection.execute(f"CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.p (mine int)")
            with pytest.raises(NotSupported, match="holds other tables"):
                await PsqlCatalog.open(database)
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1", SCHEMA
            )
            assert [row[0] for row in tables] == ["p"]

    async def test_data_of_a_newer_version_is_refused(self, database: str) -> None:
        async with opened(database) as backend, connected(database) as connection:
            assert await backend.create_pointer("r", pointer("main"))
            await connection.execute(f"UPDATE {SCHEMA}.catalog_version SET version = 1000")
            with pytest.raises(NotSupported, match=r"newer Naksha \(schema version 1000"):
                await PsqlCatalog.open(database)

    async def test_many_may_set_it_up_at_once(self, database: str) -> None:
        backends = await asyncio.gather(*(PsqlCatalog.open(database) for _ in range(8)))
        made = [await backend.create_pointer("r", pointer("main")) for backend in backends]
        assert made == [True] + [False] * 7
        for backend in backends:
            await backend.close()

    async def test_catalogs_in_two_schemas_are_apart(self, database: str) -> None:
        async with opened(database) as one, opened(database, 'An"other') as other:
            assert await one.create_pointer("r", pointer("main"))
            assert await get_pointer(other, "r", "main") is None

    @pytest.mark.parametrize("schema", ["", "pg_mine", "x" * 64, "a\0b", "ü" * 32])
    async def test_invalid_names_are_refused(self, schema: str) -> None:
        with pytest.raises(InvalidArgument, match="schema"):
            await PsqlCatalog.open("postgresql:///never", schema=schema)

    async def test_the_order_is_that_of_bytes_whatever_the_database_has(
        self, postgres_cluster: PostgresCluster
    ) -> None:
        name = "catalog_icu"
        postgres_cluster.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de'"
        )
        try:
            async with opened(postgres_cluster.dsn(name)) as backend:
                await backend.create_pointers("r", [pointer(each) for each in NAMES])
                listed = await backend.list_pointers("r", "", "", 1000)
                assert [row.name for row in listed] == in_byte_order(NAMES)
                found = [row async for page in backend.scan() for row in page]
                assert len(found) == len(NAMES)
        finally:
            postgres_cluster.drop_database(name)

    async def test_commits_are_on_the_disk_whatever_the_server_is_set_to(
        self, database: str
    ) -> None:
        async with connected(database) as connection:
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        async with opened(database) as backend:
            (row,) = await backend._pool.fetch("SHOW synchronous_commit")
            assert row[0] == "on"


class TestLostConnections:
    @pytest.fixture
    async def proxy(
        self, postgres_cluster: PostgresCluster, database: str
    ) -> AsyncIterator[tuple[Proxy, str]]:
        name = database.split("@/")[1].split("?", maxsplit=1)[0]
        socket = postgres_cluster.directory / f".s.PGSQL.{postgres_cluster.port}"
        async with proxy_to(socket, mark=IN_DOUBT.encode()) as proxy:
            yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"

    @pytest.mark.parametrize("loses_request", [True, False])
    async def test_the_outcome_of_a_change_without_a_response_is_unknown(
        self, proxy: tuple[Proxy, str], loses_request: bool
    ) -> None:
        where, dsn = proxy
        where.loses_request = loses_request
        async with opened(dsn) as backend:
            row = pointer("main")
            assert await backend.create_pointer(IN_DOUBT, row)
            for number, call in enumerate(changes(backend, IN_DOUBT, row)):
                where.is_armed = True
                with pytest.raises(OutcomeUnknown):
                    await call()
                assert where.lost == number + 1
            found = await get_pointer(backend, IN_DOUBT, "main")
            assert found == (row if loses_request else moved(row, b"one"))
            for id in (1, 2, 3):
                assert (await get(backend, IN_DOUBT, id) is None) == loses_request
            assert await backend.create_pointer(IN_DOUBT, pointer("after"))

    async def test_reads_may_be_repeated(self, proxy: tuple[Proxy, str]) -> None:
        where, dsn = proxy
        async with opened(dsn) as backend:
            row = pointer("main")
            assert await backend.create_pointer(IN_DOUBT, row)
            where.is_armed = True
            with pytest.raises(Unavailable):
                await backend.fetch_pointers(IN_DOUBT, ["main"])
            assert where.lost == 1
            assert await get_pointer(backend, IN_DOUBT, "main") == row

    async def test_a_write_that_times_out_has_an_unknown_outcome(self, database: str) -> None:
        async with opened(database, call_s=0.3) as backend:
            row = pointer("main")
            assert await backend.create_pointer("r", row)
            async with locked(database):
                with pytest.raises(OutcomeUnknown, match="in time"):
                    await backend.swap_pointer("r", row, moved(row, b"late"))
                assert await get_pointer(backend, "r", "main") == row
            assert await backend.swap_pointer("r", row, moved(row, b"there"))

    async def test_connections_that_the_server_ends_are_replaced(self, database: str) -> None:
        async with opened(database) as backend, connected(database) as killer:
            row = pointer("main")
            assert await backend.create_pointer("r", row)
            for n in range(5):
                async with locked(database):
                    swap = asyncio.create_task(
                        backend.swap_pointer("r", row, moved(row, b"%d" % n))
                    )
                    await asyncio.sleep(0.1)
                    await killer.execute(KILL)
                    with pytest.raises(OutcomeUnknown):
                        await swap
                assert await get_pointer(backend, "r", "main") == row
            assert await backend.swap_pointer("r", row, moved(row, b"there"))

    async def test_a_statement_refused_by_the_server_has_no_effect(self, database: str) -> None:
        async with opened(database) as backend, connected(database) as connection:
            row = pointer("main")
            assert await backend.create_pointer("r", row)
            await connection.execute(
                f"ALTER TABLE {SCHEMA}.p ADD CONSTRAINT never CHECK (t <> 'forbidden') NOT VALID"
            )
            with pytest.raises(InvalidArgument, match="never"):
                await backend.publish("r", [thing(1)], row, moved(row, b"forbidden"))
            assert await get(backend, "r", 1) is None
            assert await get_pointer(backend, "r", "main") == row

    @pytest.mark.parametrize("name", ["a\0b", "\ud800"])
    async def test_characters_that_text_cannot_hold_are_refused(
        self, database: str, name: str
    ) -> None:
        async with opened(database) as backend:
            with pytest.raises(InvalidArgument):
                await backend.create_pointer("r", pointer(name))
            assert await backend.create_pointer("r", pointer("main"))

    async def test_cancelled_callers_leave_the_pool_whole(self, database: str) -> None:
        async with opened(database, pool_max=2) as backend:
            row = pointer("main")
            assert await backend.create_pointer("r", row)
            async with locked(database):
                calls = [
                    asyncio.create_task(backend.swap_pointer("r", row, moved(row, b"%d" % n)))
                    for n in range(20)
                ]
                await asyncio.sleep(0.1)
                for call in calls:
                    call.cancel()
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            await asyncio.gather(*(backend.write("r", [thing(n)]) for n in range(20)))
            assert await backend.swap_pointer("r", row, moved(row, b"there"))

    async def test_all_connections_in_use_is_unavailable(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("naksha.psql.catalog.pool.ACQUIRE_S", 0.2)
        async with opened(database, pool_max=1, call_s=2) as backend:
            row = pointer("main")
            assert await backend.create_pointer("r", row)
            async with locked(database):
                swap = asyncio.create_task(backend.swap_pointer("r", row, moved(row, b"there")))
                await asyncio.sleep(0.05)
                with pytest.raises(Unavailable, match="all 1 may be in use"):
                    await backend.write("r", [thing(1)])
            assert await swap is True
            assert await get(backend, "r", 1) is None


class TestServers:
    async def test_a_server_that_is_not_there_is_unavailable(self) -> None:
        with pytest.raises(Unavailable):
            await PsqlCatalog.open("postgresql://postgres@127.0.0.1:1/none")

    async def test_a_database_that_is_not_there_is_unavailable(
        self, postgres_cluster: PostgresCluster
    ) -> None:
        with pytest.raises(Unavailable, match="does not exist"):
            await PsqlCatalog.open(postgres_cluster.dsn("never_made"))

    async def test_a_server_that_dies_comes_back_with_all_it_acknowledged(self) -> None:
        with PostgresCluster() as cluster:
            async with opened(cluster.create_database("hub")) as backend:
                row = pointer("main", b"0")
                assert await backend.create_pointer("r", row)
                for crash in (cluster.kill, cluster.stop):
                    row = await published_until(backend, row, crash)
                    with pytest.raises(Unavailable):
                        await backend.write("r", [thing(1)])
                    with pytest.raises(Unavailable):
                        await backend.fetch_pointers("r", ["main"])
                    cluster.start()
                    found = await get_pointer(backend, "r", "main")
                    assert found is not None
                    # The last one may have been carried out without an answer.
                    assert int(found.target) - int(row.target) in (0, 1)
                    assert await get(backend, "r", int(found.target)) is not None
                    row = found


async def published_until(
    backend: PsqlCatalog, row: PointerRow, stop: Callable[[], None]
) -> PointerRow:
    """Publish one after the other until the server is gone; the last one that was acknowledged."""
    stopped = asyncio.create_task(_after(0.1, stop))
    try:
        while True:
            n = int(row.target) + 1
            after = moved(row, b"%d" % n)
            assert await backend.publish("r", [thing(n)], row, after)
            row = after
    except (OutcomeUnknown, Unavailable):
        await stopped
    return row


async def _after(seconds: float, work: Callable[[], None]) -> None:
    await asyncio.sleep(seconds)
    await asyncio.to_thread(work)


def changes(
    backend: PsqlCatalog, realm: str, row: PointerRow
) -> list[Callable[[], Awaitable[object]]]:
    """Calls that change something, each of them once."""
    new = thing(1, token="t")
    return [
        lambda: backend.create_pointer(realm, pointer("new")),
        lambda: backend.create_pointers(realm, [pointer("newer")]),
        lambda: backend.swap_pointer(realm, row, moved(row, b"one")),
        lambda: backend.publish(realm, [thing(2)], row, moved(row, b"two")),
        lambda: backend.write(realm, [thing(3)]),
        lambda: backend.insert(realm, new),
        lambda: backend.replace(realm, new, "t"),
        lambda: backend.delete(realm, [ObjectKey(4)]),
        lambda: backend.delete_if(realm, ObjectKey(4), "t"),
        lambda: backend.delete_pointer(realm, pointer("none")),
    ]
