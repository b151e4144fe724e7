"""Files of staged features, in a directory next to the storage file.

Each staging attempt has its own file, so that many processes stage without waiting for each other
or for writers of the storage. File names begin with a hash of the job id, so that all files of a
job can be found. A file is kept while a process writes it (and holds a lock on it), and after that
until its lease, counted from the file's modification time, has expired.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from naksha.model.errors import Unavailable
from naksha.model.limits import STAGING_LEASE_SECONDS
from naksha.spi.staging import StagedPart, not_staged

_DIRECTORY: Final = "-staging"
_SUFFIX: Final = ".stage"
_ATTEMPTS_MAX: Final = 10
"""Attempts to create a file: the directory may be removed in between, with its last file."""


class StagingFiles:
    """All staging files of one storage; times are the storage's, in ms."""

    def __init__(self, storage: Path) -> None:
        # Resolve links, so that all processes find the same directory.
        real = storage.resolve()
        self._directory = real.with_name(real.name + _DIRECTORY)

    def new(self, job: str) -> tuple[Path, IO[bytes]]:
        """Create a file for a job; return its path and a handle that locks it until closed."""
        path = self._directory / f"{_key(job)}-{secrets.token_hex(8)}{_SUFFIX}"
        for _ in range(_ATTEMPTS_MAX):
            self._directory.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                file = path.open("xb")
                fcntl.flock(file, fcntl.LOCK_EX)
                return path, file
        raise Unavailable(
            f"No staging file could be created in {self._directory}, because it is deleted again "
            "and again; retry later"
        )

    def path_of(self, part: StagedPart, now_ms: int) -> Path:
        """Return the file of a part and renew its lease."""
        path = self._directory / part.table
        is_ours = path.name == part.table and part.table.startswith(f"{_key(part.job)}-")
        if not is_ours or not _renew(path, now_ms):
            raise not_staged(part)
        return path

    def renew(self, job: str, now_ms: int) -> None:
        """Renew the lease of all files of a job."""
        for path in self._files(f"{_key(job)}-"):
            _renew(path, now_ms)

    def drop(self, job: str) -> None:
        """Remove all files of a job; attempts that still write to them fail later."""
        for path in self._files(f"{_key(job)}-"):
            path.unlink(missing_ok=True)
        self._tidy()

    def sweep(self, now_ms: int) -> None:
        """Remove files that no process is writing and whose lease has expired."""
        oldest_s = now_ms / 1000 - STAGING_LEASE_SECONDS
        for path in self._files(""):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest_s:
                    _remove_unused(path, oldest_s)
        self._tidy()

    def _files(self, start: str) -> Iterator[Path]:
        with suppress(FileNotFoundError), os.scandir(self._directory) as found:
            for each in found:
                if each.name.startswith(start) and each.name.endswith(_SUFFIX):
                    yield Path(each.path)

    def _tidy(self) -> None:
        with suppress(OSError):  # Usually the directory is not empty or does not exist.
            self._directory.rmdir()


def _key(job: str) -> str:
    """Return the prefix of the names of a job's files, which is safe for any job id."""
    return sha256(job.encode()).hexdigest()[:32]


def _renew(path: Path, now_ms: int) -> bool:
    try:
        os.utime(path, (now_ms / 1000, now_ms / 1000))
    except FileNotFoundError:
        return False
    return True


def _remove_unused(path: Path, oldest_s: float) -> None:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if os.fstat(file.fileno()).st_mtime < oldest_s:  # Not renewed in the meantime.
            path.unlink(missing_ok=True)
