"""Tests of Naksha on Spark."""
