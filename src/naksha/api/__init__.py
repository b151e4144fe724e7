"""Naksha for scripts and notebooks: plain calls, plain dictionaries, no `await`."""

from naksha.api.database import Collection, Database, Transaction, connect

__all__ = ["Collection", "Database", "Transaction", "connect"]
