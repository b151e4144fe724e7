"""Locations of storages and catalogs; the scheme selects the entry point of the backend.

    file:town.naksha    postgresql://user@host/database    memory:

No backend is imported by name; any distribution may add one.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from naksha.model.errors import InvalidArgument
from naksha.spi.extras import missing_extra

FILE: Final = "file"
"""Scheme of a location with a path."""
MEMORY: Final = "memory"
"""Scheme of a location in memory, followed by an optional name."""
ALIASES: Final = {
    "postgres": "psql",
    "postgresql": "psql",
    "redis": "redis",
    "redis+unix": "redis",
    "rediss": "redis",
}
"""Schemes whose entry point has another name, or also other schemes."""


class BackendGroup(NamedTuple):
    """Group of entry points."""

    group: str
    noun: str
    """Noun for messages, and the field of errors."""

    def find(self, location: str) -> Any:
        """Return the backend class for the scheme of a location.

        Raises:
            InvalidArgument: The location is invalid, or no backend supports its scheme.
            NotSupported: The packages of the backend are not installed.
        """
        scheme = self.scheme_of(location)
        found = {entry.name: entry for entry in entry_points(group=self.group)}
        entry = found.get(ALIASES.get(scheme, scheme))
        if entry is None:
            known = {scheme for scheme, name in ALIASES.items() if name in found}
            known |= set(found) - set(ALIASES.values())
            raise InvalidArgument(
                f"Unknown {self.noun} scheme {scheme!r}; "
                f"the installed schemes are {', '.join(sorted(known))}",
                field=self.noun,
            )
        try:
            return entry.load()
        except ImportError as error:
            raise missing_extra(error) or error from error

    def scheme_of(self, location: str) -> str:
        """Return the scheme of a location after the checks that apply to all locations."""
        try:
            parts = urlsplit(location)
            _ = parts.port
        except ValueError as error:
            raise self.unreadable(location) from error
        if not parts.scheme or (parts.scheme not in (FILE, MEMORY) and "://" not in location):
            raise InvalidArgument(
                f"The location {redacted(location)!r} has no scheme; "
                "begin it with a scheme such as file: or postgresql://",
                field=self.noun,
            )
        return parts.scheme

    def unreadable(self, location: str) -> InvalidArgument:
        """Build the error for an invalid location.

        It omits the parser's message, which may contain a part of the password.
        """
        return InvalidArgument(
            f"{redacted(location)!r} is not a valid location; "
            "characters like / ? # @ in a password must be encoded as %2F %3F %23 %40",
            field=self.noun,
        )


STORAGES: Final = BackendGroup("naksha.storages", "storage")
CATALOGS: Final = BackendGroup("naksha.catalogs", "catalog")


def redacted(location: str) -> str:
    """Return the location for display, without password and options."""
    scheme, separator, rest = location.rpartition("://")
    shown, question, options = rest.partition("?")
    if question and "@" in options:
        return f"{scheme}{separator}…"  # the password may begin anywhere
    user, at, host = shown.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"


def path_of(location: str | Path, field: str = STORAGES.noun) -> Path:
    """Return the path of a location: `file:town.naksha`, `file:///data/town.naksha`, or a path."""
    if isinstance(location, Path) or not location.startswith(f"{FILE}:"):
        return Path(location)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise InvalidArgument(
            f"{location!r} is not a file location; expected file:name or file:///folder/name",
            field=field,
        )
    if not parts.path:
        raise InvalidArgument(
            f"The file location {location!r} has no path; "
            "expected file:name or file:///folder/name",
            field=field,
        )
    return Path(unquote(parts.path))
