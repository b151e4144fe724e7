"""Parts of the storage suite on PostgreSQL while collections grow to sixteen partitions.

A task grows one collection after the other while the test runs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import NakshaError
from naksha.psql import PsqlStorage
from naksha.psql.maintenance import growth
from naksha.psql.maintenance.growth import grow
from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.storage.suite import (  # noqa: F401
    StorageMaker,
    TestAgainstTheOracle,
    TestBranchesAtOnce,
    TestCollectionsUnderWriters,
    TestGates,
    TestLikeACopy,
    TestOneWinner,
    TestSplits,
    TestSplitsOfMain,
    TestVersionsUnderWriters,
    TestWritersAtOnce,
    empty_storage,
    filled,
    places,
)
from tests.conformance.test_psql import SCHEMA
from tests.installed import make_installed
from tests.psql.support import until

TEMPLATE = "naksha_growing_template"

PAUSE_S = 0.05
OLDER_WAIT_S = 0.3
"""Sessions of the tests stay open for as long as it takes: growth is tried again."""


class GrowingStorage(PsqlStorage):
    """Grows its collections in the background."""

    _growing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._growing = asyncio.create_task(self._grow())

    async def _grow(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            for info in await self.collections():
                if info.partitions == 1:
                    with suppress(NakshaError):
                        await grow(self._server, info.id)

    async def close(self) -> None:
        if self._growing is not None:
            self._growing.cancel()
            with suppress(asyncio.CancelledError):
                await self._growing
        await super().close()


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Growth waits for open sessions for a moment only."""
    patch = pytest.MonkeyPatch()
    patch.setattr(growth, "OLDER_WAIT_S_MAX", OLDER_WAIT_S)
    yield
    patch.undo()


@pytest.fixture(scope="session")
async def template(database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    await make_installed(database_factory, TEMPLATE, "suite", SCHEMA)
    return TEMPLATE


@pytest.fixture(scope="class")
async def storage(
    database_factory: DatabaseFactory,
    template: str,
) -> AsyncIterator[Storage]:
    """One storage for all tests of a class."""
    with database_factory.fresh(template) as dsn:
        opened = await GrowingStorage.open(dsn, "suite", schema=SCHEMA)
        opened.begin()
        OPENED[id(opened)] = dsn
        yield opened
        await opened.close()


@pytest.fixture
async def make_storage(
    database_factory: DatabaseFactory,
    template: str,
) -> AsyncIterator[StorageMaker]:
    """Further instances, each on the data of another one or on a database of its own."""
    opened: list[PsqlStorage] = []
    with ExitStack() as databases:

        async def make(*, beside: Storage | None = None, clock: Clock | None = None) -> Storage:
            if beside is None:
                dsn = databases.enter_context(database_factory.fresh(template))
            else:
                dsn = OPENED[id(beside)]
            storage = await GrowingStorage.open(dsn, "suite", schema=SCHEMA, clock=clock)
            storage.begin()
            OPENED[id(storage)] = dsn
            opened.append(storage)
            return storage

        yield make
        for storage in opened:
            await storage.close()


@pytest.fixture
def open_storage(
    database_factory: DatabaseFactory,
    template: str,
) -> Iterator[Callable[[], Awaitable[Storage]]]:
    """For tests that bring their own event loop."""
    with database_factory.fresh(template) as dsn:

        async def open_() -> Storage:
            opened = await GrowingStorage.open(dsn, "suite", schema=SCHEMA)
            opened.begin()
            return opened

        yield open_


OPENED: dict[int, str] = {}
"""The location of the data of each open storage."""


async def test_collections_grow_by_themselves(storage: Storage) -> None:
    """Without this, the suites above would test light collections a second time."""
    await storage.run(lambda session: session.create_collection(CollectionInfo(id="ways")), "app")

    async def is_grown() -> bool:
        return (await storage.collection("ways")).partitions == 16

    await until(is_grown)
