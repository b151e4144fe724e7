"""The files that jobs may read and write: of each realm, those below a directory of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from naksha.model.errors import Forbidden, InvalidArgument, Unavailable

_EXPANDED: Final = frozenset("{}[]\\")
"""Signs that others expand to several names, which would have to be looked at too. `*` and `?` stay
in their directory."""


class JobFiles:
    """Names of files as clients know them, and where they are."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory there are none."""
        self._directory = directory

    def placed(self, realm_id: str, value: Any, field: str) -> Any:
        """The path of what a client names, or the paths of several.

        Raises:
            InvalidArgument: It is no name.
            Forbidden: It is not below the directory of the realm.
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
        path = base / name
        # Also what a link leads to; and `..` not even where it would do no harm.
        is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base))
        if not is_inside or ".." in name or name.startswith("/"):
            raise Forbidden(
                f"{name!r:.80} is not below the directory of the realm; files are named from "
                "there, as in exports/roads",
                field=field,
            )
        return path
