"""Storages for jobs: a test that takes a `town` or a `location` runs on both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from naksha.spark.runtime.storage_cache import close_all
from naksha.spark.source.options import StorageRef
from naksha.testing.fixtures import DatabaseFactory
from tests.installed import make_installed
from tests.spark.jobs.town import Town

TEMPLATE = "naksha_jobs_template"


@pytest.fixture(scope="session")
async def template(database_factory: DatabaseFactory) -> str:
    """The name of a database with the schema in it, to be copied."""
    await make_installed(database_factory, TEMPLATE, "town")
    return TEMPLATE


@pytest.fixture(params=["sqlite", "postgresql"])
def town(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory, template: str
) -> Iterator[Town]:
    """A storage with an empty collection `places`."""
    if request.param == "sqlite":
        yield _made(f"file:{tmp_path}/town.naksha")
        close_all()
        return
    with database_factory.fresh(template) as dsn:
        yield _made(dsn)
        close_all()


@pytest.fixture
def database_town(database_factory: DatabaseFactory, template: str) -> Iterator[Town]:
    """The same in a database only, with all leaves, for what only PostgreSQL can do."""
    with database_factory.fresh(template) as dsn:
        yield _made(dsn, partitions=16)
        close_all()


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


@pytest.fixture
def small_town(tmp_path: Path) -> Iterator[Town]:
    """The same in a file only, for what has nothing to do with the storage."""
    yield _made(f"file:{tmp_path}/town.naksha")
    close_all()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    """A place for a storage in a file, likewise."""
    yield f"file:{tmp_path}/town.naksha"
    close_all()


def _made(location: str, **settings: Any) -> Town:
    made = Town(StorageRef(location))
    made.create_collection("places", **settings)
    return made
