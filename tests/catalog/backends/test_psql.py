"""The catalog suite on PostgreSQL."""

from collections.abc import Iterator

import pytest

from naksha.psql import PsqlCatalog
from naksha.testing.catalog.suite import *  # noqa: F403
from naksha.testing.catalog.suite import OpenCatalog
from naksha.testing.fixtures import DatabaseFactory

SCHEMA = 'Our "catalog"'
"""A name that is right only where it is quoted."""


@pytest.fixture(scope="module")
def open_catalog(database_factory: DatabaseFactory) -> Iterator[OpenCatalog]:
    """One database for all; each test has realms of its own."""
    with database_factory.fresh() as dsn:
        yield lambda: PsqlCatalog.open(dsn, schema=SCHEMA)
