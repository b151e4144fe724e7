"""The files that jobs may read and write: of each realm, those below a directory of its own."""

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
"""Signs that others expand to several names, not all in the same way. What fits `*` and `?` is
looked at."""

_WILD: Final = frozenset("*?")


class JobFiles:
    """Names of files as clients know them, and where they are."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory there are none."""
        self._directory = directory

    def placed(self, realm_id: str, value: Any, field: str) -> Any:
        """The path of what a client names, or the paths of several.

        Raises:
            InvalidArgument: It is no name.
            Forbidden: It is not below the directory of the realm, but that directory itself, for
                example, or a link leads elsewhere.
            LimitExceeded: There is too much to be looked at.
        """
        if value is None:
            return None
        if isinstance(value, list | tuple):
            return [self.placed(realm_id, one, f"{field}[{at}]") for at, one in enumerate(value)]
        return str(self._path(realm_id, value, field))

    def _path(self, realm_id: str, name: object, field: str) -> Path:
        if self._directory is None:
            raise Forbidden(
                "Jobs read and write no files here; whoever runs the hub can allow it "
                "(--job-files)",
                field=field,
            )
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InvalidArgument("The name of a file is a text", field=field)
        if _EXPANDED & set(name):
            raise InvalidArgument(
                "The name of a file has none of the signs { } [ ] and backslash", field=field
            )
        base = self._directory / realm_id
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"The directory of the realm's files cannot be made: {error.strerror}", field=field
            ) from error
        try:
            # `..` not even where it would do no harm.
            if ".." in name or name.startswith("/"):
                raise _Outside
            _Look(base).at(base, name)
        except _Outside as error:
            raise Forbidden(
                f"{name!r:.80} is not below the directory of the realm; files are named from "
                "there, as in exports/roads, and links lead nowhere else",
                field=field,
            ) from error
        except _TooMany as error:
            raise LimitExceeded(
                f"{name!r:.80} names more than {limits.JOB_FILES_MAX} files; name fewer at a time",
                field=field,
            ) from error
        except OSError as error:
            raise Unavailable(
                f"{name!r:.80} cannot be looked at: {error.strerror}", field=field
            ) from error
        return base / name


class _Outside(Exception):
    """Something leads out of the directory."""


class _TooMany(Exception):
    """There is more to be looked at than may be."""


class _Look:
    """Looks at all that a job would find by a name, links included: at each directory once."""

    def __init__(self, base: Path) -> None:
        self._inside = Path(os.path.realpath(base))
        self._left = limits.JOB_FILES_MAX

    def at(self, base: Path, name: str) -> None:
        """As it is, and as a pattern, step by step; then at what is in the directories found."""
        if self._real(base / name) == self._inside:
            # Results would replace all files of the realm, and rejected records of all of them
            # would lie beside the directory, not in it.
            raise _Outside
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
        """These, and all that is below them."""
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
            raise _Outside
        return found

    def _names_in(self, folder: Path) -> list[str]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, self._left + 1)]
        self._left -= len(names)
        if self._left < 0:
            raise _TooMany
        return names
