"""The commands `storage list`, `storage show`, `storage fork` and `storage view`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from naksha.cli.hub import with_hub
from naksha.hub.hub import Hub
from naksha.model.errors import NotSupported
from naksha.model.identity.storage_identity import StorageIdentity
from naksha.spi.locations import redacted
from naksha.spi.opening import fork_storage, open_storage

_UNKNOWN = "-"


@runtime_checkable
class HasViews(Protocol):
    """A storage with views for writers without the library."""

    async def add_view(self, collection: str) -> None:
        """Make a view that is named like a collection."""


def storage_lines(arguments: Sequence[str]) -> list[str]:
    """All storages of a catalog: realm, name, id, number and location. Id and number of a storage
    that no hub of this release has opened are not known."""

    async def look(hub: Hub) -> list[str]:
        found = []
        async for realm, thing in hub.storages_configured():
            known = thing.identity
            id, number = (_UNKNOWN, _UNKNOWN) if known is None else (known.id, str(known.number))
            location = redacted(str(thing.properties.get("location", _UNKNOWN)))
            found.append("\t".join((realm, thing.id, id, number, location)))
        return found

    return with_hub(arguments, look, "naksha storage list")


def shown_storage(location: str, schema: str | None) -> dict[str, Any]:
    """Id, number and former ids of the storage at a location."""

    async def look() -> StorageIdentity:
        async with open_storage(location, must_exist=True, **_options(schema)) as storage:
            return storage.identity

    return _to_json(asyncio.run(look()))


def forked_storage(location: str, schema: str | None, id: str | None) -> dict[str, Any]:
    """The same of a storage that has been given an id and a number of its own."""
    return _to_json(asyncio.run(fork_storage(location, id, **_options(schema))))


def add_view(location: str, collection: str) -> None:
    """Add a view that is named like a collection."""

    async def add() -> None:
        async with open_storage(location, must_exist=True) as storage:
            if not isinstance(storage, HasViews):
                raise NotSupported("Only files have views; PostgreSQL has a table of that name")
            await storage.add_view(collection)

    asyncio.run(add())


def lines_of(storage: dict[str, Any]) -> list[str]:
    """A storage as a person reads it."""
    former = [f"former id: {each['id']} (number {each['number']})" for each in storage["former"]]
    return [f"id: {storage['id']}", f"number: {storage['number']}", *former]


def _options(schema: str | None) -> dict[str, Any]:
    return {} if schema is None else {"schema": schema}


def _to_json(identity: StorageIdentity) -> dict[str, Any]:
    former = [{"id": each.id, "number": each.number} for each in identity.former]
    return {"id": identity.id, "number": identity.number, "former": former}
