"""Background work on SQLite: maintenance rounds, partitioning, pins and checks.

Code that runs without a caller belongs here.
"""
