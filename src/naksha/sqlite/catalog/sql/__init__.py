"""The SQL of the SQLite catalog; see `naksha.spi.support.sql_files`."""

from __future__ import annotations

from functools import cache
from typing import Final

from naksha.spi.support.sql_files import SqlFiles

FILES: Final = SqlFiles(__package__)


@cache
def sql(name: str, **slots: str) -> str:
    """Return the named query with its slots filled."""
    return FILES.fill(name, slots)
