"""Spark integration: the data source `naksha` and the jobs of the data pipeline.

    spark = naksha.spark.session()
    spark.read.format("naksha").option("storage", "file:town.naksha").option("collection", "roads")

Executors only need the installed package.
"""

from naksha.spark.runtime.sessions import session, set_up
from naksha.spark.runtime.workers import spare_modules
from naksha.spark.source.save import write
from naksha.spark.source.source import NakshaSource
from naksha.spark.source.tables import changes, features

__all__ = ["NakshaSource", "changes", "features", "session", "set_up", "write"]

spare_modules()
