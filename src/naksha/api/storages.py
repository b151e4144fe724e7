"""Storages by location: the scheme names an entry point of the group `naksha.storages`.

    async with open_storage("file:town.naksha") as storage:
        ...

A backend is a class with `open(location, storage_id, …)`; no backend is imported by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from typing import Any, Final
from urllib.parse import urlsplit

from naksha.model.errors import InvalidArgument, NakshaError, Unavailable
from naksha.spi.locations import FILE
from naksha.spi.storage import Storage

GROUP: Final = "naksha.storages"
ALIASES: Final = {"postgres": "psql", "postgresql": "psql"}
"""Schemes that are not the name of their entry point."""
OPEN_SECONDS_MAX: Final = 30.0
"""How long a storage may take to answer and to set itself up."""
REFUSALS: Final = ("28", "3D")
"""SQLSTATE classes of a server that answers but refuses: who you are, which database."""


@asynccontextmanager
async def open_storage(
    location: str, storage_id: str | None = None, **options: Any
) -> AsyncIterator[Storage]:
    """The storage at a location, set up when it is new, closed at the end of the block.

    `options` go to the backend as they are, for example `schema` of PostgreSQL.

    Raises:
        InvalidArgument: The location is none, or no backend knows its scheme.
        Unavailable: There is no server, or it refuses us.
    """
    backend = backend_of(location)
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            storage: Storage = await backend.open(location, storage_id, **options)
    except TimeoutError as error:
        raise Unavailable(
            f"The storage did not answer within {OPEN_SECONDS_MAX:.0f} seconds"
        ) from error
    except ValueError as error:
        raise _unreadable(location) from error
    except NakshaError as error:
        raise _refusal(error) or error from error.__cause__
    try:
        yield storage
    finally:
        await storage.close()


def backend_of(location: str) -> Any:
    """The backend class for the scheme of a location."""
    scheme = scheme_of(location)
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    entry = found.get(ALIASES.get(scheme, scheme))
    if entry is None:
        known = {scheme for scheme, name in ALIASES.items() if name in found}
        known |= set(found) - set(ALIASES.values())
        raise InvalidArgument(
            f"No storage is called {scheme!r}; known are: {', '.join(sorted(known))}",
            field="storage",
        )
    return entry.load()


def scheme_of(location: str) -> str:
    """The scheme of a location, checked as far as every location has the same form."""
    try:
        parts = urlsplit(location)
        _ = parts.port
    except ValueError as error:
        raise _unreadable(location) from error
    if not parts.scheme or (parts.scheme != FILE and "://" not in location):
        raise InvalidArgument(
            f"{redacted(location)!r} has no scheme, such as file: or postgresql://", field="storage"
        )
    return parts.scheme


def redacted(location: str) -> str:
    """The location as it may be shown: without password and options."""
    scheme, separator, rest = location.rpartition("://")
    shown, question, options = rest.partition("?")
    if question and "@" in options:
        return f"{scheme}{separator}…"  # the password may begin anywhere
    user, at, host = shown.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}"


def _unreadable(location: str) -> InvalidArgument:
    """Says nothing of what the parser said, which may be a part of the password."""
    return InvalidArgument(
        f"{redacted(location)!r} cannot be read as a location; "
        "signs like / ? # @ in a password are written as %2F %3F %23 %40",
        field="storage",
    )


def _refusal(error: NakshaError) -> NakshaError | None:
    """A server that refuses us is not broken, and what it says is worth reading."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if state.startswith(REFUSALS):
        return Unavailable(f"The server refuses: {error.__cause__}")
    return None
