"""The catalog suite on SQLite."""

import pytest

from naksha.sqlite import SqliteCatalog
from naksha.testing.catalog.suite import *  # noqa: F403
from naksha.testing.catalog.suite import OpenCatalog


@pytest.fixture(scope="class")
def open_catalog(tmp_path_factory: pytest.TempPathFactory) -> OpenCatalog:
    """All instances of a class on one file."""
    path = tmp_path_factory.mktemp("catalog") / "suite.catalog"
    return lambda: SqliteCatalog.open(f"file:{path}")
