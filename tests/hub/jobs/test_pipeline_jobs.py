"""All jobs of the pipeline, run by a hub on both storages.

Spark runs in the process of the job or on a real cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import geopandas
import pyarrow.parquet as pq
import pytest

from naksha.testing.fixtures import DatabaseFactory
from naksha.testing.servers.spark_cluster import JAVA_OPTIONS, SparkCluster
from naksha.testing.storage.suite_support import point
from tests.hub.jobs.support import JobHub

SECONDS_MAX = 900
LOCAL, CLUSTER = "local", "cluster"
EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": JAVA_OPTIONS}
STEPS = [
    {"at": "2021-03-01", "put": [point("a", name="A"), point("b", 0, 0, name="B")]},
    {"at": "2022-03-01", "put": [point("b", 0, 0, name="Bee")], "deleted": ["a"]},
    {"at": "2023-03-01", "put": [point("c", name="C")]},
]
ROWS = 40


class Pipeline(NamedTuple):
    """The jobs of a hub, and where Spark has them run."""

    hub: JobHub
    master: str

    @property
    def files(self) -> Path:
        return self.hub.files / "default"

    def report(self, job: str, **spec: Any) -> dict[str, Any]:
        """A job to its end; gives its report."""
        return self.done(self.hub.submit(job, **spec))

    def done(self, id: str) -> dict[str, Any]:
        """The report of a job, once that is done."""
        status = self.hub.ended(id)
        assert status["state"] == "done", (status, self.hub.server.log())
        told: dict[str, Any] = status["report"]
        return told

    def names(self, version: int | None = None) -> dict[str, str]:
        """Ids and names, as the hub returns them."""
        asked = {"limit": 10_000} | ({} if version is None else {"version": version})
        answer = self.hub.client.get("/spaces/roads/iterate", params=asked).raise_for_status()
        return {each["id"]: each["properties"]["name"] for each in answer.json()["features"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as made:
        yield made


@pytest.fixture(params=[LOCAL, CLUSTER])
def master(request: pytest.FixtureRequest) -> str:
    if request.param == LOCAL:
        return "local[1]"
    made: SparkCluster = request.getfixturevalue("cluster")
    return made.master


@pytest.fixture(params=["file", "postgresql"])
def pipeline(
    request: pytest.FixtureRequest,
    master: str,
    tmp_path: Path,
    database_factory: DatabaseFactory,
) -> Iterator[Pipeline]:
    """A hub with a history and a delivery among its files, none of which is loaded."""
    with database_factory.fresh() as dsn:
        hub = JobHub(
            tmp_path / "hub",
            dsn=dsn if request.param == "postgresql" else None,
            master=master,
            settings=EXECUTORS,
        )
        made = Pipeline(hub, master)
        (made.files / "history.jsonl").write_text("\n".join(map(json.dumps, STEPS)))
        rows = "\n".join(f"row-{n},{n / 10},-2,R{n}" for n in range(ROWS))
        (made.files / "rows.csv").write_text(f"id,lon,lat,name\nb,0,0,Bee\n{rows}\nlost,7,99,N\n")
        yield made
        hub.close()


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX)
def test_all_jobs_are_jobs_of_a_hub(pipeline: Pipeline) -> None:
    check_history(pipeline)
    check_delivery(pipeline)
    head = pipeline.names()
    assert len(head) == ROWS + 1
    check_outputs(pipeline, head)
    check_archive(pipeline)
    assert pipeline.names() == head
    told = pipeline.report("verify", output="violations")
    assert (told["violations"], told["states"] > len(head)) == ({}, True)


def check_history(pipeline: Pipeline) -> None:
    """It comes first: no transaction can be dated before another, not even that of a space which
    makes its collection."""
    told = {"storageId": "default", "collection": "roads"}
    body = {"job": "load", **told, "spec": {"files": ["history.jsonl"], "history": True}}
    id = pipeline.hub.client.post("/jobs", json=body).raise_for_status().json()["id"]
    assert pipeline.done(id)["transactions"] == 3
    pipeline.hub.make_space()


def check_delivery(pipeline: Pipeline) -> None:
    """A comparison with files reports exactly the changes that loading them makes."""
    wanted = {"created": ROWS, "updated": 0, "deleted": 1, "rejected": 1}
    told = pipeline.report("diff", files=["rows.csv"], mode="mirror")
    assert {name: told[name] for name in wanted} == wanted
    done = pipeline.report("load", files=["rows.csv"], mode="mirror", delete_rejected=True)
    assert {name: done[name] for name in wanted} == wanted


def check_outputs(pipeline: Pipeline, head: dict[str, str]) -> None:
    """Differences, cells and exports are in files that others read."""
    told = pipeline.report("diff", old="3", output="changes", output_format="json-lines")
    texts = [path.read_text() for path in (pipeline.files / "changes").glob("*.txt")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    changes = {line["id"]: line["action"] for line in lines}
    assert (changes.pop("c"), set(changes.values())) == ("deleted", {"created"})
    assert (told["created"], len(changes)) == (ROWS, ROWS)
    told = pipeline.report("partition", features_max=10, output="cells", keep=False)
    cells = pq.read_table(pipeline.files / "cells").to_pylist()
    assert {cell["qrid"]: cell["features"] for cell in cells} == told["byQrid"]
    assert (told["features"], told["cells"] > 1) == (len(head), True)
    told = pipeline.report("export", output="exported")
    exported = geopandas.read_parquet(pipeline.files / "exported")
    names = [json.loads(text)["name"] for text in exported["properties"]]
    assert dict(zip(exported["id"], names, strict=True)) == head
    assert told["features"] == len(head)


def check_archive(pipeline: Pipeline) -> None:
    """Old states are moved to the archive, and the hub no longer has them."""
    assert pipeline.names(1) == {"a": "A", "b": "B"}
    told = pipeline.report("archive", archive="archive", older_than_days=300)
    assert (told["states"] > 0, told["dropped"], told["left"]) == (True, told["states"], 0)
    files = list((pipeline.files / "archive").rglob("*.parquet"))
    states = [state for file in files for state in pq.read_table(file).to_pylist()]
    assert ("b", 1) in {(state["id"], state["version"]) for state in states}
    answer = pipeline.hub.client.get("/spaces/roads/iterate", params={"version": 1})
    assert answer.status_code == 410, answer.text
