"""The schema in PostgreSQL: installation, migrations and online changes.

The SQL itself is in `naksha/psql/sql`.
"""
