"""Who names whom in the configuration: checked when it is changed, with all of it at hand.

A handler class may say what its connectors name, and where it stores features, with two static
methods; the configuration is then checked, and kept together, for it as for those that come along:

    @staticmethod
    def references(properties: dict[str, Any]) -> Iterable[Reference]: ...
    @staticmethod
    def collections(space: Space, properties: dict[str, Any]) -> Iterable[Stored]: ...

Of one that does not, whatever its properties have under `storageId`, `spaceId` or `spaceIds`, at
whatever depth, counts as named; it stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from naksha.catalog.entities import Edit, Snapshot
from naksha.hub.config.objects import Connector, HubObject, Role, Space, StorageObject, key_of
from naksha.hub.config.space_collections import Stored
from naksha.hub.pipeline.default_pipeline import (
    PROCESSORS,
    is_virtual,
    own_connectors,
    own_processor,
)
from naksha.hub.pipeline.handler_registry import found_class
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import InvalidArgument, NakshaError

KINDS: Final[dict[str, type[HubObject]]] = {
    kind.kind: kind for kind in (StorageObject, Connector, Space, Role, Subscription)
}
_NAMING: Final = {"storageId": "storage", "spaceId": "space", "spaceIds": "space"}


class Reference(NamedTuple):
    """Something that is named: `storage`, `connector` or `space`, its id, and the field that names
    it. What is implicit is needed, but nobody asked for it, so that nobody needs a right to it."""

    kind: str
    id: str
    field: str
    is_implicit: bool = False

    @property
    def key(self) -> str:
        """Where it is in the catalog."""
        return key_of(KINDS[self.kind], self.id)


def names_of(thing: HubObject) -> list[Reference]:
    """What an object names."""
    if isinstance(thing, Space):
        return _names_of_space(thing)
    if isinstance(thing, Connector):
        return _names_of_connector(thing)
    if isinstance(thing, Subscription):
        return _names_of_subscription(thing)
    return []


def _names_of_space(space: Space) -> list[Reference]:
    names = [
        Reference("connector", id, f"eventHandlerIds[{place}]")
        for place, id in enumerate(space.event_handler_ids)
    ]
    names += [
        Reference("connector", ref.id, "processors")
        for ref in space.processor_refs()
        if ref.id not in PROCESSORS
    ]
    if space.storage is not None and not is_virtual(space):
        names.append(Reference("storage", space.storage.id, "storage.id"))
    if space.extends is not None:
        names.append(Reference("space", space.extends.space_id, "extends.spaceId"))
    if not space.event_handler_ids:
        known = {name.key for name in names}
        for connector in own_connectors(space):
            names += [
                name._replace(field="storage.params", is_implicit=space.storage is None)
                for name in _names_of_connector(connector)
                if name.key not in known
            ]
    return names


def _names_of_subscription(subscription: Subscription) -> list[Reference]:
    names = [
        Reference("connector", id, f"eventHandlerIds[{place}]")
        for place, id in enumerate(subscription.event_handler_ids)
    ]
    source = subscription.source
    if source.space_id is not None:
        names.append(Reference("space", source.space_id, "source.spaceId"))
    if source.storage_id is not None:
        names.append(Reference("storage", source.storage_id, "source.storageId"))
    return names


def _names_of_connector(connector: Connector) -> list[Reference]:
    says = getattr(found_class(connector.handler_name), "references", None)
    if says is None:
        return list(_named_in(connector.properties, "properties"))
    with _told_as_invalid(connector):
        return list(says(connector.properties))


@contextmanager
def _told_as_invalid(connector: Connector) -> Iterator[None]:
    """What code of others makes of properties that it does not expect."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise InvalidArgument(
            f"The connector {connector.id!r} cannot be used: {error!r}", field="properties"
        ) from error


def _named_in(value: object, field: str) -> Iterator[Reference]:
    """What is named by the keys that the built-in handlers use."""
    if isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _named_in(part, f"{field}[{place}]")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            kind = _NAMING.get(key)
            if kind is None:
                yield from _named_in(part, f"{field}.{key}")
            elif isinstance(part, str):
                yield Reference(kind, part, f"{field}.{key}")
            elif isinstance(part, list | tuple):
                for place, id in enumerate(part):
                    if isinstance(id, str):
                        yield Reference(kind, id, f"{field}.{key}[{place}]")


