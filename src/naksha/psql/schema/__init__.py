"""The schema in PostgreSQL: installation, migrations, and changes while it is in use.

The SQL itself is in `naksha/psql/sql`.
"""
