"""Fixtures of the SQLite storage: a file, and a storage in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.model.collection import CollectionInfo
from naksha.sqlite import SqliteStorage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.naksha"


@pytest.fixture
async def storage(path: Path) -> AsyncIterator[SqliteStorage]:
    """A storage with the collections `roads` and `places`."""
    opened = await SqliteStorage.open(path, "test", number=7)
    async with opened.write("setup") as session:
        await session.create_collection(CollectionInfo(id="roads"))
        await session.create_collection(CollectionInfo(id="places"))
    yield opened
    await opened.close()
