"""The schema of a file: creation, upgrade, and completion of edits made in a plain SQLite shell.

The SQL itself is in `naksha/sqlite/sql`.
"""
