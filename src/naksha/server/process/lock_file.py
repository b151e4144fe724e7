"""What a server keeps in files is for one server: it holds a lock beside them as long as it lives.

The kernel frees the lock with the process, however that ends, so that nothing is left to clean up.
The lock is on a file of its own: closing any handle of a database's file would free SQLite's locks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from naksha.model.errors import InvalidArgument, Unavailable
from naksha.server.process.settings import Settings
from naksha.spi.locations import CATALOGS, FILE, STORAGES, path_of

_SUFFIX: Final = ".lock"


@contextmanager
def files_locked(settings: Settings) -> Iterator[None]:
    """Keep other servers from the files of this one, for the block.

    Raises:
        Unavailable: Another server has them.
        InvalidArgument: Nothing can be written beside them.
    """
    with ExitStack() as held:
        for path in lock_files(settings):
            held.enter_context(_locked(path))
        yield


def lock_files(settings: Settings) -> list[Path]:
    """The files to lock: one for the catalog, and one for the storages of all realms."""
    catalog, storage = settings.catalog_location, settings.storage_location
    kept = []
    if CATALOGS.scheme_of(catalog) == FILE:
        kept.append(path_of(catalog).absolute())
    if STORAGES.scheme_of(storage) == FILE:
        kept.append(settings.data_directory / path_of(storage))
    # What comes before the name of a realm is the same for all of them.
    return [Path(str(path).partition("{")[0] + _SUFFIX) for path in kept]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        # Not inherited by other programs; the user's own, as the files beside it.
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidArgument(
            f"The file {str(path)!r}, which keeps other servers away, cannot be made: "
            f"{error.strerror}",
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
    who = f"Another server (process {holder})" if holder.isdigit() else "Another server"
    return Unavailable(
        f"{who} serves what is kept in {str(path.parent)!r}, and files are for one server. Stop "
        "it, take another directory with --data, or keep everything in PostgreSQL "
        "(--storage postgresql://…), which any number of servers can share",
        field="data",
    )
