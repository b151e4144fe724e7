"""Backup of a SQLite file with the online backup API, and its restore to a new file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from naksha.model.errors import Conflict, NotFound, StorageCorrupt, Unavailable
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.sql import queries

PAGES: Final = 8_192
"""Pages copied at once; the copy can be interrupted in between."""


def copy_file(source: Path, target: Path) -> None:
    """Copy a file that others may write to, in one consistent state, to a new file.

    A read transaction fixes the state: without it, the copy would begin again with every write of
    another process. Writers do not wait for it.
    """
    if not source.exists():
        raise NotFound(f"The file {str(source)!r} does not exist; correct the path")
    _create_private(target)
    uri = f"{source.absolute().as_uri()}?mode=rw"
    with (
        translated(),
        contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as reading,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as writing,
    ):
        reading.execute(queries()["backup_begin"])
        reading.execute(queries()["table_count"]).fetchone()
        reading.backup(writing, pages=PAGES)
        reading.execute(queries()["backup_end"])
        # A single file, without a WAL beside it.
        writing.execute(queries()["journal_single"])
        (problem,) = writing.execute(queries()["integrity"]).fetchone()
        if problem != "ok":
            raise StorageCorrupt(f"The file {str(source)!r} is damaged: {problem}")


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def check_new(target: Path) -> None:
    """Raise Conflict if there is a file, or a remainder of one, at the path."""
    for path in (target, *(target.with_name(f"{target.name}{end}") for end in ("-wal", "-shm"))):
        if path.exists():
            raise Conflict(
                f"The file {str(path)!r} exists; restore to a location without data",
                field="location",
            )


def restore_file(source: Path, target: Path) -> None:
    """Copy a backup to a new file; it appears when it is complete."""
    check_new(target)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create_private(part)
        shutil.copyfile(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.link(part, target)  # unlike a rename, it never replaces a file
    except FileExistsError:
        check_new(target)
        raise
    except OSError as error:
        raise Unavailable(
            f"The file {str(target)!r} cannot be written: {error.strerror}", field="location"
        ) from error
    finally:
        part.unlink(missing_ok=True)
