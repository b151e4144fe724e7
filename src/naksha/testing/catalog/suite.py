"""Conformance suite of catalog backends: one suite, run on every database.

A backend joins with one fixture and one import:

    from naksha.testing.catalog.suite import *

    @pytest.fixture(scope="class")
    def open_catalog() -> OpenCatalog:
        return lambda: MyCatalog.open("my://database")

`open_catalog` opens instances of the backend, all on the same data; the suite closes them. Each
test works in its own realms, so the data may be shared by a class, a module or the whole run. Three
kinds of tests belong to the backend's own test modules, because only those can take the database
away: lost connections, killed processes, and data written by another version.
"""

from __future__ import annotations

import sys

import pytest

_MODULES = (
    "commits",
    "fence",
    "log",
    "maintenance",
    "objects",
    "persistence",
    "pointers",
    "races",
    "realms",
    "scripts",
    "support",
    "unknown_results",
)
# Rewrite asserts, so that a failed one shows its values as in the backend's own tests.
_NAMES = [f"naksha.testing.catalog.suite_{name}" for name in _MODULES]
_NAMES += ["naksha.testing.catalog.history"]
pytest.register_assert_rewrite(*(name for name in _NAMES if name not in sys.modules))

from naksha.testing.catalog.suite_commits import TestCommits  # noqa: E402
from naksha.testing.catalog.suite_fence import (  # noqa: E402
    TestFencedInstance,
    TestLeftovers,
    TestOpenRealms,
    TestOtherEpochs,
)
from naksha.testing.catalog.suite_log import TestCommitLog, TestLongLog  # noqa: E402
from naksha.testing.catalog.suite_maintenance import (  # noqa: E402
    TestClosing,
    TestDatabaseTime,
    TestDeletingRealms,
    TestDeletingWhatWasScanned,
    TestScan,
)
from naksha.testing.catalog.suite_objects import (  # noqa: E402
    TestConditionalWrites,
    TestObjects,
    TestPublish,
)
from naksha.testing.catalog.suite_persistence import (  # noqa: E402
    TestTypedObjects,
    TestTypedPointers,
    persistence,
)
from naksha.testing.catalog.suite_pointers import (  # noqa: E402
    TestPointerLife,
    TestPointerList,
    TestPointerNames,
    TestSwap,
)
from naksha.testing.catalog.suite_races import TestAtOnce, TestOneSwapWinner  # noqa: E402
from naksha.testing.catalog.suite_realms import (  # noqa: E402
    TestFence,
    TestRealms,
    catalog,
    other_node,
)
from naksha.testing.catalog.suite_scripts import TestAgainstTheModel  # noqa: E402
from naksha.testing.catalog.suite_support import (  # noqa: E402
    OpenCatalog,
    catalog_backend,
    realm,
    second_backend,
)
from naksha.testing.catalog.suite_unknown_results import (  # noqa: E402
    TestAfterTheWrite,
    TestFenceInDoubt,
    faults,
    faulty_node,
)

__all__ = [
    "OpenCatalog",
    "TestAfterTheWrite",
    "TestAgainstTheModel",
    "TestAtOnce",
    "TestClosing",
    "TestCommitLog",
    "TestCommits",
    "TestConditionalWrites",
    "TestDatabaseTime",
    "TestDeletingRealms",
    "TestDeletingWhatWasScanned",
    "TestFence",
    "TestFenceInDoubt",
    "TestFencedInstance",
    "TestLeftovers",
    "TestLongLog",
    "TestObjects",
    "TestOneSwapWinner",
    "TestOpenRealms",
    "TestOtherEpochs",
    "TestPointerLife",
    "TestPointerList",
    "TestPointerNames",
    "TestPublish",
    "TestRealms",
    "TestScan",
    "TestSwap",
    "TestTypedObjects",
    "TestTypedPointers",
    "catalog",
    "catalog_backend",
    "faults",
    "faulty_node",
    "other_node",
    "persistence",
    "realm",
    "second_backend",
]
