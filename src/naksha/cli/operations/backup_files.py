"""Files of a backup: a directory with one file per catalog and storage, and their manifest.

The manifest is written last, with the size and the SHA-256 of each file: a directory without it is
an incomplete backup, and a file that differs is a damaged one. Both are refused before anything is
restored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.spi.backups import StorageFacts
from naksha.spi.locations import ALIASES, BackendGroup

FORMAT: Final = "naksha-backup"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
_CHUNK_BYTES: Final = 1 << 20


class BackupFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A file of a backup: of the catalog, or of a storage."""

    file: str
    bytes: int
    sha256: str
    backend: str
    """Backend that wrote it; it is restored to the same one."""
    schema: str | None = None
    realm: str | None = None
    """Realm and name of the storage in the hub."""
    name: str | None = None
    location: str = ""
    """Location in the configuration of the hub, with its password."""
    facts: StorageFacts | None = None

    @property
    def place(self) -> dict[str, Any]:
        """Options of the location to restore to."""
        return {} if self.schema is None else {"schema": self.schema}

    @property
    def title(self) -> str:
        """Name for messages and progress."""
        if self.facts is None:
            return "the catalog"
        return f"storage {self.facts.id!r}"


class BackupManifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Contents of a backup."""

    format: str = FORMAT
    version: int = VERSION
    created_at: str
    catalog: BackupFile | None = None
    storages: list[BackupFile]
    missing: list[str] = []
    """Storages of the catalog that did not exist."""


def backend_of(group: BackendGroup, location: str) -> str:
    """Return the name of the backend of a location."""
    scheme = group.scheme_of(location)
    return ALIASES.get(scheme, scheme)


@contextmanager
def new_directory(directory: Path) -> Iterator[None]:
    """Create the directory of a backup, and remove it if the block fails.

    Only its owner can read it: a catalog has passwords.
    """
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InvalidArgument(
            f"The directory {str(directory)!r} exists; name a new one", field="directory"
        ) from None
    except OSError as error:
        raise InvalidArgument(
            f"The directory {str(directory)!r} cannot be created: {error.strerror}",
            field="directory",
        ) from error
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def remove_copy(path: Path) -> None:
    """Remove a file that is copied again."""
    path.unlink()


def described(path: Path, **members: Any) -> BackupFile:
    """Describe a complete file, after it has reached the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return BackupFile(file=path.name, bytes=path.stat().st_size, sha256=_sha256(path), **members)


def write_manifest(directory: Path, manifest: BackupManifest) -> None:
    """Write the manifest, which completes the backup."""
    part = directory / f"{MANIFEST}.part"
    part.touch(mode=0o600)
    with part.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(directory / MANIFEST)
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_backup(directory: Path) -> BackupManifest:
    """Return the manifest of a backup, after all its files were compared with it.

    Raises:
        InvalidArgument: It is not a backup, or is incomplete or damaged.
    """
    try:
        content = (directory / MANIFEST).read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"The directory {str(directory)!r} has no readable {MANIFEST}; it is not a backup, or "
            "the backup was interrupted",
            field="directory",
        ) from error
    try:
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except msgspec.DecodeError as error:
        raise _damaged(directory, f"{MANIFEST} is not valid: {error}") from error
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise InvalidArgument(
            f"The backup has the format {manifest.format!r:.40}, version {manifest.version}; this "
            f"release reads {FORMAT!r}, version {VERSION}",
            field="directory",
        )
    for one in (manifest.catalog, *manifest.storages):
        if one is not None:
            _check(directory, one)
    return manifest


def _check(directory: Path, one: BackupFile) -> None:
    path = directory / one.file
    if path.parent != directory or not path.is_file():
        raise _damaged(directory, f"the file {one.file!r} is missing")
    size = path.stat().st_size
    if size != one.bytes:
        raise _damaged(directory, f"{one.file!r} has {size:,} bytes instead of {one.bytes:,}")
    if _sha256(path) != one.sha256:
        raise _damaged(directory, f"the content of {one.file!r} has changed")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _damaged(directory: Path, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The backup in {str(directory)!r} is damaged: {why}; use another backup",
        field="directory",
    )
