"""pytest fixtures that give each test its own database.

Load them with `pytest_plugins = ["naksha.testing.fixtures"]` in the top conftest.

    async def test_something(database: str) -> None:
        connection = await asyncpg.connect(database)

`database` is the DSN of a fresh PostgreSQL database that has PostGIS; copying a template takes
about 40 ms. `redis_locations` and `mariadb_locations` yield separate locations on one Redis and
one MariaDB. Every test that uses them gets the mark `postgres`, `redis` or `mariadb`, so
`-m "not postgres"` needs no such server.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from naksha.testing.servers.mariadb_server import MariadbServer
from naksha.testing.servers.postgres import PostgresCluster, Setting
from naksha.testing.servers.redis_server import RedisServer

TEMPLATE = "naksha_template"

# A test's data may be lost in a power failure, so writes need not wait for the disk; all other
# settings are the server's defaults.
SETTINGS: dict[str, Setting] = {
    "fsync": False,
    "full_page_writes": False,
    "max_connections": 200,
}
POSTGIS = "postgis-3"
"""Library preloaded by the server, if installed.

A session that uses PostGIS loads it with 50 libraries, which takes longer than most tests need for
their SQL. Preloaded by the server, it is available in all sessions.
"""


class DatabaseFactory:
    """Creator of fresh databases, for tests that need several or keep one longer."""

    def __init__(self, cluster: PostgresCluster, template: str) -> None:
        self._cluster = cluster
        self._template = template
        self._numbers = itertools.count(1)

    def template(self, name: str) -> str:
        """Create a database for `fresh` to copy, for an expensive setup, and return its DSN.

        No session may be connected to it while it is copied.
        """
        return self._cluster.create_database(name, template=self._template)

    @contextmanager
    def fresh(self, template: str | None = None) -> Iterator[str]:
        """Yield the DSN of a new database, dropped with all its sessions when the block ends."""
        name = f"test_{next(self._numbers)}"
        dsn = self._cluster.create_database(name, template=template or self._template)
        try:
            yield dsn
        finally:
            self._cluster.drop_database(name)


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[PostgresCluster]:
    """One server for the whole run; a test that stops or restarts a server creates its own."""
    cluster = PostgresCluster(SETTINGS)
    if POSTGIS in cluster.install.libraries:
        cluster.settings["shared_preload_libraries"] = POSTGIS
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def database_factory(postgres_cluster: PostgresCluster) -> DatabaseFactory:
    """Factory of fresh databases: `with database_factory.fresh() as dsn`."""
    extensions = [
        name for name in ("postgis", "plpgsql_check") if name in postgres_cluster.install.extensions
    ]
    postgres_cluster.create_database(TEMPLATE)
    for name in extensions:
        postgres_cluster.execute(f"CREATE EXTENSION {name} SCHEMA public", TEMPLATE)
    # PostgreSQL cannot copy a template that has connections.
    postgres_cluster.execute(f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false IS_TEMPLATE true")
    return DatabaseFactory(postgres_cluster, TEMPLATE)


@pytest.fixture
def database(database_factory: DatabaseFactory) -> Iterator[str]:
    """The DSN of a fresh database with PostGIS, and plpgsql_check where it is installed."""
    with database_factory.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for the whole run; a test that stops or restarts a server creates its own."""
    with RedisServer({"appendfsync": "everysec"}) as server:
        yield server


@pytest.fixture(scope="session")
def redis_locations(redis_server: RedisServer) -> Iterator[str]:
    """Unused locations: `next(redis_locations)`, as often as needed."""
    return (f"{redis_server.location()}&prefix=test-{n}" for n in itertools.count(1))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """One server for the whole run; a test that stops or restarts a server creates its own."""
    with MariadbServer({"innodb-flush-log-at-trx-commit": 2}) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_locations(mariadb_server: MariadbServer) -> Iterator[str]:
    """Fresh databases: `next(mariadb_locations)`, as often as needed."""
    return (mariadb_server.create_database(f"test_{n}") for n in itertools.count(1))


MARKS = {
    "postgres_cluster": "postgres",
    "redis_server": "redis",
    "mariadb_server": "mariadb",
}
"""The mark of a test that uses a fixture."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks that `pytest_collection_modifyitems` sets."""
    for mark in MARKS.values():
        config.addinivalue_line("markers", f"{mark}: needs that server (set automatically)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a server, before `-m` selects."""
    for item in items:
        for fixture, mark in MARKS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
