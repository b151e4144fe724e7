"""One session of Spark for all tests, in this process; and a real cluster for those that need it.
A process has one session at a time: tests on a cluster run theirs in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import naksha.spark
from naksha.spark.opened import close_all
from naksha.testing.spark_cluster import SparkCluster

SECONDS_MAX = 600
"""A session takes its time on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if is_here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of this process."""
    made = naksha.spark.session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()
    close_all()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers; a test that kills one of them makes its own."""
    with SparkCluster() as cluster:
        yield cluster
