"""Translation of SQLite errors to Naksha errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from naksha.model import errors


class WriteLockTimeout(errors.Unavailable):
    """Another process held the write lock for longer than the timeout, so do not retry at once."""


_MESSAGES: Final[dict[str, tuple[type[errors.NakshaError], str]]] = {
    "SQLITE_BUSY": (WriteLockTimeout, "Another process is writing to the file; retry later"),
    "SQLITE_LOCKED": (errors.Retryable, "Another connection is changing the file; repeat the call"),
    "SQLITE_FULL": (errors.Unavailable, "The disk is full; nothing was written"),
    "SQLITE_READONLY": (errors.NotSupported, "The file or its disk is read-only"),
    "SQLITE_CANTOPEN": (errors.Unavailable, "The file cannot be opened"),
    "SQLITE_IOERR": (errors.Unavailable, "The disk failed"),
    "SQLITE_INTERRUPT": (errors.Unavailable, "The statement was interrupted"),
    "SQLITE_NOTADB": (errors.NotSupported, "The file is not an SQLite database"),
    "SQLITE_CORRUPT": (errors.StorageCorrupt, "The file is damaged"),
    "SQLITE_TOOBIG": (errors.LimitExceeded, "A value or statement is larger than SQLite allows"),
    "SQLITE_NOMEM": (errors.LimitExceeded, "SQLite ran out of memory"),
}
_TOO_MUCH: Final = ("Expression tree is too large", "parser stack overflow", "too many ")
"""Start of the error messages for statements that exceed a limit of SQLite; they have no own
error name."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise a Naksha error in place of an SQLite error."""
    try:
        yield
    except sqlite3.Error as error:
        raise of(error) from error
    except OverflowError as error:
        raise errors.InvalidArgument(
            "A number of the request is too large for SQLite, which stores 64-bit integers: "
            f"{error}"
        ) from error
    except UnicodeEncodeError as error:
        raise errors.InvalidArgument(
            f"A text of the request cannot be encoded as UTF-8: {error.reason}; remove unpaired "
            "surrogates"
        ) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection held a lock."""
    name: str = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_BUSY" or name.startswith("SQLITE_BUSY_")


def of(error: sqlite3.Error) -> errors.NakshaError:
    """Return the Naksha error for an SQLite error."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for known, (kind, message) in _MESSAGES.items():
        if name == known or name.startswith(known + "_"):
            return kind(f"{message} ({error})")
    if str(error).startswith(_TOO_MUCH):
        return errors.LimitExceeded(f"The query is too complex for SQLite; simplify it ({error})")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return errors.Unavailable("The storage is closed; open it again")
    return errors.StorageCorrupt(f"Unexpected SQLite error {name or type(error).__name__}: {error}")
