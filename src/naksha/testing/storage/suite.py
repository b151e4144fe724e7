"""Conformance suite of storages: the storage contract as tests, run on every storage.

A storage joins with five fixtures and one import:

    from naksha.testing.storage.suite import *

    @pytest.fixture(scope="class")
    async def storage() -> AsyncIterator[Storage]: ...

    @pytest.fixture
    async def make_storage() -> AsyncIterator[StorageMaker]: ...

    @pytest.fixture
    async def fork_storage() -> AsyncIterator[StorageForker]: ...

    @pytest.fixture
    def damage_storage() -> StorageDamager: ...

    @pytest.fixture
    def open_storage() -> Callable[[], Awaitable[Storage]]: ...

`storage` is open and may be shared by many tests: each works in its own, uniquely named
collections. `make_storage` opens further instances on the same data, or a storage with new, empty
data and a clock that the test moves; it closes them when the test ends. `fork_storage` copies the
data of a storage, forks the copy and opens it. `damage_storage` damages a stored feature, bypassing
all checks. `open_storage` is for tests with their own event loop: it opens a storage with empty
data in that loop.

A feature that a storage does not support yet is declared there as a strict xfail with its reason.
"""

from __future__ import annotations

import sys

import pytest

# Rewrite asserts, so that a failed one shows its values as in the storage's own tests.
_REWRITTEN = (
    "naksha.testing.models.stateful",
    "naksha.testing.models.stateful_support",
    "naksha.testing.storage.branch_case",
    "naksha.testing.storage.bulk",
    "naksha.testing.storage.read",
    "naksha.testing.storage.suite_oracle",
    "naksha.testing.storage.suite_support",
    "naksha.testing.storage.versions",
    "naksha.testing.storage.write",
)
pytest.register_assert_rewrite(*(name for name in _REWRITTEN if name not in sys.modules))

