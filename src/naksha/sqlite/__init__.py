"""The embedded storage: one SQLite file."""

from naksha.sqlite.storage import SqliteStorage

__all__ = ["SqliteStorage"]
