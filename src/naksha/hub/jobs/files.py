"""Files that jobs may read and write: those below the directory of their realm."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

from naksha.model import limits
from naksha.model.errors import Forbidden, InvalidArgument, LimitExceeded, Unavailable

_EXPANDED: Final = frozenset("{}[]\\")
"""Characters that tools expand to several names, in different ways, so names must not have them.
The wildcards `*` and `?` are resolved and checked."""

_WILD: Final = frozenset("*?")


class JobFiles:
    """Maps the file names of clients to paths."""

    def __init__(self, directory: Path | None) -> None:
        """Create the mapping; without a directory, jobs may access no files."""
        self._directory = directory

    def paths_of(self, realm_id: str, value: Any, field: str) -> Any:
        """Return the path of a file name, or the paths of several.

        Raises:
            InvalidArgument: It is not a valid name.
            Forbidden: It is not below the directory of the realm: for example it is that directory
                itself, or a link leads elsewhere.
            LimitExceeded: It matches too many files.
        """
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.paths_of(realm_id, one, f"{field}[{at}]") for at, one in enumerate(value)]
        return str(self._path(realm_id, value, field))

    def _path(self, realm_id: str, name: object, field: str) -> Path:
        if self._directory is None:
            raise Forbidden(
                "File access of jobs is disabled; the hub's operator can enable it with "
                "--job-files",
                field=field,
            )
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InvalidArgument(
                f"{field} must be a file name: a non-empty string of printable characters",
                field=field,
            )
        if _EXPANDED & set(name):
            raise InvalidArgument(
                f"{name!r:.80} is not a valid file name: it must not contain {{ }} [ ] or a "
                "backslash",
                field=field,
            )
        base = self._directory / realm_id
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"The file directory of the realm cannot be created: {error.strerror}", field=field
            ) from error
        try:
            # Refuse `..` even where it would be harmless.
            if ".." in name or name.startswith("/"):
                raise _OutsideDirectory
            _FileCheck(base).at(base, name)
        except _OutsideDirectory as error:
            raise Forbidden(
                f"{name!r:.80} is not below the directory of the realm; use a relative path like "
                "exports/roads, without links that lead elsewhere",
                field=field,
            ) from error
        except _TooManyFiles as error:
            raise LimitExceeded(
                f"{name!r:.80} matches more than {limits.JOB_FILES_MAX} files; name fewer files",
                field=field,
            ) from error
        except OSError as error:
            raise Unavailable(
                f"{name!r:.80} cannot be read: {error.strerror}", field=field
            ) from error
        return base / name


class _OutsideDirectory(Exception):
    """A name leads out of the directory."""


class _TooManyFiles(Exception):
    """A name matches too many files."""


class _FileCheck:
    """Check of all files that a job would find by a name, following links, each directory once."""

    def __init__(self, base: Path) -> None:
        self._inside = Path(os.path.realpath(base))
        self._left = limits.JOB_FILES_MAX

    def at(self, base: Path, name: str) -> None:
        """Check the name literally and as a pattern, then the contents of the directories found."""
        if self._real(base / name) == self._inside:
            # A job would replace all files of the realm, and would put the directory for rejected
            # records beside this directory instead of into it.
            raise _OutsideDirectory
        found = {self._inside}
        for part in PurePath(name).parts:
            found = self._fitting(found, part)
        self._below(found)

    def _fitting(self, folders: set[Path], part: str) -> set[Path]:
        if part == "**":
            return self._below(folders)
        if not _WILD & set(part):
            return {self._real(folder / part) for folder in folders}
        named = ((folder, name) for folder in folders for name in self._names_in(folder))
        return {self._real(folder / name) for folder, name in named if fnmatchcase(name, part)}

    def _below(self, folders: Iterable[Path]) -> set[Path]:
        """Return the folders and everything below them."""
        known: set[Path] = set()
        waiting = list(folders)
        while waiting:
            real = self._real(waiting.pop())
            if real not in known:
                known.add(real)
                waiting += [real / name for name in self._names_in(real)]
        return known

    def _real(self, path: Path) -> Path:
        found = Path(os.path.realpath(path))
        if not found.is_relative_to(self._inside):
            raise _OutsideDirectory
        return found

    def _names_in(self, folder: Path) -> list[str]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, self._left + 1)]
        self._left -= len(names)
        if self._left < 0:
            raise _TooManyFiles
        return names