async def check_references(edit: Edit, thing: HubObject) -> None:
    """InvalidArgument when something is named that is not there, or leads back to who names it."""
    for name in names_of(thing):
        if await edit.ref(name.key) is None and name.key != thing.key:
            raise InvalidArgument(
                f"There is no {name.kind} {name.id!r}; create it first", field=name.field
            )
        if await _leads_to(edit, name, thing):
            raise InvalidArgument(
                f"The {thing.kind} {thing.id!r} would contain itself by way of the {name.kind} "
                f"{name.id!r}",
                field=name.field,
            )


async def _leads_to(edit: Edit, name: Reference, thing: HubObject) -> bool:
    """Whether what is named names an object, or names what does so."""
    waiting, seen = [name], {name.key}
    while waiting:
        name = waiting.pop()
        if name.key == thing.key:
            return True
        found = await edit.get(name.key, KINDS[name.kind])
        for further in [] if found is None else kept_names(found.value):
            if further.key not in seen:
                seen.add(further.key)
                waiting.append(further)
    return False


def kept_names(thing: HubObject) -> list[Reference]:
    """What an object that is kept names. One that would be refused today, because another release
    of its handler asks for more, must not be in the way of others."""
    try:
        return names_of(thing)
    except NakshaError:
        return list(_named_in(getattr(thing, "properties", {}), "properties"))


# ---- Where spaces are stored ---------------------------------------------------------------------


def stored_by(space: Space, connectors: Iterable[Connector]) -> list[Stored]:
    """The collections that a pipeline stores into, also while a part of it is switched off."""
    found: list[Stored] = []
    for connector in connectors:
        says = getattr(found_class(connector.handler_name), "collections", None)
        if says is not None:
            with _told_as_invalid(connector):
                found += says(space, connector.properties)
    return found


async def connectors_of(snapshot: Snapshot, space: Space) -> Sequence[Connector]:
    """The connectors of a space, those that it has by itself included; what is not there is left
    out."""
    processors = await processors_of(snapshot, space)
    if not space.event_handler_ids:
        return [*processors, *own_connectors(space)]
    return [*processors, *await connectors_named(snapshot, space.event_handler_ids)]


async def processors_of(snapshot: Snapshot, space: Space) -> list[Connector]:
    """The connectors of a space that run before the others, with the parameters that the space has
    for them; what does not exist is left out."""
    refs = space.processor_refs()
    if not refs:
        return []
    named = await connectors_named(snapshot, [ref.id for ref in refs])
    known = {connector.id: connector for connector in named}
    found: list[Connector] = []
    for ref in refs:
        own = own_processor(ref)
        if own is not None:
            found.append(own)
        elif ref.id in known:
            found.append(_with_params(known[ref.id], ref.params or {}))
            if stored_by(space, found[-1:]):
                raise InvalidArgument(
                    f"The connector {ref.id!r} stores features; name it in eventHandlerIds, not "
                    "as a processor",
                    field="processors",
                )
    return found


def _with_params(connector: Connector, params: Mapping[str, Any]) -> Connector:
    """A connector with parameters of a space. The right to use a connector does not include the
    right to change it: parameters add properties, and name no other storage or space."""
    replaced = sorted(connector.properties.keys() & params.keys())
    if replaced:
        raise InvalidArgument(
            f"The connector {connector.id!r} has its own {', '.join(replaced)}; parameters of a "
            "processor cannot replace properties of its connector",
            field="processors",
        )
    merged = msgspec.structs.replace(connector, properties={**connector.properties, **params})
    own = {name.key for name in _names_of_connector(connector)}
    for name in _names_of_connector(merged):
        if name.key not in own:
            raise InvalidArgument(
                f"Parameters of a processor cannot name the {name.kind} {name.id!r}; make a "
                "connector that names it",
                field="processors",
            )
    return merged


async def connectors_named(snapshot: Snapshot, ids: Sequence[str]) -> Sequence[Connector]:
    """The connectors of these ids; what is not there is left out."""
    found = await snapshot.get_many([key_of(Connector, id) for id in ids], Connector)
    return [one.value for one in found if one is not None]


async def stored_in(snapshot: Snapshot, space: Space) -> list[Stored]:
    """The collections that a space is stored in."""
    return stored_by(space, await connectors_of(snapshot, space))


async def spaces_below(snapshot: Snapshot, space: Space) -> list[Space]:
    """The spaces that a space is made of, directly or by way of others; of a view none is left
    out."""
    found: dict[str, Space] = {}
    waiting = [space]
    while waiting:
        for connector in await connectors_of(snapshot, waiting.pop()):
            for name in kept_names(connector):
                if name.kind != Space.kind or name.id in found or name.id == space.id:
                    continue
                below = await snapshot.get(name.key, Space)
                if below is not None:
                    found[name.id] = below.value
                    waiting.append(below.value)
    return list(found.values())
