"""The files that jobs may read and write: of each realm, those below a directory of its own."""

from __future__ import annotations

import glob
import os
from itertools import islice
from pathlib import Path
from typing import Any, Final

from naksha.model import limits
from naksha.model.errors import Forbidden, InvalidArgument, LimitExceeded, Unavailable

_EXPANDED: Final = frozenset("{}[]\\")
"""Signs that others expand to several names, not all in the same way. What fits `*` and `?` is
looked at."""


class JobFiles:
    """Names of files as clients know them, and where they are."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory there are none."""
        self._directory = directory

    def placed(self, realm_id: str, value: Any, field: str) -> Any:
        """The path of what a client names, or the paths of several.

        Raises:
            InvalidArgument: It is no name.
            Forbidden: It is not below the directory of the realm, or a link leads elsewhere.
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
        # `..` not even where it would do no harm.
        if ".." in name or name.startswith("/") or not _stays_inside(base, name, field):
            raise Forbidden(
                f"{name!r:.80} is not below the directory of the realm; files are named from "
                "there, as in exports/roads, and links lead nowhere else",
                field=field,
            )
        return base / name


def _stays_inside(base: Path, name: str, field: str) -> bool:
    """Whether all that a job would find by a name is below a directory: what links lead to, what
    fits a pattern, and what is in directories, links once more."""
    inside = Path(os.path.realpath(base))
    # As it is, and as a pattern. Path.glob is not what jobs use, and follows fewer links.
    fitting = glob.iglob(name, root_dir=base, recursive=True, include_hidden=True)  # noqa: PTH207
    waiting = [base / name, *(base / one for one in islice(fitting, limits.JOB_FILES_MAX + 1))]
    known: set[Path] = set()
    count = len(waiting)
    while waiting and count <= limits.JOB_FILES_MAX:
        real = Path(os.path.realpath(waiting.pop()))
        if not real.is_relative_to(inside):
            return False
        if real not in known and real.is_dir():
            known.add(real)
            with os.scandir(real) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_symlink() or entry.is_dir():
                        waiting.append(Path(entry.path))
    if count > limits.JOB_FILES_MAX:
        raise LimitExceeded(
            f"{name!r:.80} names more than {limits.JOB_FILES_MAX} files; name fewer at a time",
            field=field,
        )
    return True
