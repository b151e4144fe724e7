"""A driver in a process of its own: reads storages on a cluster, and tells as JSON what it found.

python -m tests.spark.cluster_driver MASTER FOLDER LOCATION…
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

import naksha.spark
from tests.spark.towns import COLLECTION


def tell(spark: SparkSession, location: str, folder: str) -> dict[str, Any]:
    """States of two versions, and the changes that the stream has."""
    told: dict[str, Any] = {}
    for ref in ("HEAD", "fix"):
        table = naksha.spark.features(spark, location, COLLECTION, version=ref)
        told[ref] = sorted(row.uuid for row in table.where("author <> 'bob'").collect())
    stream = naksha.spark.changes(spark, location, COLLECTION, starting="beginning")
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.start(f"{folder}/rows").awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows").collect()
    told["changes"] = sorted(row.uuid for row in rows)
    return told


def main() -> None:
    master, folder, *locations = sys.argv[1:]
    spark = naksha.spark.session(master, settings={"spark.sql.shuffle.partitions": "2"})
    told = {place: tell(spark, place, f"{folder}/{n}") for n, place in enumerate(locations)}
    # Where it was read: not here.
    pids = spark.range(0, 4, 1, 4).mapInArrow(_pid, "id long").distinct().collect()
    answer = {"told": told, "here": os.getpid(), "there": [row.id for row in pids]}
    sys.stdout.write(json.dumps(answer) + "\n")
    spark.stop()


def _pid(batches: Any) -> Any:
    for batch in batches:
        yield batch.set_column(0, "id", [[os.getppid()] * batch.num_rows])


if __name__ == "__main__":
    main()
