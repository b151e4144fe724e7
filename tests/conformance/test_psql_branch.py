"""The storage suite on a branch of a storage in PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import cast

import pytest

from naksha.psql import PsqlStorage
from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.storage.branch_case import new_overlay
from naksha.testing.storage.suite import StorageMaker
from tests.conformance.branch_parts import *  # noqa: F403
from tests.conformance.branch_storage import BranchStorage

# The same on SQLite is part of every run, and tests/psql/write/test_overlays.py compares with main.
pytestmark = pytest.mark.long


@pytest.fixture(scope="class")
async def storage(database_factory: DatabaseFactory) -> AsyncIterator[Storage]:
    """One branch for all tests of a class."""
    with database_factory.fresh() as dsn:
        main = await PsqlStorage.open(dsn, "suite")
        branch = BranchStorage(main, await new_overlay(main), {}, stirs=True)
        OPENED[id(branch)] = dsn
        yield cast(Storage, branch)
        await main.close()


@pytest.fixture
async def make_storage(database_factory: DatabaseFactory) -> AsyncIterator[StorageMaker]:
    """Further instances, each with the branch of another one or with one of its own."""
    opened: list[PsqlStorage] = []
    with ExitStack() as databases:

        async def make(*, beside: Storage | None = None, clock: Clock | None = None) -> Storage:
            other = beside if isinstance(beside, BranchStorage) else None
            if other is None:
                dsn = databases.enter_context(database_factory.fresh())
            else:
                dsn = OPENED[id(other)]
            main = await PsqlStorage.open(dsn, "suite", clock=clock)
            opened.append(main)
            overlay = other.overlay if other is not None else await new_overlay(main)
            begins = other.begins if other is not None else {}
            branch = BranchStorage(main, overlay, begins, stirs=False)
            OPENED[id(branch)] = dsn
            return cast(Storage, branch)

        yield make
        for storage in opened:
            await storage.close()


OPENED: dict[int, str] = {}
"""The location of the data of each open branch."""
