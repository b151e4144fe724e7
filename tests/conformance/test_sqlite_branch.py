"""The storage suite on a branch of a storage in SQLite."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.branch_case import new_overlay
from naksha.testing.storage.suite import StorageMaker
from tests.conformance.branch_parts import *  # noqa: F403
from tests.conformance.branch_storage import BranchStorage


@pytest.fixture(scope="class")
async def storage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Storage]:
    """One branch for all tests of a class."""
    main = await SqliteStorage.open(tmp_path_factory.mktemp("shared") / "suite.naksha", "suite")
    yield cast(Storage, BranchStorage(main, await new_overlay(main), {}, stirs=True))
    await main.close()


@pytest.fixture
async def make_storage(tmp_path: Path) -> AsyncIterator[StorageMaker]:
    """Further instances, each with the branch of another one or with one of its own."""
    opened: list[SqliteStorage] = []
    numbers = count()

    async def make(*, beside: Storage | None = None, clock: Clock | None = None) -> Storage:
        path = tmp_path / f"{next(numbers)}.naksha"
        other = beside if isinstance(beside, BranchStorage) else None
        if other is not None:
            assert isinstance(other.main, SqliteStorage)
            path = other.main.path
        main = await SqliteStorage.open(path, "suite", clock=clock)
        opened.append(main)
        overlay = other.overlay if other is not None else await new_overlay(main)
        begins = other.begins if other is not None else {}
        return cast(Storage, BranchStorage(main, overlay, begins, stirs=False))

    yield make
    for storage in opened:
        await storage.close()