from naksha.testing.storage.bulk.suite_bulk import (  # noqa: E402
    TestSplits,
    TestSplitsOfMain,
    filled,
)
from naksha.testing.storage.bulk.suite_partitioning import (  # noqa: E402
    TestKeptPartitioning,
    TestPartitioning,
)
from naksha.testing.storage.bulk.suite_staging import (  # noqa: E402
    TestStagedWrite,
    TestStagingModes,
    TestStagingOnce,
)
from naksha.testing.storage.bulk.suite_staging_attempts import (  # noqa: E402
    TestAnyStagedWrite,
    TestStagingAttempts,
    TestStagingLeases,
    TestStagingOnABranch,
    TestStagingUnderWriters,
)
from naksha.testing.storage.read.suite_chunks import (  # noqa: E402
    TestChunks,
    TestChunksOfDroppedCollections,
)
from naksha.testing.storage.read.suite_damage import StorageDamager, TestDamage  # noqa: E402
from naksha.testing.storage.read.suite_ids_only import (  # noqa: E402
    TestMatchingStates,
    TestParts,
    sortable,
)
from naksha.testing.storage.read.suite_paging import TestCursors, TestPaging  # noqa: E402
from naksha.testing.storage.read.suite_query import (  # noqa: E402
    TestFilters,
    TestGeometryTypes,
    TestPredicates,
    TestRandomQueries,
    TestSpatialQueries,
    nasty,
    valued,
    zoo,
)
from naksha.testing.storage.read.suite_statistics import (  # noqa: E402
    TestFastStatistics,
    TestStatistics,
)
from naksha.testing.storage.read.suite_tiles import (  # noqa: E402
    TestReducedTiles,
    TestTilesOfPlaces,
    TestTilesOfProperties,
    TestTilesOfQueries,
    tiled,
)
from naksha.testing.storage.suite_oracle import TestAgainstTheOracle  # noqa: E402
from naksha.testing.storage.suite_support import (  # noqa: E402
    StorageMaker,
    empty_storage,
    places,
    shared,
)
from naksha.testing.storage.versions.suite_branches import (  # noqa: E402
    TestBranchesAtOnce,
    TestBranchesOfBranches,
    TestCollectionsOnABranch,
    TestLifeOfOverlays,
    TestLikeACopy,
    TestLogOfABranch,
    TestSplitsOfABranch,
)
from naksha.testing.storage.versions.suite_log import (  # noqa: E402
    TestLog,
    TestLogFilters,
    TestLogOfCollections,
    TestMessages,
    TestPublication,
    edited,
)
from naksha.testing.storage.versions.suite_objects import (  # noqa: E402
    TestGuards,
    TestMergedStates,
    TestPinsInSessions,
    TestStoredObjects,
)
from naksha.testing.storage.versions.suite_overlays import (  # noqa: E402
    TestReadingABranch,
    TestStateIdsOnABranch,
    TestVersionsOfABranch,
    TestWritingOnABranch,
    branch,
    main,
    there,
)
from naksha.testing.storage.versions.suite_retention import (  # noqa: E402
    TestExpiry,
    TestHistoryOff,
    TestLogRetention,
    TestMaxAge,
    TestPins,
    TestRounds,
    logged,
)
from naksha.testing.storage.versions.suite_storage_forks import (  # noqa: E402
    StorageForker,
    TestForks,
)
from naksha.testing.storage.versions.suite_tile_cells import (  # noqa: E402
    TestCellLog,
    TestTileCellsOfVersions,
    TestTileCellsOfWrites,
)
from naksha.testing.storage.versions.suite_tile_cells_branches import (  # noqa: E402
    TestTileCellsOfBranches,
)
from naksha.testing.storage.versions.suite_tile_cells_random import (  # noqa: E402
    TestRandomCellChanges,
)
from naksha.testing.storage.versions.suite_time import TestDatedTransactions, TestDays  # noqa: E402
from naksha.testing.storage.versions.suite_version_signal import (  # noqa: E402
    TestWaitingForVersions,
)
from naksha.testing.storage.versions.suite_versions import (  # noqa: E402
    TestUnreadableVersions,
    TestVersions,
    TestVersionsByTime,
)
from naksha.testing.storage.write.suite_collections import (  # noqa: E402
    TestChangingCollections,
    TestCreatingCollections,
    TestDroppingCollections,
    TestListingCollections,
)
from naksha.testing.storage.write.suite_concurrency import (  # noqa: E402
    TestCollectionsUnderWriters,
    TestInterruptions,
    TestOneWinner,
    TestWritersAtOnce,
)
from naksha.testing.storage.write.suite_disk_space import TestSpace  # noqa: E402
from naksha.testing.storage.write.suite_gates import (  # noqa: E402
    TestBranchesOfSomeCollections,
    TestBranchingOff,
    TestFrozenOverlays,
    TestGates,
    TestOtherBranchesInASession,
    TestVersionsUnderWriters,
)
from naksha.testing.storage.write.suite_geometry import (  # noqa: E402
    TestGeometry,
    TestMark,
    TestRoundTrip,
    round_trips,
)
from naksha.testing.storage.write.suite_input import (  # noqa: E402
    TestBadCalls,
    TestBadFeatures,
    TestIdPrefix,
)
from naksha.testing.storage.write.suite_locks import TestLocks, TestMerge  # noqa: E402
from naksha.testing.storage.write.suite_meta import TestMeta  # noqa: E402
from naksha.testing.storage.write.suite_namespace import (  # noqa: E402
    TestAuthors,
    TestNamespace,
    TestStateIds,
)
from naksha.testing.storage.write.suite_overtaken import (  # noqa: E402
    TestOvertakenCollections,
    TestOvertakenSessions,
)
from naksha.testing.storage.write.suite_same_txn import (  # noqa: E402
    TestSeveralWritesInOneTransaction,
)
from naksha.testing.storage.write.suite_single_calls import (  # noqa: E402
    TestCommittingCalls,
    TestFeaturesParsedFromJson,
    TestResolvedCollections,
    TestSeveralChanges,
)
from naksha.testing.storage.write.suite_write import (  # noqa: E402
    TestCreate,
    TestCreateAgain,
    TestDelete,
    TestEqualContent,
    TestLayers,
    TestOneTransaction,
    TestPurge,
    TestRestore,
    TestUpdate,
    TestUpsert,
)

