"""Background work on SQLite: rounds, partitioning, pins and checks.

Whatever runs without a caller belongs here.
"""
