"""Storage tenancy: the locations where a realm may have storages, isolated from other realms.

The operator lists allowed location prefixes. With an empty list, a realm may use only its own
locations: that of its default storage, and files below the directory of its name. In the database
of the default storage, a realm may use its own schema and those derived from it: `naksha_maps` and
`naksha_maps$old` for the realm `maps`. Realm ids cannot contain `$`, so no two realms share a
schema.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from naksha.hub.config.objects import StorageObject
from naksha.hub.config.realm_setup import DefaultStorage
from naksha.hub.storages.locations import FIELD, all_locations, location_of
from naksha.model.errors import Forbidden, InvalidArgument
from naksha.spi.locations import FILE, STORAGES, path_of, redacted

_OWN_FILES: Final = f"{FILE}:{{realm}}/"
_REALM: Final = "{realm}"
_ID_SIGNS: Final = re.compile(r"[A-Za-z0-9_-]*")
_OF_SCHEMA: Final = "$"
_SCHEMA: Final = "schema"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class StorageLocation(NamedTuple):
    """A normalized storage location: equal for all spellings of the same location."""

    server: str
    name: str
    """Database name or file path."""
    schema: str = ""


class AllowedLocations:
    """The storage locations that realms of one hub may configure."""

    def __init__(
        self,
        own: DefaultStorage,
        allowed: Sequence[str] | None = None,
        files: Path | None = None,
    ) -> None:
        """Set the rules.

        `own` is the template of the default storage. `allowed` are location prefixes, in which
        `{realm}` stands for the realm's id; None allows any location. `files` is the base directory
        of relative file paths.
        """
        self._own = own
        self._allowed = allowed
        self._files = files

    def check_allowed(self, realm: str, entity: StorageObject) -> None:
        """Raise Forbidden if a realm may not have a storage at this location or in this schema."""
        if self._allowed is None:
            return
        own = self._own.for_realm(realm)
        for location in all_locations(entity):
            if not self._is_allowed(realm, location, own):
                raise Forbidden(
                    f"The storage location {redacted(location)!r} is not allowed for this realm; "
                    "ask the operator of the hub to allow it",
                    field=FIELD,
                )
        _check_schema(own, entity)

    def locations_of(self, entity: StorageObject) -> Iterator[StorageLocation]:
        """Yield the locations of a storage and its replicas; none if its location is invalid."""
        try:
            _, options = location_of(entity)
            for location in all_locations(entity):
                yield self._resolved_location(location, options)
        except InvalidArgument:
            return

    def _is_allowed(self, realm: str, location: str, own: StorageObject) -> bool:
        if not self._allowed:
            return location in all_locations(own) or _begins(location, _OWN_FILES, realm)
        return any(_begins(location, beginning, realm) for beginning in self._allowed)

    def _resolved_location(self, location: str, options: dict[str, Any]) -> StorageLocation:
        if STORAGES.scheme_of(location) == FILE:
            path = path_of(location)
            return StorageLocation(
                FILE, os.path.realpath(path if self._files is None else self._files / path)
            )
        schema = _schema_of(location, options)
        if schema is None:
            return StorageLocation("", location)
        server, database = _database_of(location)
        return StorageLocation(server, database, schema)


def _begins(location: str, beginning: str, realm: str) -> bool:
    text = beginning.format(realm=realm)
    if location == text:
        return True
    # Query options can name another server, and path characters can be escaped in many ways. URL
    # parsers skip some non-printable characters.
    is_plain = location.isprintable() and ".." not in unquote(location)
    if not is_plain or {"?", "#"} & set(location) or not location.startswith(text):
        return False
    _, is_filled, tail = beginning.rpartition(_REALM)
    if is_filled and _ID_SIGNS.fullmatch(tail):
        # The next character must not extend the realm's id to that of another realm.
        return not _ID_SIGNS.fullmatch(location[len(text)])
    return True


def _check_schema(own: StorageObject, entity: StorageObject) -> None:
    """Raise Forbidden if a storage in the default storage's database uses a foreign schema.

    Only the name of the database is compared, since a server can have many names.
    """
    own_location, own_options = location_of(own)
    mine = _schema_of(own_location, own_options)
    if mine is None:
        return
    _, options = location_of(entity)
    _, database = _database_of(own_location)
    for location in all_locations(entity):
        schema = _schema_of(location, options)
        if schema is None or _database_of(location)[1] not in (database, ""):
            continue
        if schema != mine and not schema.startswith(mine + _OF_SCHEMA):
            raise Forbidden(
                f"The schema is not allowed for this realm; use {mine!r} or a schema that begins "
                f"with {mine + _OF_SCHEMA!r}",
                field=f"properties.{_SCHEMA}",
            )


def _schema_of(location: str, options: dict[str, Any]) -> str | None:
    """Return the schema of a storage, or None if its backend has no schemas."""
    known = inspect.signature(STORAGES.find(location).open).parameters.get(_SCHEMA)
    if known is None:
        return None
    named = options.get(_SCHEMA)
    return str(known.default if named is None else named)


def _database_of(location: str) -> tuple[str, str]:
    """Return server and database of a location, parsed as the driver does."""
    parts = urlsplit(location)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = unquote(parts.hostname or "") or options.get("host", "")
    port = parts.port or options.get("port") or 5432
    server = "" if host in _LOCAL or host.startswith("/") else host.lower()
    name = unquote(parts.path[1:]) or options.get("dbname") or options.get("database", "")
    return f"{server}:{port}", name
