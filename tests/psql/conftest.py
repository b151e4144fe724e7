"""Fixtures of the PostgreSQL storage: its schema with and without an open storage."""

from collections.abc import AsyncIterator, Iterator

import pytest

from naksha.psql import PsqlStorage
from naksha.testing.fixtures import DatabaseFactory
from tests.installed import make_installed
from tests.psql.read.branches import Branch, edited_branch
from tests.psql.support import Connect, connect_to

TEMPLATE = "naksha_psql_template"


@pytest.fixture(scope="session")
async def installed(database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    connection = await connect_to(await make_installed(database_factory, TEMPLATE, "test"))
    async with connection.transaction():
        await connection.execute("SELECT naksha_tx_start('setup', NULL)")
        await connection.execute("SELECT naksha_collection_create('roads')")
        await connection.execute("SELECT naksha_collection_create('places')")
    await connection.execute("SELECT naksha_publish()")
    await connection.close()
    return TEMPLATE


@pytest.fixture
def bare(database_factory: DatabaseFactory, installed: str) -> Iterator[str]:
    """A database with the schema and the collections `roads` and `places`; no storage is open, so
    nothing is published unless the test does it."""
    with database_factory.fresh(installed) as dsn:
        yield dsn


@pytest.fixture
async def sixteen(bare: str) -> None:
    """The collections of `bare` have sixteen leaves each."""
    connection = await connect_to(bare)
    await connection.execute("SELECT naksha_grow(c) FROM unnest(ARRAY['roads', 'places']) c")
    await connection.close()


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
