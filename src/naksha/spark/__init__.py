"""Naksha on Spark: the data source `naksha`, and the jobs of the data pipeline.

    spark = naksha.spark.session()
    spark.read.format("naksha").option("storage", "file:town.naksha").option("collection", "roads")

Executors need nothing but the installed package.
"""

from naksha.spark.saving import write
from naksha.spark.sessions import session, set_up
from naksha.spark.source import NakshaSource
from naksha.spark.tables import changes, features
from naksha.spark.workers import spare_modules

__all__ = ["NakshaSource", "changes", "features", "session", "set_up", "write"]

spare_modules()
