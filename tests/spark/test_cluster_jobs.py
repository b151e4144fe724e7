"""The jobs as commands whose tasks run on a real cluster.

Files of several kinds are loaded, then compared, partitioned, exported, archived and verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import geopandas
import pytest
import shapely

import naksha
from naksha.testing.servers.spark_cluster import SparkCluster
from naksha.testing.storage.suite_support import point
from tests.cli.command import naksha as command
from tests.spark.conftest import TownMaker
from tests.spark.drivers import Drivers

COLLECTION = "stops"
SECONDS_MAX = 300
SETTINGS = (
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions=2",
)


class Jobs(NamedTuple):
    """The jobs of a storage, on a cluster."""

    location: str
    master: str
    folder: Path

    def run(self, job: str, *more: str) -> dict[str, Any]:
        """A job to its end; gives its report."""
        settings = [word for setting in SETTINGS for word in ("--spark", setting)]
        what = ["job", job, "--storage", self.location, "--collection", COLLECTION, "--json"]
        arguments = [*what, "--master", self.master, *settings, *more]
        ended = command(*arguments, cwd=self.folder, seconds_max=SECONDS_MAX)
        assert ended.returncode == 0, ended.stderr + ended.stdout
        reported: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])["report"]
        return reported

    def names(self, version: str = "HEAD") -> dict[str, str]:
        """Return the names by id, from the storage itself."""
        with naksha.connect(self.location, app_id="test") as db:
            found = db.collection(COLLECTION).at(version).query()
            return {state["id"]: state["properties"]["name"] for state in found}


@pytest.fixture(params=["file", "postgresql"])
def jobs(
    request: pytest.FixtureRequest,
    spark_cluster: SparkCluster,
    drivers: Drivers,
    town_maker: TownMaker,
    tmp_path: Path,
) -> Iterator[Jobs]:
    drivers.close()  # which has all cores of the cluster
    with town_maker(request.param) as town:
        yield Jobs(town.location, spark_cluster.master, tmp_path)


def write_files(folder: Path) -> None:
    """A dated history, and a delivery in files of three kinds."""
    steps = [
        {"at": "2021-03-01", "put": [point("a", name="A"), point("b", name="B")]},
        {"at": "2022-03-01", "put": [point("b", name="Bee")], "deleted": ["a"]},
    ]
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, steps)))
    delivery = folder / "delivery"
    delivery.mkdir()
    lines = [json.dumps(point(f"line-{n}", n / 10, 1, name=f"L{n}")) for n in range(40)]
    (delivery / "lines.geojsonl").write_text("\n".join(lines))
    rows = "\n".join(f"row-{n},{n / 10},-2,R{n}" for n in range(40))
    (delivery / "rows.csv").write_text(f"id,lon,lat,name\n{rows}\n")
    names = [f"P{n}" for n in range(40)]
    places = shapely.points([(n / 10, 3) for n in range(40)])
    ids = [f"place-{n}" for n in range(40)]
    frame = geopandas.GeoDataFrame({"id": ids, "name": names}, geometry=places, crs=4326)
    frame.to_file(delivery / "places.gpkg", driver="GPKG")


@pytest.mark.long
def test_executors_do_the_work_of_commands(jobs: Jobs, drivers: Drivers) -> None:
    write_files(jobs.folder)
    assert jobs.run("load", "--history", "--files", "history.jsonl")["transactions"] == 2
    for file in ("lines.geojsonl", "rows.csv", "places.gpkg"):
        done = jobs.run("load", "--files", f"delivery/{file}", "--mode", "upsert")
        assert (done["created"], done["rejected"]) == (40, 0)
    head = jobs.names()
    assert head.items() >= {"b": "Bee", "line-7": "L7", "row-8": "R8", "place-9": "P9"}.items()
    assert len(head) == 121
    reported = jobs.run("diff", "--files", "delivery/rows.csv", "--mode", "mirror")
    assert (reported["created"], reported["updated"], reported["deleted"]) == (0, 0, 81)
    reported = jobs.run("partition", "--features-max", "40")
    assert (reported["features"], reported["cells"] > 1) == (121, True)
    reported = jobs.run("export", "--output", "exported")
    exported = geopandas.read_parquet(jobs.folder / "exported")
    assert dict(zip(exported["id"], map(name_of, exported["properties"]), strict=True)) == head
    check_archive(jobs, drivers)
    reported = jobs.run("verify")
    assert (reported["violations"], reported["states"] >= 121) == ({}, True)


def name_of(properties: str) -> str:
    return str(json.loads(properties)["name"])


def check_archive(jobs: Jobs, drivers: Drivers) -> None:
    """History is dropped, and executors read it from the archive."""
    before = jobs.names("1")
    assert before == {"a": "A", "b": "B"}
    reported = jobs.run("archive", "--archive", "archive", "--older-than-days", "300")
    assert (reported["dropped"], reported["left"]) == (reported["states"], 0)
    assert reported["states"] > 0
    archive = str(jobs.folder / "archive")
    asked = {"location": jobs.location, "collection": COLLECTION, "archive": archive}
    reported = drivers.one().ask("archived", **asked, version="1")
    assert {id: name_of(text) for id, text in reported["features"].items()} == before
    drivers.close()
