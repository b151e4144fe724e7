"""Detection of delivery cycles between subscriptions.

Changes written by a subscription must not reach its source again, neither directly nor through
other subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.config.objects import Connector, HubObject, Space, key_of
from naksha.hub.config.references import connectors_named, stored_in
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.rights import spaces_written
from naksha.model.errors import InvalidArgument

Places = frozenset[tuple[str, str]]
"""Pairs of a storage and one of its collections."""


class _Flow(NamedTuple):
    """Places that a subscription reads features from, and places it writes them to."""

    subscription: Subscription
    read: Places
    written: Places

    def reads(self, places: Places) -> bool:
        source = self.subscription.source
        if source.storage_id is None:
            return bool(self.read & places)
        return any(
            storage_id == source.storage_id
            and (not source.collections or collection in source.collections)
            for storage_id, collection in places
        )


async def check_no_cycle(snapshot: EntitySnapshot, made: HubObject) -> None:
    """Raise InvalidArgument if the changed object would create a delivery cycle."""
    flows = await _flows(snapshot, {made.key: made})
    for flow in flows:
        is_asked = not isinstance(made, Subscription) or made.id == flow.subscription.id
        if is_asked and flow.reads(_reached(flow, flows)):
            raise InvalidArgument(
                f"The subscription {flow.subscription.id!r} would write to its own source, "
                "directly or through others, and deliver its changes again endlessly; write to "
                "another space",
                field="eventHandlerIds" if isinstance(made, Subscription) else made.kind,
            )


def _reached(flow: _Flow, flows: Iterable[_Flow]) -> Places:
    """Return all places that a flow writes to, directly or through other flows."""
    reached, before = flow.written, frozenset[tuple[str, str]]()
    while reached != before:
        before = reached
        reached = before.union(*(other.written for other in flows if other.reads(before)))
    return reached


async def _flows(snapshot: EntitySnapshot, changed: Mapping[str, HubObject]) -> list[_Flow]:
    """Return the flows of all subscriptions that write to spaces."""
    writers = {
        one.id: tuple(spaces_written([one]))
        for one in changed.values()
        if isinstance(one, Connector)
    }
    listed = snapshot.list(f"{Subscription.kind}/", Subscription)
    known = {key: found.value async for key, found in listed}
    known |= {key: one for key, one in changed.items() if isinstance(one, Subscription)}
    flows = []
    for one in known.values():
        unknown = [id for id in one.event_handler_ids if id not in writers]
        for connector in await connectors_named(snapshot, unknown):
            writers[connector.id] = tuple(spaces_written([connector]))
        spaces = tuple(space for id in one.event_handler_ids for space in writers.get(id, ()))
        if spaces:
            read = () if one.source.space_id is None else (one.source.space_id,)
            flows.append(
                _Flow(
                    one,
                    await _places(snapshot, read, changed),
                    await _places(snapshot, spaces, changed),
                )
            )
    return flows


async def _places(
    snapshot: EntitySnapshot, space_ids: Iterable[str], changed: Mapping[str, HubObject]
) -> Places:
    """Return the places where spaces are stored."""
    places: set[tuple[str, str]] = set()
    for id in space_ids:
        key = key_of(Space, id)
        space = changed.get(key)
        if space is None:
            found = await snapshot.get(key, Space)
            space = None if found is None else found.value
        if isinstance(space, Space):
            places.update(stored.place for stored in await stored_in(snapshot, space))
    return frozenset(places)
