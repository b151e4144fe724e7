"""References between configuration objects, and their validation on every change.

A handler class can declare which objects its connectors reference, and in which collections it
stores features, with two static methods. Its connectors are then validated, and the referenced
objects protected from removal, as for built-in handlers:

    @staticmethod
    def references(properties: dict[str, Any]) -> Iterable[Reference]: ...
    @staticmethod
    def collections(space: Space, properties: dict[str, Any]) -> Iterable[Stored]: ...

Without `references`, every `storageId`, `spaceId` or `spaceIds` at any depth of the properties
counts as a reference; without `collections`, the handler stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from naksha.catalog.entities import EntityEdit, EntitySnapshot
from naksha.hub.config.objects import Connector, HubObject, Role, Space, StorageObject, key_of
from naksha.hub.config.space_collections import SpaceCollection
from naksha.hub.pipeline.default_pipeline import (
    PROCESSORS,
    is_virtual,
    own_connectors,
    own_processor,
)
from naksha.hub.pipeline.handler_registry import find_handler_class
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import InvalidArgument, NakshaError

KINDS: Final[dict[str, type[HubObject]]] = {
    kind.kind: kind for kind in (StorageObject, Connector, Space, Role, Subscription)
}
_NAMING: Final = {"storageId": "storage", "spaceId": "space", "spaceIds": "space"}


class Reference(NamedTuple):
    """A reference to an object: its kind, its id, and the field that contains the reference.

    An implicit reference comes from a default; the object must exist, but the actor needs no right
    to it.
    """

    kind: str
    id: str
    field: str
    is_implicit: bool = False

    @property
    def key(self) -> str:
        """The catalog key of the referenced object."""
        return key_of(KINDS[self.kind], self.id)


def references_of(thing: HubObject) -> list[Reference]:
    """Return the references of an object."""
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
    says = getattr(find_handler_class(connector.handler_name), "references", None)
    if says is None:
        return list(_named_in(connector.properties, "properties"))
    with _told_as_invalid(connector):
        return list(says(connector.properties))


@contextmanager
def _told_as_invalid(connector: Connector) -> Iterator[None]:
    """Convert errors of third-party handler code on unexpected properties to InvalidArgument."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise InvalidArgument(
            f"The connector {connector.id!r} has invalid properties; correct them: {error!r}",
            field="properties",
        ) from error


def _named_in(value: object, field: str) -> Iterator[Reference]:
    """Yield the references under the property names that the built-in handlers use."""
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


async def check_references(edit: EntityEdit, thing: HubObject) -> None:
    """Raise InvalidArgument if a reference is missing or leads back to the object itself."""
    for name in references_of(thing):
        if await edit.ref(name.key) is None and name.key != thing.key:
            raise InvalidArgument(
                f"The {name.kind} {name.id!r} does not exist; create it first, or correct the "
                "reference",
                field=name.field,
            )
        if await _leads_to(edit, name, thing):
            raise InvalidArgument(
                f"The {thing.kind} {thing.id!r} would reference itself through the {name.kind} "
                f"{name.id!r}",
                field=name.field,
            )


async def _leads_to(edit: EntityEdit, name: Reference, thing: HubObject) -> bool:
    """Return whether a reference leads to an object, directly or through other objects."""
    waiting, seen = [name], {name.key}
    while waiting:
        name = waiting.pop()
        if name.key == thing.key:
            return True
        found = await edit.get(name.key, KINDS[name.kind])
        for further in [] if found is None else stored_references_of(found.value):
            if further.key not in seen:
                seen.add(further.key)
                waiting.append(further)
    return False


def stored_references_of(thing: HubObject) -> list[Reference]:
    """Return the references of a stored object, even if its handler no longer accepts it.

    An object that a newer release of its handler rejects must not block changes of other objects.
    """
    try:
        return references_of(thing)
    except NakshaError:
        return list(_named_in(getattr(thing, "properties", {}), "properties"))


# ---- Where spaces are stored ---------------------------------------------------------------------


def stored_by(space: Space, connectors: Iterable[Connector]) -> list[SpaceCollection]:
    """Return the collections that a pipeline stores into, including inactive connectors."""
    found: list[SpaceCollection] = []
    for connector in connectors:
        says = getattr(find_handler_class(connector.handler_name), "collections", None)
        if says is not None:
            with _told_as_invalid(connector):
                found += says(space, connector.properties)
    return found


async def connectors_of(snapshot: EntitySnapshot, space: Space) -> Sequence[Connector]:
    """Return the connectors of a space or its default pipeline; missing ones are skipped."""
    processors = await processors_of(snapshot, space)
    if not space.event_handler_ids:
        return [*processors, *own_connectors(space)]
    return [*processors, *await connectors_named(snapshot, space.event_handler_ids)]


async def processors_of(snapshot: EntitySnapshot, space: Space) -> list[Connector]:
    """Return a space's processors with their parameters applied; missing ones are skipped.

    Processors are connectors that run before the others.

    Raises:
        InvalidArgument: A processor stores features, or its parameters are not allowed.
    """
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
                    f"The connector {ref.id!r} stores features and cannot be a processor; name it "
                    "in eventHandlerIds",
                    field="processors",
                )
    return found


def _with_params(connector: Connector, params: Mapping[str, Any]) -> Connector:
    """Return a connector with a space's parameters added to its properties.

    The right to use a connector does not include the right to change it, so parameters cannot
    replace properties or reference another storage or space.
    """
    replaced = sorted(connector.properties.keys() & params.keys())
    if replaced:
        raise InvalidArgument(
            f"The connector {connector.id!r} already sets {', '.join(replaced)}; parameters of a "
            "processor cannot replace properties of its connector",
            field="processors",
        )
    merged = msgspec.structs.replace(connector, properties={**connector.properties, **params})
    own = {name.key for name in _names_of_connector(connector)}
    for name in _names_of_connector(merged):
        if name.key not in own:
            raise InvalidArgument(
                f"Parameters of a processor cannot name the {name.kind} {name.id!r}; name it in "
                "the properties of a connector, and use that connector as the processor",
                field="processors",
            )
    return merged


async def connectors_named(snapshot: EntitySnapshot, ids: Sequence[str]) -> Sequence[Connector]:
    """Return the connectors with the given ids; missing ones are skipped."""
    found = await snapshot.get_many([key_of(Connector, id) for id in ids], Connector)
    return [one.value for one in found if one is not None]


async def stored_in(snapshot: EntitySnapshot, space: Space) -> list[SpaceCollection]:
    """Return the collections that a space is stored in."""
    return stored_by(space, await connectors_of(snapshot, space))


async def spaces_below(snapshot: EntitySnapshot, space: Space) -> list[Space]:
    """Return the spaces that a space reads, directly or through other spaces.

    Every layer of a view is included.
    """
    found: dict[str, Space] = {}
    waiting = [space]
    while waiting:
        for connector in await connectors_of(snapshot, waiting.pop()):
            for name in stored_references_of(connector):
                if name.kind != Space.kind or name.id in found or name.id == space.id:
                    continue
                below = await snapshot.get(name.key, Space)
                if below is not None:
                    found[name.id] = below.value
                    waiting.append(below.value)
    return list(found.values())
