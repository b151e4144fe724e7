"""The storage suite on SQLite."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest

from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite import *  # noqa: F403
from naksha.testing.storage.suite import StorageDamager, StorageForker, StorageMaker
from tests.damage import damage


@pytest.fixture(scope="class")
async def storage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Storage]:
    """One storage for all tests of a class."""
    opened = await SqliteStorage.open(tmp_path_factory.mktemp("shared") / "suite.naksha", "suite")
    yield opened
    await opened.close()


@pytest.fixture
async def make_storage(tmp_path: Path) -> AsyncIterator[StorageMaker]:
    """Further instances, each on the file of another one or on a file of its own."""
    opened: list[SqliteStorage] = []
    numbers = count()

    async def make(*, beside: Storage | None = None, clock: Clock | None = None) -> Storage:
        path = tmp_path / f"{next(numbers)}.naksha"
        if isinstance(beside, SqliteStorage):
            path = beside.path
        storage = await SqliteStorage.open(path, "suite", clock=clock)
        opened.append(storage)
        return storage

    yield make
    for storage in opened:
        await storage.close()


@pytest.fixture
async def fork_storage(tmp_path: Path) -> AsyncIterator[StorageForker]:
    """Forks of copied files."""
    opened: list[Storage] = []

    async def fork(source: Storage, id: str, *, number: int | None = None) -> Storage:
        assert isinstance(source, SqliteStorage)
        copy = tmp_path / f"{id}.naksha"
        with contextlib.closing(sqlite3.connect(source.path)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        await SqliteStorage.fork(copy, number=number)
        opened.append(await SqliteStorage.open(copy, id))
        return opened[-1]

    yield fork
    for storage in opened:
        await storage.close()


@pytest.fixture
def damage_storage() -> StorageDamager:
    """Rows changed past the triggers."""

    async def damage_(storage: Storage, collection: str, id: str, kind: str) -> None:
        assert isinstance(storage, SqliteStorage)
        await damage(storage.path, collection, id, kind)

    return damage_


@pytest.fixture
def open_storage(tmp_path: Path) -> Callable[[], Awaitable[Storage]]:
    """For tests that bring their own event loop."""

    async def open_() -> Storage:
        return await SqliteStorage.open(tmp_path / "own.naksha", "suite")

    return open_
