"""Separate hubs for tests, on a file and on PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.testing.fixtures import DatabaseFactory
from tests.hub.handlers.support import HubUnderTest, open_hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubUnderTest]:
    """A hub whose default storage is a file."""
    async with open_hub(f"file:{tmp_path}/{{realm}}.naksha") as opened:
        yield opened


@pytest.fixture(params=["file", pytest.param("psql", marks=pytest.mark.postgres)])
async def any_hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubUnderTest]:
    """A hub on each storage."""
    if request.param == "file":
        async with open_hub(f"file:{tmp_path}/{{realm}}.naksha") as opened:
            yield opened
        return
    factory: DatabaseFactory = request.getfixturevalue("database_factory")
    with factory.fresh() as dsn:
        async with open_hub(dsn) as opened:
            yield opened
