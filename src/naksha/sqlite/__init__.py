"""The embedded storage and the catalog on SQLite: one file each."""

from naksha.sqlite.catalog.catalog import SqliteCatalog
from naksha.sqlite.storage import SqliteStorage

__all__ = ["SqliteCatalog", "SqliteStorage"]
