"""How Spark finds the data source `naksha` by itself: it looks into packages of such names."""

from naksha.spark.source.source import NakshaSource as DefaultSource

__all__ = ["DefaultSource"]
