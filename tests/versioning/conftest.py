"""Every test of this folder runs on both storages."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from naksha.psql import PsqlStorage
from naksha.psql.install import install
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.postgres import PostgresCluster

TEMPLATE = "naksha_versioning_template"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
async def town(postgres_cluster: PostgresCluster, database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it: to copy it is quicker than to make it."""
    with database_factory.fresh() as empty:
        name = empty.split("@/")[1].split("?")[0]
        dsn = postgres_cluster.create_database(TEMPLATE, template=name)
    first = await asyncpg.connect(dsn)
    await install(first, "naksha", "town", 7)
    await first.close()
    return TEMPLATE


@pytest.fixture(params=["sqlite", "postgresql"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_cluster: PostgresCluster, town: str
) -> AsyncIterator[Storage]:
    opened: Storage
    if request.param == "sqlite":
        opened = await SqliteStorage.open(tmp_path / "town.naksha", "town")
        yield opened
        await opened.close()
        return
    name = f"town_{next(_numbers)}"
    opened = await PsqlStorage.open(postgres_cluster.create_database(name, template=town), "town")
    yield opened
    await opened.close()
    postgres_cluster.drop_database(name)
