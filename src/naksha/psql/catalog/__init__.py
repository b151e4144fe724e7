"""The catalog backend on PostgreSQL.

Its tables are in `sql/`; nothing here knows the feature storage.
"""
