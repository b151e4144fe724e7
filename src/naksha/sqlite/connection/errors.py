"""SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from naksha.model import errors


class Locked(errors.Unavailable):
    """Another process was writing for longer than anybody waits: repeating at once cannot help."""


_MESSAGES: Final[dict[str, tuple[type[errors.NakshaError], str]]] = {
    "SQLITE_BUSY": (Locked, "Another process is writing to the file; try again later"),
    "SQLITE_LOCKED": (errors.Retryable, "The file is being changed; repeat the call"),
    "SQLITE_FULL": (errors.Unavailable, "The disk is full; nothing was written"),
    "SQLITE_READONLY": (errors.NotSupported, "The file, or the disk it is on, is read-only"),
    "SQLITE_CANTOPEN": (errors.Unavailable, "The file cannot be opened"),
    "SQLITE_IOERR": (errors.Unavailable, "The disk failed"),
    "SQLITE_INTERRUPT": (errors.Unavailable, "The call was interrupted"),
    "SQLITE_NOTADB": (errors.NotSupported, "The file is not an SQLite database"),
    "SQLITE_CORRUPT": (errors.StorageCorrupt, "The file is damaged"),
    "SQLITE_TOOBIG": (errors.LimitExceeded, "Too large for SQLite"),
    "SQLITE_NOMEM": (errors.LimitExceeded, "Out of memory"),
}
_TOO_MUCH: Final = ("Expression tree is too large", "parser stack overflow", "too many ")
"""How messages begin about statements that ask for more than SQLite takes; they have no name of
their own."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise our error in place of SQLite's."""
    try:
        yield
    except sqlite3.Error as error:
        raise of(error) from error
    except OverflowError as error:
        raise errors.InvalidArgument(f"A number is too large: {error}") from error
    except UnicodeEncodeError as error:
        raise errors.InvalidArgument(f"A text holds what no text may: {error.reason}") from error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process was in the way."""
    name: str = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_BUSY" or name.startswith("SQLITE_BUSY_")


def of(error: sqlite3.Error) -> errors.NakshaError:
    """Our error for one of SQLite's."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for known, (kind, message) in _MESSAGES.items():
        if name == known or name.startswith(known + "_"):
            return kind(f"{message} ({error})")
    if str(error).startswith(_TOO_MUCH):
        return errors.LimitExceeded(f"Too much for one statement of SQLite ({error})")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return errors.Unavailable("The storage is closed")
    return errors.StorageCorrupt(f"{name or type(error).__name__}: {error}")
