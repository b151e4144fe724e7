"""Connections that tolerate texts that are not UTF-8, without a Python call for valid ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
_UNDECODABLE: Final = "Could not decode to UTF-8"
"""Start of the error message of the `sqlite3` module; the error has no code."""


def _decode_with_replacement(text: bytes) -> str:
    """Decode a text, replacing bytes that are not UTF-8 with U+FFFD."""
    return text.decode("utf-8", "replace")


class TolerantConnection(sqlite3.Connection):
    """Connection that decodes strictly until it reads a text that is not UTF-8."""

    def cursor(self, *_: object) -> TolerantCursor:  # type: ignore[override]
        return TolerantCursor(self)

    def execute(self, text: str, values: Any = (), /) -> TolerantCursor:
        return TolerantCursor(self).execute(text, values)


class TolerantCursor(sqlite3.Cursor):
    """Cursor that reads a row again when one of its texts is not UTF-8.

    A row that cannot be decoded stays the current one, so no row is lost or returned twice. From
    then on the connection decodes with replacement.
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        while True:
            try:
                yield from iter(super().__next__, None)
            except sqlite3.OperationalError as error:
                self._tolerate(error)
            else:
                return

    def fetchone(self) -> Any:
        return self._repeated(super().fetchone)

    def fetchall(self) -> list[Any]:
        rows: list[Any] = []
        each = super().__next__
        # Rows that were read before an error stay in the list.
        self._repeated(lambda: rows.extend(iter(each, None)))
        return rows

    def fetchmany(self, size: int | None = None) -> list[Any]:
        return list(islice(self, self.arraysize if size is None else size))

    def _repeated(self, fetch: Callable[[], T]) -> T:
        try:
            return fetch()
        except sqlite3.OperationalError as error:
            self._tolerate(error)
        return fetch()

    def _tolerate(self, error: sqlite3.OperationalError) -> None:
        """Switch the connection to decoding with replacement; raise any other error."""
        tolerant = self.connection.text_factory is _decode_with_replacement
        if tolerant or not str(error).startswith(_UNDECODABLE):
            raise error
        self.connection.text_factory = _decode_with_replacement
