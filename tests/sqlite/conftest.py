"""Fixtures of the SQLite storage: a file, and a storage in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.sqlite import SqliteStorage
from tests.sqlite.support import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.naksha"


@pytest.fixture
async def storage(path: Path) -> AsyncIterator[SqliteStorage]:
    """A storage with the collections `roads` and `places`."""
    async with opened(path) as storage:
        yield storage