__all__ = [
    "StorageDamager",
    "StorageForker",
    "StorageMaker",
    "TestAgainstTheOracle",
    "TestAnyStagedWrite",
    "TestAuthors",
    "TestBadCalls",
    "TestBadFeatures",
    "TestBranchesAtOnce",
    "TestBranchesOfBranches",
    "TestBranchesOfSomeCollections",
    "TestBranchingOff",
    "TestCellLog",
    "TestChangingCollections",
    "TestChunks",
    "TestChunksOfDroppedCollections",
    "TestCollectionsOnABranch",
    "TestCollectionsUnderWriters",
    "TestCommittingCalls",
    "TestCreate",
    "TestCreateAgain",
    "TestCreatingCollections",
    "TestCursors",
    "TestDamage",
    "TestDatedTransactions",
    "TestDays",
    "TestDelete",
    "TestDroppingCollections",
    "TestEqualContent",
    "TestExpiry",
    "TestFastStatistics",
    "TestFeaturesParsedFromJson",
    "TestFilters",
    "TestForks",
    "TestFrozenOverlays",
    "TestGates",
    "TestGeometry",
    "TestGeometryTypes",
    "TestGuards",
    "TestHistoryOff",
    "TestIdPrefix",
    "TestInterruptions",
    "TestKeptPartitioning",
    "TestLayers",
    "TestLifeOfOverlays",
    "TestLikeACopy",
    "TestListingCollections",
    "TestLocks",
    "TestLog",
    "TestLogFilters",
    "TestLogOfABranch",
    "TestLogOfCollections",
    "TestLogRetention",
    "TestMark",
    "TestMatchingStates",
    "TestMaxAge",
    "TestMerge",
    "TestMergedStates",
    "TestMessages",
    "TestMeta",
    "TestNamespace",
    "TestOneTransaction",
    "TestOneWinner",
    "TestOtherBranchesInASession",
    "TestOvertakenCollections",
    "TestOvertakenSessions",
    "TestPaging",
    "TestPartitioning",
    "TestParts",
    "TestPins",
    "TestPinsInSessions",
    "TestPredicates",
    "TestPublication",
    "TestPurge",
    "TestRandomCellChanges",
    "TestRandomQueries",
    "TestReadingABranch",
    "TestReducedTiles",
    "TestResolvedCollections",
    "TestRestore",
    "TestRoundTrip",
    "TestRounds",
    "TestSeveralChanges",
    "TestSeveralWritesInOneTransaction",
    "TestSpace",
    "TestSpatialQueries",
    "TestSplits",
    "TestSplitsOfABranch",
    "TestSplitsOfMain",
    "TestStagedWrite",
    "TestStagingAttempts",
    "TestStagingLeases",
    "TestStagingModes",
    "TestStagingOnABranch",
    "TestStagingOnce",
    "TestStagingUnderWriters",
    "TestStateIds",
    "TestStateIdsOnABranch",
    "TestStatistics",
    "TestStoredObjects",
    "TestTileCellsOfBranches",
    "TestTileCellsOfVersions",
    "TestTileCellsOfWrites",
    "TestTilesOfPlaces",
    "TestTilesOfProperties",
    "TestTilesOfQueries",
    "TestUnreadableVersions",
    "TestUpdate",
    "TestUpsert",
    "TestVersions",
    "TestVersionsByTime",
    "TestVersionsOfABranch",
    "TestVersionsUnderWriters",
    "TestWaitingForVersions",
    "TestWritersAtOnce",
    "TestWritingOnABranch",
    "branch",
    "edited",
    "empty_storage",
    "filled",
    "logged",
    "main",
    "nasty",
    "places",
    "round_trips",
    "shared",
    "sortable",
    "there",
    "tiled",
    "valued",
    "zoo",
]
