"""Reads, streams and writes on a real cluster whose executors and drivers are killed.

Its executors have nothing but the installed packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

import naksha
from naksha.model import limits
from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.spi.storage import Storage
from naksha.testing.servers.spark_cluster import SparkCluster
from naksha.testing.storage.suite_support import point, published
from naksha.versioning import place_of
from naksha.versioning.diff import diff
from tests.docs.blocks import ROOT
from tests.spark.cluster_driver import PARTS
from tests.spark.conftest import TownMaker
from tests.spark.drivers import Driver, Drivers
from tests.spark.source.test_stream import log as feed
from tests.spark.source.write_support import fresh, held, log, staged, staged_bytes
from tests.spark.towns import COLLECTION, Town

SECONDS_MAX = 200
LATER_MS = (limits.STAGING_LEASE_SECONDS + 60) * 1000
LINES = 9_000
"""Features of a file that is loaded."""
MUCH = 100_000
"""More bytes than an empty attempt has."""
FEATURES = {"file": 8_000, "postgresql": 30_000}
"""Of each part: the half of it is more than what a storage keeps in memory before it stages."""


@pytest.fixture(scope="module", params=["file", "postgresql"])
def target(request: pytest.FixtureRequest, town_maker: TownMaker) -> Iterator[Town]:
    """A storage for tests that write."""
    with town_maker(request.param) as made:
        yield made


def wait_for(what: Callable[[], bool], driver: Driver | None = None) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline, driver and driver.said()
        if driver is not None and not driver.is_alive:
            driver.answer()
        time.sleep(0.1)


def new_target(town: Town) -> str:
    """A collection with one feature in it."""
    name = fresh()

    async def make(storage: Storage) -> None:
        async with storage.write("test") as session:
            await session.create_collection(CollectionInfo(id=name))
            await session.create(name, [point("old")])
        await published(storage)

    town.call(make)
    return name


# ---- Reading -------------------------------------------------------------------------------------


def test_executors_read_what_the_storage_answers(
    spark_cluster: SparkCluster, driver: Driver, town: Town
) -> None:
    reported = driver.ask("read", location=town.location, collection=COLLECTION, version="fix")
    states = town.states(Query(), "fix")
    wanted = sorted(state.uuid for state in states if state.xyz["author"] != "bob")
    assert reported["states"] == wanted
    assert 0 < len(wanted) < len(states)
    # Read by processes of executors, which workers have started; the tests are not there.
    workers = {worker.pid for worker in spark_cluster.workers}
    assert reported["by"]
    for by in reported["by"]:
        assert workers & set(by["pids"])
        assert by["sees"] == ["naksha"]


def test_executors_run_jobs(driver: Driver, town: Town, tmp_path: Path) -> None:
    asked = {"location": town.location, "collection": COLLECTION}

    async def changes(storage: Storage) -> Counter[str]:
        old, new = await place_of(storage, "first"), await place_of(storage, "HEAD")
        return Counter([change.action.value async for change in diff(old, new, COLLECTION)])

    reported = driver.ask("diff", **asked, old="first", new="HEAD")
    wanted = town.call(changes)
    assert reported == dict(wanted)
    assert len(wanted) == 3
    reported = driver.ask("export", **asked, output=str(tmp_path / "exported"))
    files = [pq.read_table(tmp_path / "exported" / path) for path in reported["files"]]
    ids = sorted(id for file in files for id in file.column("id").to_pylist())
    assert ids == sorted(state.id for state in town.states(Query()))
    assert reported["features"] == len(ids)


@pytest.mark.long
def test_executors_need_nothing_but_the_wheel(
    spark_cluster: SparkCluster, drivers: Drivers, town: Town, tmp_path: Path
) -> None:
    """Their Python has our package from a wheel, and all others from where we have them."""
    python, site = installed_wheel(tmp_path)
    drivers.close()
    driver = Driver(spark_cluster.master, tmp_path / "driver.log", python)
    try:
        reported = driver.ask("whereabouts")
        assert (Path(reported["python"]), Path(reported["folder"])) == (python, site / "naksha")
        ours = Path(naksha.__file__).parent
        data = [path for path in ours.rglob("*.*") if not path.suffix.startswith(".py")]
        assert reported["data"] == sorted(str(path.relative_to(ours)) for path in data)
        assert {".sql", ".bz2"} <= {path.suffix for path in data}
        asked = {"location": town.location, "collection": COLLECTION}
        reported = driver.ask("read", **asked, version="fix")
        states = town.states(Query(), "fix")
        assert reported["states"] == sorted(s.uuid for s in states if s.xyz["author"] != "bob")
        reported = driver.ask("export", **asked, output=str(tmp_path / "exported"))
        assert reported["features"] == len(town.states(Query()))
    finally:
        driver.close()


def installed_wheel(folder: Path) -> tuple[Path, Path]:
    """A Python that has our package from a wheel: gives it, and where its packages are."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    wheel = ["wheel", *offline, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*pip, *wheel], check=True)
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (built,) = folder.glob("naksha-*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(site), str(built)], check=True)
    # Links one by one: a path file would bring along the editable install.
    for package in Path(pyspark.__file__).parent.parent.iterdir():
        if "naksha" not in package.name and not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return python, site


@pytest.mark.long
def test_a_stream_whose_driver_is_killed_goes_on_without_loss_or_repetition(
    drivers: Drivers, target: Town, tmp_path: Path
) -> None:
    name = new_target(target)

    async def change(storage: Storage, n: int) -> None:
        async with storage.write("test") as session:
            await session.upsert(name, [point(f"f{n}"), point("often", n=n)])
            if n % 3 == 2:
                await session.delete(name, [f"f{n - 1}"])

    for n in range(12):
        target.call(partial(change, n=n))
    target.call(published)
    asked = {
        "location": target.location,
        "collection": name,
        "folder": str(tmp_path),
        "transactions_max": 1,
    }
    finished = tmp_path / "rows" / "_spark_metadata"
    for batches in (2, 5):
        driver = drivers.one()
        driver.tell("follow", **asked)
        wait_for((finished / str(batches)).exists, driver)
        driver.kill()
    assert len(list(finished.glob("[0-9]*"))) < 12
    reported = drivers.one().ask("follow", **asked)
    wanted = [list(change) for change in feed(target, name)]
    assert reported["changes"] == wanted
    assert {change for _, _, change, _ in wanted} == {"created", "updated", "deleted"}


# ---- Writing -------------------------------------------------------------------------------------


class Slow:
    """A write that waits in the middle."""

    def __init__(self, target: Town, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.collection = new_target(target)
        self.features = FEATURES[target.location.partition(":")[0]]
        self.options: dict[str, Any] = {
            "location": target.location,
            "collection": self.collection,
            "job": f"job-{self.collection}",
            "folder": str(folder),
            "features": self.features,
        }

    def begin(self, driver: Driver) -> None:
        """Until two tasks, on two executors, have staged the half of their parts."""
        driver.tell("write", **self.options)
        self.wait(driver, 2)
        wait_for(lambda: len(staged_bytes(self.target)) >= 2, driver)
        wait_for(lambda: min(staged_bytes(self.target)) > MUCH, driver)

    def wait(self, driver: Driver, attempts: int) -> None:
        """Until so many attempts have come to the middle."""
        wait_for(lambda: self.attempts >= attempts, driver)

    def go_on(self) -> None:
        (self.folder / "go").touch()

    @property
    def attempts(self) -> int:
        return len([*self.folder.glob("*-*")])

    @property
    def a_task(self) -> int:
        """The process of an attempt that is in the middle."""
        return int(next(self.folder.glob("*-*")).name.rpartition("-")[2])

    def ids(self) -> list[str]:
        return sorted(state.id for state in held(self.target, self.collection))


def test_a_write_whose_executor_is_killed_is_complete_and_done_once(
    spark_cluster: SparkCluster, driver: Driver, target: Town, tmp_path: Path
) -> None:
    slow = Slow(target, tmp_path)
    before = len(log(target))
    slow.begin(driver)
    gone = spark_cluster.kill_executor_of(slow.a_task)
    slow.wait(driver, 3)
    # No reader sees any of it yet.
    assert (slow.ids(), len(log(target))) == (["old"], before)
    slow.go_on()
    assert driver.answer() == {"counts": [PARTS * slow.features, 0, 1, 0]}
    assert gone not in spark_cluster.executors()
    assert slow.attempts == PARTS + 1
    wanted = sorted(f"{part}/{n}" for part in range(PARTS) for n in range(slow.features))
    assert slow.ids() == wanted
    (transaction,) = log(target)[before:]
    assert transaction.app_id == "cluster"
    assert staged(target) == 0
    # All tasks again, and another commit of the same job: nothing.
    driver.ask("write_again", **slow.options)
    assert slow.attempts == 2 * PARTS + 1
    assert (slow.ids(), len(log(target)), staged(target)) == (wanted, before + 1, 0)


@pytest.mark.long
def test_a_load_whose_executor_is_killed_is_complete_and_done_once(
    spark_cluster: SparkCluster, driver: Driver, target: Town, tmp_path: Path
) -> None:
    """The job, which reads, checks and stages in the same tasks."""
    slow = Slow(target, tmp_path)
    before, wanted = len(log(target)), sorted(f"line-{n}" for n in range(LINES))
    file = tmp_path / "lines.geojsonl"
    file.write_text("\n".join(json.dumps(point(id)) for id in wanted))
    asked = {**slow.options, "files": str(file)}
    del asked["features"]  # the file has them
    driver.tell("load_slowly", **asked)
    slow.wait(driver, 2)
    gone = spark_cluster.kill_executor_of(slow.a_task)
    slow.wait(driver, 3)
    assert (slow.ids(), len(log(target))) == (["old"], before)
    slow.go_on()
    assert driver.answer() == {"counts": [LINES, 0, 1, 0]}
    assert gone not in spark_cluster.executors()
    # What was shuffled is gone with the executor, too, so others may begin again.
    assert slow.attempts > PARTS
    assert (slow.ids(), len(log(target)), staged(target)) == (wanted, before + 1, 0)
    # The same job again reads nothing.
    file.unlink()
    assert driver.ask("load_slowly", **asked) == {"counts": [LINES, 0, 1, 0]}
    assert (slow.ids(), len(log(target)), staged(target)) == (wanted, before + 1, 0)


def test_a_write_whose_driver_is_killed_leaves_all_as_it_was(
    spark_cluster: SparkCluster, driver: Driver, target: Town, tmp_path: Path
) -> None:
    slow = Slow(target, tmp_path)
    before = len(log(target))
    slow.begin(driver)
    driver.kill()
    wait_for(lambda: spark_cluster.executors() == [])
    assert (slow.ids(), len(log(target))) == (["old"], before)
    # It is kept while the job may be resumed, then it is swept.
    sweep(target)
    assert staged(target) >= 2
    wait_for(lambda: sweep(target, LATER_MS) == 0)
    assert (slow.ids(), len(log(target))) == (["old"], before)


def sweep(target: Town, later_ms: int = 0) -> int:
    """Maintain a storage at another time; how many attempts are left."""
    now_ms = time.time_ns() // 1_000_000
    target.call(lambda s: s.maintain(now_ms + later_ms))
    return staged(target)
