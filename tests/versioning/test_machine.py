"""Rollback, revert, tags, branches and merges, compared with a model of whole dictionaries."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from naksha.psql import PsqlStorage
from naksha.spi.storage import Storage
from naksha.sqlite import SqliteStorage
from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.models.stateful_support import CoroutineRunner
from tests.versioning.machine import VersioningMachine

Run = Callable[[bool], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def run(
    request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory
) -> Iterator[Run]:
    driver = CoroutineRunner()
    with database_factory.fresh() as dsn:
        storage: Storage
        if request.param == "sqlite":
            storage = driver(SqliteStorage.open(tmp_path / "machine.naksha", "machine"))
        else:
            storage = driver(PsqlStorage.open(dsn, "machine"))
        parts = {"driver": driver, "storage": storage, "examples": itertools.count(1)}
        machine = type("BoundMachine", (VersioningMachine,), parts)

        def go(long: bool) -> None:
            run_state_machine_as_test(machine, settings=_settings(long))

        yield go
        driver(storage.close())
        driver(asyncio.sleep(0))
        driver.close()


def test_a_short_run_that_is_the_same_every_time(run: Run) -> None:
    run(False)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_long_run_at_random(run: Run) -> None:
    run(True)


def _settings(long: bool) -> settings:
    return settings(
        max_examples=300 if long else 5,
        stateful_step_count=40,
        derandomize=not long,
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
