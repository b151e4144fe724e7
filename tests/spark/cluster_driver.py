"""A driver in a separate process that runs commands on a cluster, line by line.

python -m tests.spark.cluster_driver MASTER

A line is a JSON object: `do` names one of the functions here, the rest are its arguments. So is the
answer. What tasks run is sent to them: executors know nothing of the tests.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import naksha.spark
from naksha.spark.archive.archive import archived_features
from naksha.spark.jobs.diff import Diff
from naksha.spark.jobs.diff import diff as diff_versions
from naksha.spark.jobs.export import Export
from naksha.spark.jobs.export import export as export_files
from naksha.spark.jobs.frame import SilentProgress
from naksha.spark.jobs.load import load as load_files
from naksha.spark.jobs.loading.records import FileRecords, records_of
from naksha.spark.jobs.loading.spec import Load
from naksha.spark.source.options import StorageRef
from naksha.spi.staging import WriteMode
from naksha.testing.servers.spark_cluster import JAVA_OPTIONS

PARTS = 3
"""One more than there are tasks at once."""
ROWS = 1_000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
}
Answer = dict[str, Any]


def read(spark: SparkSession, location: str, collection: str, version: str) -> Answer:
    """States of a version; and of the tasks that read them, where they are and what they see."""
    table = naksha.spark.features(spark, location, collection, version=version)
    rows = table.where("author <> 'bob'").mapInArrow(with_reader, "uuid string, by string")
    found = rows.collect()
    by = [json.loads(text) for text in {row.by for row in found}]
    return {"states": sorted(row.uuid for row in found), "by": by}


def with_reader(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the processes above the one that has them, and what it can import."""
    pids, pid = [], os.getpid()
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(fields[1])
        pids.append(pid)
    sees = [name for name in ("naksha", "tests.spark") if find_spec(name) is not None]
    by = json.dumps({"pids": pids, "sees": sees})
    for batch in batches:
        uuids = batch.column(batch.schema.names.index("uuid"))
        reported = pa.array([by] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([uuids, reported], ["uuid", "by"])


def follow(
    spark: SparkSession,
    location: str,
    collection: str,
    folder: str,
    transactions_max: int | None = None,
) -> Answer:
    """Catch up with a collection, into files."""
    stream = naksha.spark.changes(
        spark, location, collection, starting="beginning", transactions_max=transactions_max
    )
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.start(f"{folder}/rows").awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows").collect()
    changes = [[row.seq_number, row.id, row.change, row.uuid] for row in rows]
    return {"changes": sorted(changes)}


def write(
    spark: SparkSession, location: str, collection: str, job: str, folder: str, features: int
) -> Answer:
    """Write a collection. Each task stages the half of its part, leaves a file in the folder whose
    name ends with its process, and waits until a file `go` is there: so others know when it is in
    the midst of its work."""
    table = slow_table(spark, folder, features)
    done = naksha.spark.write(table, location, collection, app_id="cluster", mode="mirror", job=job)
    return {"counts": [done.created, done.updated, done.deleted, done.retained]}


def write_again(
    spark: SparkSession, location: str, collection: str, job: str, folder: str, features: int
) -> Answer:
    """The same in Spark's own words, all of it: tasks stage and the driver commits."""
    writer = slow_table(spark, folder, features).write.format("naksha").mode("append")
    options = {"appId": "cluster", "writeMode": "mirror", "job": job}
    writer.options(storage=location, collection=collection, **options).save()
    return {}


def slow_table(spark: SparkSession, folder: str, features: int) -> DataFrame:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        for first in range(0, features, ROWS):
            if first == features // 2:
                wait(folder)
            ids = pa.array([f"{part}/{n}" for n in range(first, first + ROWS)])
            texts = pa.array(['{"text":"some text"}'] * ROWS)
            yield pa.RecordBatch.from_arrays([ids, texts], ["id", "properties"])

    return spark.range(0, PARTS, 1, PARTS).mapInArrow(slow, "id string, properties string")


def load_slowly(
    spark: SparkSession, location: str, collection: str, job: str, folder: str, files: str
) -> Answer:
    """The job `load`, whose tasks wait in the middle of their records as those of `write` do."""
    spec = Load(
        place=StorageRef(location),
        collection=collection,
        files=(files,),
        app_id="cluster",
        mode=WriteMode.MIRROR,
        job_id=job,
    )

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = list(batches)
        for n, batch in enumerate(read):
            if n == len(read) // 2:
                wait(folder)
            yield batch

    def slow_records(*given: Any) -> FileRecords:
        found = records_of(*given)
        rows = found.rows.repartition(PARTS).mapInArrow(slow, found.rows.schema)
        return found._replace(rows=rows)

    with mock.patch("naksha.spark.jobs.load.records_of", slow_records):
        done = load_files(spark, spec, SilentProgress())
    return {"counts": [done.created, done.updated, done.deleted, done.unchanged]}


def wait(folder: str) -> None:
    """Tell that a task is in the middle, and wait until it may go on."""
    context = TaskContext.get()
    assert context is not None
    Path(folder, f"{context.partitionId()}-{context.taskAttemptId()}-{os.getpid()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.05)


def load(spark: SparkSession, location: str, collection: str, files: str) -> Answer:
    """Load Parquet files."""
    spec = Load(place=StorageRef(location), collection=collection, files=(files,), app_id="cluster")
    done = load_files(spark, spec, SilentProgress())
    return {"created": done.created, "rejected": done.rejected}


def export(spark: SparkSession, location: str, collection: str, output: str) -> Answer:
    """Export a collection."""
    spec = Export(place=StorageRef(location), collection=collection, output=output)
    done = export_files(spark, spec, SilentProgress())
    return {"features": done.features, "files": [file.path for file in done.files]}


def diff(spark: SparkSession, location: str, collection: str, old: str, new: str) -> Answer:
    """Compare two versions."""
    spec = Diff(place=StorageRef(location), collection=collection, old=old, new=new)
    done = diff_versions(spark, spec, SilentProgress())
    return {"created": done.created, "updated": done.updated, "deleted": done.deleted}


def archived(
    spark: SparkSession, location: str, collection: str, archive: str, version: str
) -> Answer:
    """Features of a version that lives in an archive."""
    table = archived_features(spark, StorageRef(location), collection, archive, version)
    return {"features": {row.id: row.properties for row in table.collect()}}


def whereabouts(spark: SparkSession) -> Answer:
    """Return the paths of Python and of the package in a task, and the package's data files."""

    def look(_: int) -> tuple[str, str, str]:
        package = find_spec("naksha")
        assert package is not None
        folder = Path(package.origin or "").parent
        files = [path for path in folder.rglob("*.*") if not path.suffix.startswith(".py")]
        data = sorted(str(path.relative_to(folder)) for path in files)
        return sys.executable, str(folder), json.dumps(data)

    ((python, folder, data),) = {*spark.sparkContext.parallelize(range(4), 4).map(look).collect()}
    return {"python": python, "folder": folder, "data": json.loads(data)}


TOLD = (read, follow, write, write_again, load_slowly, load, export, diff, archived, whereabouts)
DONE: dict[str, Callable[..., Answer]] = {each.__name__: each for each in TOLD}


def main() -> None:
    spark = naksha.spark.session(sys.argv[1], settings=SETTINGS)
    for line in sys.stdin:
        reported = json.loads(line)
        answer = DONE[reported.pop("do")](spark, **reported)
        os.write(1, (json.dumps(answer) + "\n").encode())
    spark.stop()


if __name__ == "__main__":
    main()
