"""The schema in a file: creation, upgrade, and completion of edits made in a plain shell.

The SQL itself is in `naksha/sqlite/sql`.
"""
