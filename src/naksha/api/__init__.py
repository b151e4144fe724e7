"""Synchronous Python API for scripts and notebooks, with plain dictionaries as features."""

from naksha.api.database import Collection, Database, DatabaseTransaction, connect

__all__ = ["Collection", "Database", "DatabaseTransaction", "connect"]
