"""Catalog backend on PostgreSQL.

Its tables are in `sql/`; it does not use the feature storage.
"""
