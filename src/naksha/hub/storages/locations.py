"""Where a configured storage is, and what its backend is told.

    {"location": "postgresql://maps@db/maps", "schema": "roads", "poolMax": 20}
    {"master": {"host": "db", "port": 5432, "db": "maps", "user": "maps", "password": …,
                "schema": "roads"}, "readers": [{"host": "replica", …}]}

The second form is that of earlier versions; it is turned into the first one. Whatever is not the
location is an option of the backend. Nothing of it is shown but the location, without its password
and its own options: who sends back what he was shown keeps what is hidden.
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
"""Options that a configuration cannot have: an object of a program, and what the hub passes."""
_NO_OPTIONS: Final = frozenset({"connectTimeout", "stmtTimeout", "lockTimeout", "appName"})
"""Of earlier versions, which had them for each statement; we have our own time limits."""
_NAMED: Final = ("host", "db", "user")


def location_of(thing: StorageObject) -> tuple[str, dict[str, Any]]:
    """Where a storage is, and the options of its backend.

    Raises:
        InvalidArgument: It does not say so.
    """
    options = {_snake(name): value for name, value in thing.properties.items()}
    location = options.pop("location", None)
    if not isinstance(location, str) or not location:
        raise InvalidArgument(
            "A storage has a location, for example file:town.naksha or postgresql:///maps",
            field=FIELD,
        )
    return location, options


def all_locations(thing: StorageObject) -> list[str]:
    """Where a storage is, and where it is read from besides."""
    location, options = location_of(thing)
    readers = options.get("readers") or ()
    return [location, *map(str, readers if isinstance(readers, list | tuple) else (readers,))]


def check_location(thing: StorageObject) -> None:
    """InvalidArgument when no backend could open it, whether something is there or not."""
    location, options = location_of(thing)
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
                f"This storage has no option {name!r}; there are {shown}",
                field=f"properties.{name}",
            )


def with_location(thing: StorageObject) -> StorageObject:
    """The same with `master` and `readers` of earlier versions turned into a location."""
    master = thing.properties.get("master")
    if master is None:
        return thing
    rest = {
        name: value
        for name, value in thing.properties.items()
        if name not in {"master", "readers", *_NO_OPTIONS}
    }
    rest["location"] = _location(master, "properties.master")
    if isinstance(master.get("schema"), str):
        rest.setdefault("schema", master["schema"])
    readers = thing.properties.get("readers") or []
    if not isinstance(readers, list):
        raise InvalidArgument("readers is a list", field="properties.readers")
    if readers:
        rest["readers"] = [
            reader if isinstance(reader, str) else _location(reader, f"properties.readers[{place}]")
            for place, reader in enumerate(readers)
        ]
    return msgspec.structs.replace(thing, properties=rest)


def with_secrets(old: StorageObject, new: StorageObject) -> StorageObject:
    """What takes the place of a storage. With the location as it was shown, what was not shown
    stays, unless it is said anew, or is null now; with another one nothing of it does, so that no
    password is sent to somebody else's server."""
    new = with_location(new)
    whole = old.properties.get("location")
    if not isinstance(whole, str) or new.properties.get("location") not in (whole, redacted(whole)):
        return new
    given = {name: value for name, value in new.properties.items() if name != "location"}
    properties = {**old.properties, **given}
    kept = {name: value for name, value in properties.items() if value is not None}
    return msgspec.structs.replace(new, properties=kept)


def _location(server: object, field: str) -> str:
    if not isinstance(server, Mapping):
        raise InvalidArgument(f"{field} is an object with host, db and user", field=field)
    for name in _NAMED:
        if not isinstance(server.get(name), str) or not server[name]:
            raise InvalidArgument(f"{name} is a text", field=f"{field}.{name}")
    if server.get("readOnly"):
        raise NotSupported(
            "A storage is written to; use a read-only space instead", field=f"{field}.readOnly"
        )
    port = server.get("port", 5432)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65_536:
        raise InvalidArgument("port is a number below 65536", field=f"{field}.port")
    password = server.get("password")
    if password is not None and not isinstance(password, str):
        raise InvalidArgument("password is a text", field=f"{field}.password")
    secret = "" if password is None else f":{quote(password, safe='')}"
    user, host, db = (quote(server[name], safe="") for name in ("user", "host", "db"))
    return f"postgresql://{user}{secret}@{host}:{port}/{db}"


def _snake(name: str) -> str:
    return _UPPER.sub(r"_\1", name).lower()
