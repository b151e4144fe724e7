"""On a real cluster: an executor or the driver that is killed in the midst of a write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import naksha
from naksha.model import limits
from naksha.testing.spark_cluster import SparkCluster
from tests.spark.conftest import TownMaker
from tests.spark.test_cluster import ROOT
from tests.spark.towns import Town
from tests.spark.write_driver import FEATURES, PARTS
from tests.spark.write_parts import held, log, staged

SECONDS_MAX = 300
LATER_MS = (limits.STAGING_LEASE_SECONDS + 60) * 1000
COLLECTION = "roads"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A cluster whose executors are killed."""
    with SparkCluster() as made:
        yield made


@pytest.fixture
def towns(town_maker: TownMaker) -> Iterator[list[Town]]:
    """One storage of each kind, with a feature in it."""
    with ExitStack() as stack:
        made = [stack.enter_context(town_maker(kind)) for kind in ("file", "postgresql")]
        for town in made:
            with naksha.connect(town.location, app_id="test") as db:
                old = {"type": "Feature", "id": "old", "properties": {}}
                db.create_collection(COLLECTION).create([old])
        yield made


@contextmanager
def driver(
    cluster: SparkCluster, folder: Path, towns: list[Town]
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, which is gone at the end of the block."""
    for number in range(len(towns)):
        (folder / str(number)).mkdir()
    command = [sys.executable, "-m", "tests.spark.write_driver", cluster.master, str(folder)]
    with (folder / "driver.log").open("wb") as told:
        process = subprocess.Popen(
            [*command, COLLECTION, *(town.location for town in towns)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=told,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver with its JVM, at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, "the driver is gone"
        time.sleep(0.1)


def marks(folder: Path) -> list[str]:
    """The attempts that have come to the middle."""
    return [path.name for path in folder.glob("*-*")]


def test_an_executor_that_is_killed_doubles_nothing(
    cluster: SparkCluster, towns: list[Town], tmp_path: Path
) -> None:
    before = [len(log(town)) for town in towns]
    with driver(cluster, tmp_path, towns) as process:
        assert process.stdout is not None
        for number, town in enumerate(towns):
            folder = tmp_path / str(number)
            # Two at once, one on each executor: both have staged something.
            wait_for(lambda folder=folder: len(marks(folder)) >= 2, process)
            wait_for(lambda town=town: staged(town) >= 2, process)
            cluster.kill_executor()
            wait_for(lambda folder=folder: len(marks(folder)) >= 3, process)
            (folder / "go").touch()
            line = process.stdout.readline()
            assert line, (tmp_path / "driver.log").read_text()[-4000:]
            assert json.loads(line) == {"counts": [PARTS * FEATURES, 0, 1, 0]}
            # Some task was done again.
            assert len(marks(folder)) > PARTS
        assert process.wait(SECONDS_MAX) == 0
    wanted = sorted(f"{part}/{n}" for part in range(PARTS) for n in range(FEATURES))
    for town, count in zip(towns, before, strict=True):
        assert sorted(state.id for state in held(town, COLLECTION)) == wanted
        (transaction,) = log(town)[count:]
        assert transaction.app_id == "cluster"


def test_a_driver_that_is_killed_leaves_all_as_it_was(
    cluster: SparkCluster, towns: list[Town], tmp_path: Path
) -> None:
    for number, town in enumerate(towns):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        before = len(log(town))
        with driver(cluster, folder, [town]) as process:
            wait_for(lambda folder=folder: len(marks(folder / "0")) >= 2, process)
            wait_for(lambda town=town: staged(town) >= 2, process)
            kill(process)
        assert [state.id for state in held(town, COLLECTION)] == ["old"]
        assert len(log(town)) == before
        wait_for(lambda: cluster.executors() == [])
        assert staged(town) >= 2
        # Their lease is over: all is swept, as soon as the last process of a task is gone.
        wait_for(lambda town=town: swept(town))


def swept(town: Town) -> bool:
    town.call(lambda s: s.maintain(time.time_ns() // 1_000_000 + LATER_MS))
    return staged(town) == 0
