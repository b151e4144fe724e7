"""Who names whom in the configuration: checked when it is changed, with all of it at hand."""

from __future__ import annotations

from typing import Final

from naksha.catalog.entities import Edit
from naksha.hub.objects import Connector, HubObject, Space, StorageObject, key_of
from naksha.model import limits
from naksha.model.errors import InvalidArgument

USERS_NAMED_MAX: Final = 5
"""Of those who still need something, so many are named."""

Named = tuple[type[HubObject], str, str]
"""Kind and id of what is named, and the field that names it."""


def names_of(thing: HubObject) -> list[Named]:
    """What an object names."""
    if isinstance(thing, Space):
        return _names_of_space(thing)
    if isinstance(thing, Connector):
        return _names_of_properties(thing.properties)
    return []


def _names_of_space(space: Space) -> list[Named]:
    names: list[Named] = [
        (Connector, id, f"eventHandlerIds[{place}]")
        for place, id in enumerate(space.event_handler_ids)
    ]
    if space.storage is not None:
        names.append((StorageObject, space.storage.id, "storage.id"))
    if space.extends is not None:
        names.append((Space, space.extends.space_id, "extends.spaceId"))
    return names


def _names_of_properties(properties: dict[str, object]) -> list[Named]:
    """What the built-in handlers call it; others may use the same names."""
    names: list[Named] = []
    storage = properties.get("storageId")
    if isinstance(storage, str):
        names.append((StorageObject, storage, "properties.storageId"))
    one = properties.get("spaceId")
    if isinstance(one, str):
        names.append((Space, one, "properties.spaceId"))
    many = properties.get("spaceIds")
    if isinstance(many, list | tuple):
        names += [
            (Space, id, f"properties.spaceIds[{place}]")
            for place, id in enumerate(many)
            if isinstance(id, str)
        ]
    return names


async def check_references(edit: Edit, thing: HubObject) -> None:
    """InvalidArgument when something is named that is not there."""
    if isinstance(thing, Space) and len(thing.event_handler_ids) > limits.PIPELINE_HANDLERS_MAX:
        raise InvalidArgument(
            f"A space has at most {limits.PIPELINE_HANDLERS_MAX} connectors",
            field="eventHandlerIds",
        )
    for kind, id, field in names_of(thing):
        if (kind, id) == (type(thing), thing.id):
            raise InvalidArgument(f"The {kind.kind} {id!r} cannot name itself", field=field)
        if await edit.ref(key_of(kind, id)) is None:
            raise InvalidArgument(f"There is no {kind.kind} {id!r}; create it first", field=field)


async def users_of(edit: Edit, thing: HubObject) -> list[str]:
    """Who still needs an object, some of them by name."""
    wanted = (type(thing), thing.id)
    users: list[str] = []
    for kind in (Space, Connector):
        async for _, found in edit.list(f"{kind.kind}/", kind):
            other: HubObject = found.value
            if other.key != thing.key and wanted in [(k, i) for k, i, _ in names_of(other)]:
                users.append(f"{kind.kind} {other.id!r}")
                if len(users) == USERS_NAMED_MAX:
                    return users
    return users
