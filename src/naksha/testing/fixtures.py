"""pytest fixtures that give a test a database of its own.

Load them with `pytest_plugins = ["naksha.testing.fixtures"]` in the top conftest.

    async def test_something(database: str) -> None:
        connection = await asyncpg.connect(database)

`database` is the DSN of a fresh PostgreSQL database that has PostGIS; a copy of a template takes
about 40 ms. `redis_locations` and `mariadb_locations` give places of their own on one Redis and one
MariaDB. Every test that uses them gets the mark `postgres`, `redis` or `mariadb`, so
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

# A test's data may be lost in a power failure, so nobody waits for the disk; everything else is as
# the server comes.
SETTINGS: dict[str, Setting] = {
    "fsync": False,
    "full_page_writes": False,
    "max_connections": 200,
}
POSTGIS = "postgis-3"
"""A session that uses PostGIS loads it with 50 libraries, which takes longer than most tests need
for their SQL. Loaded by the server, it is there in all sessions."""


class DatabaseFactory:
    """Makes fresh databases, for tests and fixtures that need several or keep one for longer."""

    def __init__(self, cluster: PostgresCluster, template: str) -> None:
        self._cluster = cluster
        self._template = template
        self._numbers = itertools.count(1)

    def template(self, name: str) -> str:
        """The DSN of a database for `fresh` to copy: what takes long to set up is set up once.
        While it is copied nobody may be connected to it."""
        return self._cluster.create_database(name, template=self._template)

    @contextmanager
    def fresh(self, template: str | None = None) -> Iterator[str]:
        """The DSN of a new database, dropped with all its sessions at the end of the block."""
        name = f"test_{next(self._numbers)}"
        dsn = self._cluster.create_database(name, template=template or self._template)
        try:
            yield dsn
        finally:
            self._cluster.drop_database(name)


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[PostgresCluster]:
    """One server for the whole run. A test that stops or restarts a server makes its own."""
    cluster = PostgresCluster(SETTINGS)
    if POSTGIS in cluster.install.libraries:
        cluster.settings["shared_preload_libraries"] = POSTGIS
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def database_factory(postgres_cluster: PostgresCluster) -> DatabaseFactory:
    """Where fresh databases come from: `with database_factory.fresh() as dsn`."""
    extensions = [
        name for name in ("postgis", "plpgsql_check") if name in postgres_cluster.install.extensions
    ]
    postgres_cluster.create_database(TEMPLATE)
    for name in extensions:
        postgres_cluster.execute(f"CREATE EXTENSION {name} SCHEMA public", TEMPLATE)
    # Nobody may connect to it, since a template in use cannot be copied.
    postgres_cluster.execute(f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false IS_TEMPLATE true")
    return DatabaseFactory(postgres_cluster, TEMPLATE)


@pytest.fixture
def database(database_factory: DatabaseFactory) -> Iterator[str]:
    """The DSN of a fresh database with PostGIS, and plpgsql_check where it is installed."""
    with database_factory.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for the whole run. A test that stops or restarts a server makes its own."""
    with RedisServer({"appendfsync": "everysec"}) as server:
        yield server


@pytest.fixture(scope="session")
def redis_locations(redis_server: RedisServer) -> Iterator[str]:
    """Where nothing is yet: `next(redis_locations)`, as often as needed."""
    return (f"{redis_server.location()}&prefix=test-{n}" for n in itertools.count(1))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """One server for the whole run. A test that stops or restarts a server makes its own."""
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
"""What a test needs that uses a fixture."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks that `pytest_collection_modifyitems` sets."""
    for mark in MARKS.values():
        config.addinivalue_line("markers", f"{mark}: needs such a server (set by itself)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, before `-m` selects."""
    for item in items:
        for fixture, mark in MARKS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
