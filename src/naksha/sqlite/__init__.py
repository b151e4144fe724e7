"""The embedded storage and a catalog: one SQLite file each."""

from naksha.sqlite.catalog.catalog import SqliteCatalog
from naksha.sqlite.storage import SqliteStorage

__all__ = ["SqliteCatalog", "SqliteStorage"]
