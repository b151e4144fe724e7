"""The storage suite on PostgreSQL."""

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest

from naksha.psql import PsqlStorage
from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite import *  # noqa: F403
from naksha.testing.storage.suite import StorageDamager, StorageForker, StorageMaker
from tests.damage import damage
from tests.installed import make_installed
from tests.psql.support import restore

TEMPLATE = "naksha_suite_template"
SCHEMA = 'All our "maps"'
"""A name that is right only where it is quoted."""


@pytest.fixture(scope="session")
async def template(database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    await make_installed(database_factory, TEMPLATE, "suite", SCHEMA)
    return TEMPLATE


@pytest.fixture(scope="class")
async def storage(database_factory: DatabaseFactory, template: str) -> AsyncIterator[Storage]:
    """One storage for all tests of a class."""
    with database_factory.fresh(template) as dsn:
        opened = await PsqlStorage.open(dsn, "suite", schema=SCHEMA)
        OPENED[id(opened)] = dsn
        yield opened
        await opened.close()


@pytest.fixture
async def make_storage(
    database_factory: DatabaseFactory, template: str
) -> AsyncIterator[StorageMaker]:
    """Further instances, each on the data of another one or on a database of its own."""
    opened: list[PsqlStorage] = []
    with ExitStack() as databases:

        async def make(*, beside: Storage | None = None, clock: Clock | None = None) -> Storage:
            if beside is None:
                dsn = databases.enter_context(database_factory.fresh(template))
            else:
                dsn = OPENED[id(beside)]
            storage = await PsqlStorage.open(dsn, "suite", schema=SCHEMA, clock=clock)
            OPENED[id(storage)] = dsn
            opened.append(storage)
            return storage

        yield make
        for storage in opened:
            await storage.close()


@pytest.fixture
async def fork_storage(
    database_factory: DatabaseFactory, postgres_cluster: PostgresCluster
) -> AsyncIterator[StorageForker]:
    """Forks of restored dumps."""
    opened: list[PsqlStorage] = []
    with ExitStack() as databases:

        async def fork(source: Storage, id: str, *, number: int | None = None) -> Storage:
            dsn = databases.enter_context(database_factory.fresh())
            restore(postgres_cluster, OPENED[builtins.id(source)], dsn, SCHEMA)
            await PsqlStorage.fork(dsn, id, schema=SCHEMA, number=number)
            storage = await PsqlStorage.open(dsn, id, schema=SCHEMA)
            OPENED[builtins.id(storage)] = dsn
            opened.append(storage)
            return storage

        yield fork
        for storage in opened:
            await storage.close()


@pytest.fixture
def damage_storage() -> StorageDamager:
    """Rows changed past the triggers."""

    async def damage_(storage: Storage, collection: str, id: str, kind: str) -> None:
        await damage(OPENED[builtins.id(storage)], collection, id, kind)

    return damage_


@pytest.fixture
def open_storage(
    database_factory: DatabaseFactory, template: str
) -> Iterator[Callable[[], Awaitable[Storage]]]:
    """For tests that bring their own event loop."""
    with database_factory.fresh(template) as dsn:

        async def open_() -> Storage:
            return await PsqlStorage.open(dsn, "suite", schema=SCHEMA)

        yield open_


OPENED: dict[int, str] = {}
"""The location of the data of each open storage."""
