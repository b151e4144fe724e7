"""Fixtures that run every test of this folder on both storages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from tests.installed import make_installed

TEMPLATE = "naksha_versioning_template"


@pytest.fixture(scope="session")
async def town(database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    await make_installed(database_factory, TEMPLATE, "town")
    return TEMPLATE


@pytest.fixture(params=["sqlite", "postgresql"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory, town: str
) -> AsyncIterator[Storage]:
    opened: Storage
    if request.param == "sqlite":
        opened = await SqliteStorage.open(tmp_path / "town.naksha", "town")
        yield opened
        await opened.close()
        return
    with database_factory.fresh(town) as dsn:
        opened = await PsqlStorage.open(dsn, "town")
        yield opened
        await opened.close()
