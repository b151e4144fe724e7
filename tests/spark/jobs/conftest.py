"""Places for the storages of tests, one of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naksha.testing.fixtures import DatabaseFactory


@pytest.fixture(params=["sqlite", "postgresql"])
def location(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory
) -> Iterator[str]:
    """A place for a storage, of each kind."""
    if request.param == "sqlite":
        yield f"file:{tmp_path}/town.naksha"
        return
    with database_factory.fresh() as dsn:
        yield dsn
