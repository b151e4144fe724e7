"""The files of staged features, in a directory beside the storage's own file.

Each attempt to stage has a file of its own, so that many processes stage without waiting for each
other or for who writes to the storage. Its name begins with the job's, so that whatever a job has
left can be found. A file lives as long as somebody is writing it (it is locked then), and a lease
longer, counted from the time that it bears.
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

DIRECTORY: Final = "-staging"
SUFFIX: Final = ".stage"
_ATTEMPTS_MAX: Final = 10
"""How often a file is made again: the directory may vanish meanwhile, with the last one in it."""


class StageFiles:
    """All files that features are staged in, for one storage. Times are the storage's, in ms."""

    def __init__(self, storage: Path) -> None:
        # By whatever name somebody opened it: all of them must find the same.
        real = storage.resolve()
        self._directory = real.with_name(real.name + DIRECTORY)

    def new(self, job: str) -> tuple[Path, IO[bytes]]:
        """A new file, and it as long as it is locked: until that is closed."""
        path = self._directory / f"{_key(job)}-{secrets.token_hex(8)}{SUFFIX}"
        for _ in range(_ATTEMPTS_MAX):
            self._directory.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                file = path.open("xb")
                fcntl.flock(file, fcntl.LOCK_EX)
                return path, file
        raise Unavailable(f"No file can be made in {self._directory}")

    def path_of(self, part: StagedPart, now_ms: int) -> Path:
        """The file of a part, whose lease begins anew."""
        path = self._directory / part.table
        is_ours = path.name == part.table and part.table.startswith(f"{_key(part.job)}-")
        if not is_ours or not _renew(path, now_ms):
            raise not_staged(part)
        return path

    def renew(self, job: str, now_ms: int) -> None:
        """The lease of all that a job has staged begins anew."""
        for path in self._files(f"{_key(job)}-"):
            _renew(path, now_ms)

    def drop(self, job: str) -> None:
        """Remove all that a job has staged; whoever is still at it will find out."""
        for path in self._files(f"{_key(job)}-"):
            path.unlink(missing_ok=True)
        self._tidy()

    def sweep(self, now_ms: int) -> None:
        """Remove what nobody is writing and whose lease is over."""
        oldest_s = now_ms / 1000 - STAGING_LEASE_SECONDS
        for path in self._files(""):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest_s:
                    _remove_unused(path, oldest_s)
        self._tidy()

    def _files(self, start: str) -> Iterator[Path]:
        with suppress(FileNotFoundError), os.scandir(self._directory) as found:
            for each in found:
                if each.name.startswith(start) and each.name.endswith(SUFFIX):
                    yield Path(each.path)

    def _tidy(self) -> None:
        with suppress(OSError):  # Mostly there is something in it, or it is not there.
            self._directory.rmdir()


def _key(job: str) -> str:
    """What the names of a job's files begin with, whatever the job is called."""
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
        if os.fstat(file.fileno()).st_mtime < oldest_s:  # Nobody has renewed it meanwhile.
            path.unlink(missing_ok=True)
