"""Fixtures of the PostgreSQL storage: its schema with and without a storage at work."""

import itertools
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from naksha.psql import PsqlStorage
from naksha.psql.install import install
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.postgres import PostgresCluster
from tests.psql.branches import Branch, edited_branch
from tests.psql.support import Connect, connect_to

TEMPLATE = "naksha_psql_template"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
async def installed(postgres_cluster: PostgresCluster, database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    with database_factory.fresh() as empty:
        name = empty.split("@/")[1].split("?")[0]
        dsn = postgres_cluster.create_database(TEMPLATE, template=name)
    first = await asyncpg.connect(dsn)
    await install(first, "naksha", "test", 7)
    await first.close()
    connection = await connect_to(dsn)
    async with connection.transaction():
        await connection.execute("SELECT naksha_tx_start('setup', NULL)")
        await connection.execute("SELECT naksha_collection_create('roads')")
        await connection.execute("SELECT naksha_collection_create('places')")
    await connection.execute("SELECT naksha_publish()")
    await connection.close()
    return TEMPLATE


@pytest.fixture
def bare(postgres_cluster: PostgresCluster, installed: str) -> Iterator[str]:
    """A database with the schema and the collections `roads` and `places`; no storage is open, so
    nothing is published unless the test does it."""
    name = f"bare_{next(_numbers)}"
    yield postgres_cluster.create_database(name, template=installed)
    postgres_cluster.drop_database(name)


@pytest.fixture
async def connect(bare: str) -> AsyncIterator[Connect]:
    """Makes connections for plain SQL to the test's database; they end with the test."""
    opened = Connect(bare)
    yield opened
    await opened.close()


@pytest.fixture
async def storage(bare: str) -> AsyncIterator[PsqlStorage]:
    """An open storage on `bare`."""
    opened = await PsqlStorage.open(bare, "test")
    yield opened
    await opened.close()


@pytest.fixture
async def branch(storage: PsqlStorage) -> Branch:
    """A branch of the collection `roads` that was edited before it was made, and after."""
    return await edited_branch(storage)
