"""Lock files: data in files is served by one server only, which holds a lock beside them.

The kernel releases the lock when the process ends, however it ends, so no cleanup is needed. The
lock is on a file of its own: closing any handle of a database file would release SQLite's locks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from naksha.model.errors import InvalidArgument, Unavailable
from naksha.server.process.settings import ServerSettings
from naksha.spi.locations import CATALOGS, FILE, STORAGES, path_of

_SUFFIX: Final = ".lock"


@contextmanager
def files_locked(settings: ServerSettings) -> Iterator[None]:
    """Hold the locks on the files of this server for the block.

    Raises:
        Unavailable: Another server holds a lock.
        InvalidArgument: A lock file cannot be created.
    """
    with ExitStack() as held:
        for path in lock_files(settings):
            held.enter_context(_locked(path))
        yield


def lock_files(settings: ServerSettings) -> list[Path]:
    """Return the files to lock: one for the catalog, one for the storages of all realms."""
    catalog, storage = settings.catalog_location, settings.storage_location
    kept = []
    if CATALOGS.scheme_of(catalog) == FILE:
        kept.append(path_of(catalog).absolute())
    if STORAGES.scheme_of(storage) == FILE:
        kept.append(settings.data_directory / path_of(storage))
        # All realms share the path before the placeholder.
    return [Path(str(path).partition("{")[0] + _SUFFIX) for path in kept]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        # Not inherited by child processes; private to the user, like the files beside it.
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidArgument(
            f"Lock file {str(path)!r} cannot be created: {error.strerror}",
            field="data",
        ) from error
    with os.fdopen(number, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(path, file) from None
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _taken(path: Path, file: IO[str]) -> Unavailable:
    holder = file.read(32).strip()
    owner = f"Another server (process {holder})" if holder.isdigit() else "Another server"
    return Unavailable(
        f"{owner} is using the files in {str(path.parent)!r}, and files can be served by one "
        "server only. Stop it, choose another directory with --data, or keep everything in "
        "PostgreSQL (--storage postgresql://…), which any number of servers can share",
        field="data",
    )
