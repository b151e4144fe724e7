"""Lock files: data in files is served by one hub only, which holds a lock beside them.

The kernel releases the lock when the process ends, however it ends, so no cleanup is needed. The
lock is on a file of its own: closing any handle of a database file would release SQLite's locks.
The file names the process and, once it listens, the address of the hub.
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
_PARENTS_MAX: Final = 3
"""Directories above a file in which its lock may be: realms may have directories of their own."""
_FOR_SERVERS: Final = (
    "and files can be served by one server only. Stop it, choose another directory with --data, or "
    "keep everything in PostgreSQL (--realm-storage postgresql://…), which any number of servers "
    "can share"
)
FOR_CATALOGS: Final = "and files belong to one process. Stop it first"
FOR_VERBS: Final = "and files belong to one process. Use the hub with --hub {url}, or stop it first"


class FileLocks:
    """The locks that a process holds."""

    def __init__(self, files: list[IO[str]]) -> None:
        self._files = files

    def announce(self, url: str) -> None:
        """Write the address of the hub, for the messages of other processes."""
        for file in self._files:
            file.write(f"{url}\n")
            file.flush()


@contextmanager
def files_locked(settings: ServerSettings, remedy: str = _FOR_SERVERS) -> Iterator[FileLocks]:
    """Hold the locks on the files of this server for the block.

    Raises:
        Unavailable: Another process holds a lock; the message ends with the remedy.
        InvalidArgument: A lock file cannot be created.
    """
    with ExitStack() as held:
        yield FileLocks(
            [held.enter_context(_locked(path, remedy)) for path in lock_files(settings)]
        )


def check_not_served(location: str) -> None:
    """Raise Unavailable if the location is a file that a hub serves; the message names the hub."""
    if STORAGES.scheme_of(location) != FILE:
        return
    named = path_of(location).absolute()
    for path in {named, named.parent.resolve() / named.name, named.resolve()}:
        for parent in list(path.parents)[:_PARENTS_MAX]:
            for lock in parent.glob(f"*{_SUFFIX}"):
                if str(path).startswith(str(lock).removesuffix(_SUFFIX)):
                    _check_free(lock)


def _check_free(lock: Path) -> None:
    with lock.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(lock, file, FOR_VERBS) from None


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
def _locked(path: Path, remedy: str) -> Iterator[IO[str]]:
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
            raise _taken(path, file, remedy) from None
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file


def _taken(path: Path, file: IO[str], remedy: str) -> Unavailable:
    process, _, url = file.read(1024).strip().partition("\n")
    who = f"The hub at {url}" if url else "Another command or server"
    if process.isdigit():
        who = f"{who} (process {process})"
    return Unavailable(
        f"{who} is using the files in {str(path.parent)!r}, {remedy.format(url=url or 'URL')}",
        field="data",
    )
