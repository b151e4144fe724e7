"""Tests of `naksha.spark.source`."""
