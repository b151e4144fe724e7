"""One Spark session for all tests in this process, and a real cluster where it is needed.

A process has one session at a time: tests on a cluster run theirs in separate processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import naksha.spark
from naksha.spark.runtime.storage_cache import close, close_all
from naksha.spark.source.options import StorageRef
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.spark_cluster import JAVA_OPTIONS, SparkCluster
from tests.spark.drivers import Driver, Drivers
from tests.spark.towns import Town, fill

SECONDS_MAX = 600
"""A session takes its time on a busy machine."""

SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
}

BOTH = {
    "test_a_double_is_found_whatever_its_digits",
    "test_a_query_returns_the_same_as_the_storage",
    "test_it_is_that_of_the_storage",
    "test_it_is_what_the_storage_answers",
    "test_nothing_is_wrong_with_a_restored_backup",
    "test_only_what_really_changed_is_written",
    "test_the_splits_have_the_filters",
    "test_states_needed_by_a_tag_are_kept",
}
"""Tests that always run on both storages. Others run on PostgreSQL when there is time: each storage
keeps the same contract, which has tests of its own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))
        name, _, case = item.name.partition("[")
        if case.startswith("postgresql") and name not in BOTH:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of this process."""
    made = naksha.spark.session("local[2]", settings=SETTINGS)
    yield made
    made.stop()
    close_all()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers. Tests may kill executors, which come back, but not workers."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drivers(
    spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drivers]:
    """The drivers on the cluster."""
    made = Drivers(spark_cluster.master, tmp_path_factory.mktemp("drivers"))
    yield made
    made.close()


@pytest.fixture
def driver(drivers: Drivers) -> Driver:
    """A driver on the cluster, which a test may kill."""
    return drivers.one()


TownMaker = Callable[[str], AbstractContextManager[Town]]


@pytest.fixture(scope="session")
def town_maker(
    tmp_path_factory: pytest.TempPathFactory, database_factory: DatabaseFactory
) -> TownMaker:
    """Makes storages, `file` or `postgresql`, for as long as a block."""

    @contextmanager
    def make(kind: str) -> Iterator[Town]:
        with ExitStack() as stack:
            if kind == "file":
                location = f"file:{tmp_path_factory.mktemp('town')}/town.naksha"
            else:
                location = stack.enter_context(database_factory.fresh())
            yield Town(location)
            close(StorageRef(location))

    return make


@pytest.fixture(scope="session", params=["file", "postgresql"])
def town(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage with a history, which no test changes."""
    with town_maker(request.param) as made:
        made.call(fill)
        yield made
