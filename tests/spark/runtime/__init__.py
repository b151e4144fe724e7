"""Tests of `naksha.spark.runtime`."""
