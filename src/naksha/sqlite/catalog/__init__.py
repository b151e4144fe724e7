"""The catalog backend on SQLite.

Its tables are defined in `sql/`. This package does not depend on the feature storage.
"""
