"""Synchronous Python API for scripts and notebooks, with plain dictionaries as features.

It translates calls to `naksha.spi` and `naksha.versioning`; it has no rules of its own.
"""

from naksha.api.database import Collection, Database, DatabaseTransaction, connect

__all__ = ["Collection", "Database", "DatabaseTransaction", "connect"]
