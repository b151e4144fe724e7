"""Naksha on Spark."""
