"""The way from files where every collection had tables of its own to shared tables."""

from __future__ import annotations

import sqlite3


def move_collections(connection: sqlite3.Connection) -> None:
    """Move all collections and overlays to the shared tables."""
