"""Memory of a load, independent of the amount of data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import naksha
from naksha.testing.servers.spark_cluster import SparkCluster
from tests.spark.conftest import TownMaker
from tests.spark.drivers import Drivers

FILES = 2
"""One per executor: each loads half of the features."""
FEW, MANY = 250_000, 1_000_000
GROWTH_MB_MAX = 32
"""For 375,000 more features in each process: 90 bytes of a feature, which has more."""
SAMPLE_SECONDS = 0.1


def write_files(folder: Path, count: int) -> None:
    """Some features as files of Parquet."""
    folder.mkdir()
    random = np.random.default_rng(count)
    for number in range(FILES):
        size = count // FILES
        ids = [f"feature-{number}-{n}" for n in range(size)]
        columns = {
            "id": ids,
            "lon": random.uniform(-180, 180, size),
            "lat": random.uniform(-85, 85, size),
            "name": [f"the name of the {id_}" for id_ in ids],
            "height": random.integers(0, 9000, size),
        }
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{number}.parquet")


@contextmanager
def peaks_of(cluster: SparkCluster) -> Iterator[dict[int, float]]:
    """The most that each Python process of an executor ever had, in MB, by its id."""
    found: dict[int, float] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            for pid in cluster.python_workers():
                found[pid] = max(found.get(pid, 0.0), peak_mb(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def peak_mb(pid: int) -> float:
    """The most that a process ever had; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["file", "postgresql"])
def test_a_large_load_needs_no_more_memory(
    spark_cluster: SparkCluster, drivers: Drivers, town_maker: TownMaker, kind: str, tmp_path: Path
) -> None:
    # Executors that have done nothing yet.
    drivers.close()
    driver = drivers.one()
    most: dict[int, float] = {}
    with town_maker(kind) as town:
        for count in (FEW, MANY):
            write_files(tmp_path / str(count), count)
            with peaks_of(spark_cluster) as peaks:
                done = driver.ask(
                    "load",
                    location=town.location,
                    collection=f"loaded{count}",
                    files=f"{tmp_path}/{count}",
                )
            assert done == {"created": count, "rejected": 0}
            assert len(peaks) >= FILES
            most[count] = max(peaks.values())
        with naksha.connect(town.location, app_id="test") as db:
            assert db[f"loaded{MANY}"].count() == MANY
    assert most[MANY] - most[FEW] < GROWTH_MB_MAX, most
