"""Features are read as a table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import naksha
from naksha.testing.spark_cluster import SparkCluster


def test_a_collection_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/town.naksha"
    with naksha.connect(location, app_id="test") as db:
        features = [{"type": "Feature", "id": f"f{n}", "properties": {"n": n}} for n in range(10)]
        db.create_collection("roads").create(features)
    table = spark.read.format("naksha").options(storage=location, collection="roads").load()
    assert {row.id for row in table.collect()} == {f"f{n}" for n in range(10)}


def test_a_cluster_starts_and_ends(spark_cluster: SparkCluster) -> None:
    assert spark_cluster.master.startswith("spark://127.0.0.1:")
    assert len(spark_cluster.workers) == 2
