"""A driver in a process of its own that writes on a cluster, and says so line by line.

python -m tests.spark.write_driver MASTER FOLDER COLLECTION LOCATION…

Each task brings half of its features, leaves a file in FOLDER/LOCATION's number, and waits there
until a file `go` comes: so others know when it is in the midst of its work.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

import naksha.spark

PARTS = 4
FEATURES = 200
"""Of each part."""


def main() -> None:
    master, folder, collection, *locations = sys.argv[1:]
    # Half of a part is more than one batch, so that it is staged before the task waits.
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    spark = naksha.spark.session(master, settings=settings)
    for number, location in enumerate(locations):
        marks = f"{folder}/{number}"

        def slow(batches: Iterator[pa.RecordBatch], marks: str = marks) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            context = TaskContext.get()
            assert context is not None
            part = context.partitionId()
            for n in range(FEATURES):
                if n == FEATURES // 2:
                    (Path(marks) / f"{part}-{context.taskAttemptId()}").touch()
                    while not (Path(marks) / "go").exists():
                        time.sleep(0.05)
                ids = pa.array([f"{part}/{n}"])
                yield pa.RecordBatch.from_arrays([ids, pa.array(["{}"])], ["id", "properties"])

        table = spark.range(0, PARTS, 1, PARTS).mapInArrow(slow, "id string, properties string")
        done = naksha.spark.write(
            table, location, collection, app_id="cluster", mode="mirror", message="on a cluster"
        )
        counts = [done.created, done.updated, done.deleted, done.retained]
        os.write(1, (json.dumps({"counts": counts}) + "\n").encode())
    spark.stop()


if __name__ == "__main__":
    main()
