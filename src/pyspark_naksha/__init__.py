"""Discovery of the data source `naksha`: Spark imports packages named `pyspark_*`."""

from naksha.spark.source.source import NakshaSource as DefaultSource

__all__ = ["DefaultSource"]
