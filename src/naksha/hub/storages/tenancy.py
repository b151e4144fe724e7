"""Which storages a realm may have: none in which another realm keeps its features.

Whoever runs the hub lists how locations may begin. An empty list leaves a realm what is its own:
where its default storage is, and files below the directory of its name. In the database of the
default storage a realm has its own schema, and those named after it: `naksha_maps` and
`naksha_maps$old` for the realm `maps`. Ids of realms have no `$`, so no two share a schema.
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


class Place(NamedTuple):
    """Where features are, however it is written."""

    server: str
    name: str
    """Of a database or file."""
    schema: str = ""


class Tenancy:
    """What the realms of one hub may configure."""

    def __init__(
        self,
        own: DefaultStorage,
        allowed: Sequence[str] | None = None,
        files: Path | None = None,
    ) -> None:
        """`own` is what a new realm gets; `allowed` are beginnings of locations, with `{realm}` for
        the id of a realm, None for any; `files` is where paths of files begin."""
        self._own = own
        self._allowed = allowed
        self._files = files

    def check_allowed(self, realm: str, thing: StorageObject) -> None:
        """Forbidden when a realm may have no storage at this location, or in this schema."""
        if self._allowed is None:
            return
        own = self._own.for_realm(realm)
        for location in all_locations(thing):
            if not self._is_allowed(realm, location, own):
                raise Forbidden(
                    f"Storages at {redacted(location)!r} are not allowed here; whoever runs the "
                    "hub says where they may be",
                    field=FIELD,
                )
        _check_schema(own, thing)

    def places(self, thing: StorageObject) -> Iterator[Place]:
        """Where a storage is, and where it is read from; nowhere if nobody could open it."""
        try:
            _, options = location_of(thing)
            for location in all_locations(thing):
                yield self._place(location, options)
        except InvalidArgument:
            return

    def _is_allowed(self, realm: str, location: str, own: StorageObject) -> bool:
        if not self._allowed:
            return location in all_locations(own) or _begins(location, _OWN_FILES, realm)
        return any(_begins(location, beginning, realm) for beginning in self._allowed)

    def _place(self, location: str, options: dict[str, Any]) -> Place:
        if STORAGES.scheme_of(location) == FILE:
            path = path_of(location)
            return Place(
                FILE, os.path.realpath(path if self._files is None else self._files / path)
            )
        schema = _schema_of(location, options)
        if schema is None:
            return Place("", location)
        server, database = _database_of(location)
        return Place(server, database, schema)


def _begins(location: str, beginning: str, realm: str) -> bool:
    text = beginning.format(realm=realm)
    if location == text:
        return True
    # Options can name another server, and signs of a path can be written in many ways; some of
    # those that cannot be printed are overlooked by who reads a location.
    is_plain = location.isprintable() and ".." not in unquote(location)
    if not is_plain or {"?", "#"} & set(location) or not location.startswith(text):
        return False
    _, is_filled, tail = beginning.rpartition(_REALM)
    if is_filled and _ID_SIGNS.fullmatch(tail):
        # What follows must not make the id that of another realm.
        return not _ID_SIGNS.fullmatch(location[len(text)])
    return True


def _check_schema(own: StorageObject, thing: StorageObject) -> None:
    """A realm stays in its schemas where others have theirs. Only the name of the database is
    compared: a server has many names."""
    location, options = location_of(own)
    mine = _schema_of(location, options)
    if mine is None:
        return
    _, asked = location_of(thing)
    _, database = _database_of(location)
    for place in all_locations(thing):
        schema = _schema_of(place, asked)
        if schema is None or _database_of(place)[1] not in (database, ""):
            continue
        if schema != mine and not schema.startswith(mine + _OF_SCHEMA):
            raise Forbidden(
                f"In this database the realm has the schema {mine!r}, and those that begin with "
                f"{mine + _OF_SCHEMA!r}",
                field=f"properties.{_SCHEMA}",
            )


def _schema_of(location: str, options: dict[str, Any]) -> str | None:
    """The schema that a storage is in; None where there are no schemas."""
    known = inspect.signature(STORAGES.find(location).open).parameters.get(_SCHEMA)
    if known is None:
        return None
    named = options.get(_SCHEMA)
    return str(known.default if named is None else named)


def _database_of(location: str) -> tuple[str, str]:
    """Server and database, as the driver reads them."""
    parts = urlsplit(location)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = unquote(parts.hostname or "") or options.get("host", "")
    port = parts.port or options.get("port") or 5432
    server = "" if host in _LOCAL or host.startswith("/") else host.lower()
    name = unquote(parts.path[1:]) or options.get("dbname") or options.get("database", "")
    return f"{server}:{port}", name
