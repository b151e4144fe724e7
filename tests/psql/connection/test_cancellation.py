"""Cancelled statements: a backend loads PostGIS before the first statement that can be cancelled.

A cancellation between the loading of PostGIS and the next statement may corrupt the backend's
memory (see `naksha.psql.connection.driver`); it needs hundreds of tries to be seen, so what is
tested is that there is no such moment.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Connection, connect, create_pool
from naksha.testing.fixtures import SETTINGS
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.support import until

pytestmark = pytest.mark.postgres

QUIET = {"application_name": "naksha test"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    """A server that does not load PostGIS for its sessions, as that of other tests does."""
    with PostgresCluster(SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def database(cluster: PostgresCluster) -> str:
    dsn = cluster.create_database("store")
    cluster.execute("CREATE EXTENSION postgis SCHEMA public", "store")
    return dsn


def has_postgis(backend: int) -> bool:
    """Whether the library is in the memory of a backend."""
    return "/postgis-" in Path(f"/proc/{backend}/maps").read_text()


async def backends(connection: Connection) -> list[int]:
    rows = await connection.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'naksha cancelled'"
    )
    return [row["pid"] for row in rows]


@pytest.fixture
async def storage(database: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(database, "cancelled")
    yield opened
    await opened.close()


async def test_every_backend_of_a_storage(storage: PsqlStorage, database: str) -> None:
    await storage.publication()
    onlooker = await connect(database, QUIET)

    async def have_postgis() -> bool:
        found = await backends(onlooker)
        return all(has_postgis(backend) for backend in found)

    await until(have_postgis)  # one that is just being made is seen before it has done anything
    assert len(await backends(onlooker)) >= 2  # the pool's and the sequencer's
    await onlooker.close()


async def test_a_new_connection(database: str) -> None:
    connection = await connect(database, QUIET)
    assert has_postgis(connection.get_server_pid())
    await connection.close()


async def test_a_connection_of_a_pool(database: str) -> None:
    async with (
        await create_pool(database, QUIET, max_size=2) as pool,
        pool.acquire() as one,
        pool.acquire() as two,
    ):
        assert all(has_postgis(each.get_server_pid()) for each in (one, two))


async def test_a_database_without_postgis_can_be_connected_to(
    cluster: PostgresCluster,
) -> None:
    connection = await connect(cluster.dsn(), QUIET)
    assert not has_postgis(connection.get_server_pid())
    await connection.close()
