"""The catalog backend on SQLite.

Its tables are in `sql/`; nothing here knows the feature storage.
"""
