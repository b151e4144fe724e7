"""Implementation of the commands `storage list`, `show`, `fork` and `view`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from naksha.model.errors import NotSupported
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.locations import redacted
from naksha.spi.storage_factory import fork_storage, open_storage

if TYPE_CHECKING:
    from naksha.hub.hub import Hub

_UNKNOWN = "-"


@runtime_checkable
class HasViews(Protocol):
    """A storage with views for editors that do not use the library."""

    async def add_view(self, collection: str) -> None:
        """Create a view named like a collection."""


def storage_lines(arguments: Sequence[str]) -> list[str]:
    """Return one line per storage of a catalog: realm, name, id, number and location.

    Id and number are unknown until a hub of this release has opened the storage.
    """

    from naksha.cli.hub import with_hub  # needs the extra `server`

    async def look(hub: Hub) -> list[str]:
        found = []
        async for realm, thing in hub.storages_configured():
            known = thing.identity
            id, number = (_UNKNOWN, _UNKNOWN) if known is None else (known.id, str(known.number))
            location = redacted(str(thing.properties.get("location", _UNKNOWN)))
            found.append("\t".join((realm, thing.id, id, number, location)))
        return found

    return with_hub(arguments, look, "naksha storage list")


def storage_identity(location: str, schema: str | None) -> dict[str, Any]:
    """Return id, number and former ids of the storage at a location."""

    async def look() -> StorageIdentity:
        async with open_storage(location, must_exist=True, **_options(schema)) as storage:
            return storage.identity

    return _to_json(asyncio.run(look()))


def forked_storage(location: str, schema: str | None, id: str | None) -> dict[str, Any]:
    """Give a storage its own id and number, and return them with the former ids."""
    return _to_json(asyncio.run(fork_storage(location, id, **_options(schema))))


def add_view(location: str, collection: str) -> None:
    """Add a view named like a collection."""

    async def add() -> None:
        async with open_storage(location, must_exist=True) as storage:
            if not isinstance(storage, HasViews):
                raise NotSupported(
                    "Views are supported for files only; in PostgreSQL, edit the collection's table"
                )
            await storage.add_view(collection)

    asyncio.run(add())


def lines_of(storage: dict[str, Any]) -> list[str]:
    """Format a storage for people."""
    former = [f"former id: {each['id']} (number {each['number']})" for each in storage["former"]]
    return [f"id: {storage['id']}", f"number: {storage['number']}", *former]


def _options(schema: str | None) -> dict[str, Any]:
    return {} if schema is None else {"schema": schema}


def _to_json(identity: StorageIdentity) -> dict[str, Any]:
    former = [{"id": each.id, "number": each.number} for each in identity.former]
    return {"id": identity.id, "number": identity.number, "former": former}
