"""The storage suite on a branch of a storage in PostgreSQL.

Left out are the parts about what a branch does not have: changes of collections, history that is
off, bulk loads, imports, the log of main, and the parts about branches themselves.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import cast

import pytest

from naksha.psql import PsqlStorage
from naksha.spi.clock import Clock
from naksha.spi.storage import Storage
from naksha.testing.branch_support import new_overlay
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.storage_suite import (
    StorageMaker,
    TestAuthors,
    TestBadCalls,
    TestBadFeatures,
    TestCreate,
    TestCreateAgain,
    TestCursors,
    TestDays,
    TestDelete,
    TestEqualContent,
    TestFilters,
    TestGeometry,
    TestIdPrefix,
    TestInterruptions,
    TestKept,
    TestLocks,
    TestLog,
    TestMark,
    TestMaxAge,
    TestMerge,
    TestMergedStates,
    TestMessages,
    TestNamespace,
    TestOneTransaction,
    TestOneWinner,
    TestOvertaken,
    TestPaging,
    TestPartitioning,
    TestPins,
    TestPinsInSessions,
    TestPredicates,
    TestPublication,
    TestPurge,
    TestRandomQueries,
    TestRestore,
    TestRoundTrip,
    TestSeveralWritesInOneTransaction,
    TestSpatialQueries,
    TestSplits,
    TestStateIds,
    TestTime,
    TestUpdate,
    TestUpsert,
    TestVersions,
    TestVersionsThatAreNot,
    TestWritersAtOnce,
    empty_storage,
    filled,
    nasty,
    places,
    round_trips,
    shared,
    valued,
    zoo,
)
from tests.conformance.branch_storage import BranchStorage

__all__ = [
    "TestAuthors",
    "TestBadCalls",
    "TestBadFeatures",
    "TestCreate",
    "TestCreateAgain",
    "TestCursors",
    "TestDays",
    "TestDelete",
    "TestEqualContent",
    "TestFilters",
    "TestGeometry",
    "TestIdPrefix",
    "TestInterruptions",
    "TestKept",
    "TestLocks",
    "TestLog",
    "TestMark",
    "TestMaxAge",
    "TestMerge",
    "TestMergedStates",
    "TestMessages",
    "TestNamespace",
    "TestOneTransaction",
    "TestOneWinner",
    "TestOvertaken",
    "TestPaging",
    "TestPartitioning",
    "TestPins",
    "TestPinsInSessions",
    "TestPredicates",
    "TestPublication",
    "TestPurge",
    "TestRandomQueries",
    "TestRestore",
    "TestRoundTrip",
    "TestSeveralWritesInOneTransaction",
    "TestSpatialQueries",
    "TestSplits",
    "TestStateIds",
    "TestTime",
    "TestUpdate",
    "TestUpsert",
    "TestVersions",
    "TestVersionsThatAreNot",
    "TestWritersAtOnce",
    "empty_storage",
    "filled",
    "nasty",
    "places",
    "round_trips",
    "shared",
    "valued",
    "zoo",
]


# The same on SQLite is part of every run, and tests/psql/test_overlays.py compares with main.
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
"""Where the data of an open branch is."""
