"""Locations of storages and catalogs: the scheme names an entry point, which is the backend.

    file:town.naksha    postgresql://user@host/database    memory:

No backend is imported by name; any distribution may add one.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from naksha.model.errors import InvalidArgument

FILE: Final = "file"
"""The scheme that is followed by a path."""
MEMORY: Final = "memory"
"""The scheme that is followed by a name, or nothing."""
ALIASES: Final = {
    "postgres": "psql",
    "postgresql": "psql",
    "redis": "redis",
    "redis+unix": "redis",
    "rediss": "redis",
}
"""The schemes of an entry point that is not, or not only, found by its name."""


class Backends(NamedTuple):
    """A group of entry points."""

    group: str
    noun: str
    """What they are, for messages and as the field that errors name."""

    def find(self, location: str) -> Any:
        """The backend class for the scheme of a location.

        Raises:
            InvalidArgument: The location is none, or no backend knows its scheme.
        """
        scheme = self.scheme_of(location)
        found = {entry.name: entry for entry in entry_points(group=self.group)}
        entry = found.get(ALIASES.get(scheme, scheme))
        if entry is None:
            known = {scheme for scheme, name in ALIASES.items() if name in found}
            known |= set(found) - set(ALIASES.values())
            raise InvalidArgument(
                f"No {self.noun} is called {scheme!r}; known are: {', '.join(sorted(known))}",
                field=self.noun,
            )
        return entry.load()

    def scheme_of(self, location: str) -> str:
        """The scheme of a location, checked as far as every location has the same form."""
        try:
            parts = urlsplit(location)
            _ = parts.port
        except ValueError as error:
            raise self.unreadable(location) from error
        if not parts.scheme or (parts.scheme not in (FILE, MEMORY) and "://" not in location):
            raise InvalidArgument(
                f"{redacted(location)!r} has no scheme, such as file: or postgresql://",
                field=self.noun,
            )
        return parts.scheme

    def unreadable(self, location: str) -> InvalidArgument:
        """Says nothing of what the parser said, which may be a part of the password."""
        return InvalidArgument(
            f"{redacted(location)!r} cannot be read as a location; "
            "signs like / ? # @ in a password are written as %2F %3F %23 %40",
            field=self.noun,
        )


STORAGES: Final = Backends("naksha.storages", "storage")
CATALOGS: Final = Backends("naksha.catalogs", "catalog")


def redacted(location: str) -> str:
    """The location as it may be shown: without password and options."""
    scheme, separator, rest = location.rpartition("://")
    shown, question, options = rest.partition("?")
    if question and "@" in options:
        return f"{scheme}{separator}…"  # the password may begin anywhere
    user, at, host = shown.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"


def path_of(location: str | Path, field: str = STORAGES.noun) -> Path:
    """The path of a location: `file:town.naksha`, `file:///data/town.naksha`, or a bare path."""
    if isinstance(location, Path) or not location.startswith(f"{FILE}:"):
        return Path(location)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidArgument(
            f"{location!r} is no path; it is written as file:name, or file:///folder/name",
            field=field,
        )
    if not parts.path:
        raise InvalidArgument("The location has no path", field=field)
    return Path(unquote(parts.path))
