"""Notice commits to the file by any process, without reading it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Generic, TypeVar

from naksha.sqlite.sql import queries

T = TypeVar("T")
FileVersion = tuple[int, int]
"""A connection, and its counter: that of another connection may have the same value later."""


class FileWatch(Generic[T]):
    """A value that was read from the file, and is valid until the next commit to it.

    Looking at the file takes microseconds and needs no thread: SQLite compares a counter in shared
    memory. It fails while another process has the file for itself; then the value counts as old.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Create a watch; `connect` opens a connection that does not wait for locks."""
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._kept: tuple[FileVersion, T] | None = None

    def version(self) -> FileVersion | None:
        """Return numbers that change with every commit, None if they cannot be read now."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                self._opened += 1
            ((number,),) = self._connection.execute(queries()["data_version"]).fetchall()
        except sqlite3.Error:
            self.close()
            return None
        return self._opened, int(number)

    def get(self, version: FileVersion | None) -> T | None:
        """Return the value that was kept, if it was read at this version of the file or later."""
        kept = self._kept
        return None if kept is None or kept[0] != version else kept[1]

    def keep(self, version: FileVersion | None, value: T) -> None:
        """Keep a value that was read after the version was."""
        self._kept = None if version is None else (version, value)

    def close(self) -> None:
        """Close the connection; the next look opens another one."""
        self._kept = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
