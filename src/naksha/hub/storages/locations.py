"""Storage locations: parse a storage's properties into a location and backend options.

    {"location": "postgresql://maps@db/maps", "schema": "roads", "poolMax": 20}
    {"master": {"host": "db", "port": 5432, "db": "maps", "user": "maps", "password": …,
                "schema": "roads"}, "readers": [{"host": "replica", …}]}

The second form is that of earlier versions; it is converted to the first. Every property except
the location is an option of the backend. Clients see only the location, without its password and
its query options; a client that sends the visible form back keeps the hidden properties.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from naksha.hub.config.objects import StorageObject
from naksha.model.errors import InvalidArgument, NotSupported
from naksha.spi.locations import STORAGES, redacted

FIELD: Final = "properties.location"
_UPPER: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_OURS: Final = frozenset({"clock", "new_id"})
"""Options that a configuration cannot set: they are Python objects or set by the hub."""
_NO_OPTIONS: Final = frozenset({"connectTimeout", "stmtTimeout", "lockTimeout", "appName"})
"""Statement timeouts of earlier versions; ignored, as the hub has its own time limits."""
_OF_LIBRARY: Final = frozenset({"maintain_every_s", "partition_every_s"})
"""Options of programs that maintain a storage themselves; ignored, as the hub does it."""
_NAMED: Final = ("host", "db", "user")


def location_of(entity: StorageObject) -> tuple[str, dict[str, Any]]:
    """Return a storage's location and its backend options.

    Raises:
        InvalidArgument: The storage has no location.
    """
    named = {_snake(name): value for name, value in entity.properties.items()}
    options = {name: value for name, value in named.items() if name not in _OF_LIBRARY}
    location = options.pop("location", None)
    if not isinstance(location, str) or not location:
        raise InvalidArgument(
            "A storage needs a location, for example file:town.naksha or postgresql:///maps",
            field=FIELD,
        )
    return location, options


def all_locations(entity: StorageObject) -> list[str]:
    """Return the location of a storage and those of its read replicas."""
    location, options = location_of(entity)
    readers = options.get("readers") or ()
    return [location, *map(str, readers if isinstance(readers, list | tuple) else (readers,))]


def check_location(entity: StorageObject) -> None:
    """Raise InvalidArgument if no backend accepts the location and options. Opens nothing."""
    location, options = location_of(entity)
    try:
        backend = STORAGES.find(location)
    except InvalidArgument as error:
        error.field = FIELD
        raise
    known = set(inspect.signature(backend.open).parameters) - _OURS
    for name in options:
        if name not in known:
            shown = ", ".join(sorted(known - {"dsn", "path"}))
            raise InvalidArgument(
                f"{name!r} is not an option of this storage's backend; its options are {shown}",
                field=f"properties.{name}",
            )


def with_location(entity: StorageObject) -> StorageObject:
    """Convert `master` and `readers` of earlier versions to a location."""
    master = entity.properties.get("master")
    if master is None:
        return entity
    rest = {
        name: value
        for name, value in entity.properties.items()
        if name not in {"master", "readers", *_NO_OPTIONS}
    }
    rest["location"] = _location(master, "properties.master")
    if isinstance(master.get("schema"), str):
        rest.setdefault("schema", master["schema"])
    readers = entity.properties.get("readers") or []
    if not isinstance(readers, list):
        raise InvalidArgument(
            "properties.readers must be an array of locations or of objects with host, db, user",
            field="properties.readers",
        )
    if readers:
        rest["readers"] = [
            reader if isinstance(reader, str) else _location(reader, f"properties.readers[{index}]")
            for index, reader in enumerate(readers)
        ]
    return msgspec.structs.replace(entity, properties=rest)


def with_secrets(old: StorageObject, new: StorageObject) -> StorageObject:
    """Fill in the hidden properties of a replacement from the old storage.

    If the location is unchanged (as stored or as clients see it), the old properties are kept
    unless the replacement sets them or sets them to null. With another location none are kept, so
    that no password is sent to a different server.
    """
    new = with_location(new)
    unredacted = old.properties.get("location")
    if not isinstance(unredacted, str) or new.properties.get("location") not in (
        unredacted,
        redacted(unredacted),
    ):
        return new
    sent = {name: value for name, value in new.properties.items() if name != "location"}
    properties = {**old.properties, **sent}
    kept = {name: value for name, value in properties.items() if value is not None}
    return msgspec.structs.replace(new, properties=kept)


def _location(server: object, field: str) -> str:
    if not isinstance(server, Mapping):
        raise InvalidArgument(f"{field} must be an object with host, db and user", field=field)
    for name in _NAMED:
        if not isinstance(server.get(name), str) or not server[name]:
            raise InvalidArgument(
                f"{field}.{name} must be a non-empty string", field=f"{field}.{name}"
            )
    if server.get("readOnly"):
        raise NotSupported(
            f"{field}.readOnly is not supported; make the space read-only instead",
            field=f"{field}.readOnly",
        )
    port = server.get("port", 5432)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65_536:
        raise InvalidArgument(
            f"{field}.port is {port!r:.40}; it must be an integer from 1 to 65535",
            field=f"{field}.port",
        )
    password = server.get("password")
    if password is not None and not isinstance(password, str):
        raise InvalidArgument(f"{field}.password must be a string", field=f"{field}.password")
    secret = "" if password is None else f":{quote(password, safe='')}"
    user, host, db = (quote(server[name], safe="") for name in ("user", "host", "db"))
    return f"postgresql://{user}{secret}@{host}:{port}/{db}"


def _snake(name: str) -> str:
    return _UPPER.sub(r"_\1", name).lower()
