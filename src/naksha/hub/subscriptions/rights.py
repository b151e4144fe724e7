"""Rights of a subscription, and rights needed to create one.

A subscription acts for the actor who created it, but outlives that actor's token. So it gets
exactly the rights it needs, and an actor who creates or changes it must have them: to read all
features of the source, and to write all features of the spaces that its connectors name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from naksha.catalog.entities import EntitySnapshot
from naksha.hub.auth import resources
from naksha.hub.auth.resources import Resource
from naksha.hub.auth.rights import Right, Rights, forbidden, parse_rights
from naksha.hub.config.objects import Connector, Space, StorageObject, key_of
from naksha.hub.config.references import connectors_named, references_of
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.objects import Subscription
from naksha.model.errors import Forbidden

WRITES = (Right.CREATE_FEATURES, Right.UPDATE_FEATURES, Right.DELETE_FEATURES)


def actor_of(realm_id: str, subscription: Subscription, connectors: Iterable[Connector]) -> Actor:
    """Return the actor that delivers a subscription."""
    written = [{"spaceId": id} for id in spaces_written(connectors)]
    source = subscription.source.space_id
    read = [*written, *([] if source is None else [{"spaceId": source}])]
    actions = {right.value: written for right in WRITES}
    used = [{"id": entry["spaceId"]} for entry in read]
    matrix = {**actions, Right.READ_FEATURES.value: read, Right.USE_SPACES.value: used}
    return Actor(
        app_id=subscription.app_id,
        author=subscription.author,
        realm=realm_id,
        rights=parse_rights({"naksha": matrix}),
    )


def spaces_written(connectors: Iterable[Connector]) -> Iterator[str]:
    """Yield the spaces that connectors deliver changes to."""
    for connector in connectors:
        yield from (name.id for name in references_of(connector) if name.kind == Space.kind)


async def check_subscription(snapshot: EntitySnapshot, entity: Subscription, actor: Actor) -> None:
    """Raise Forbidden if the actor lacks rights that the subscription would use."""
    await _check_source(snapshot, entity, actor.rights)
    connectors = await connectors_named(snapshot, entity.event_handler_ids)
    await _check_written(snapshot, connectors, actor.rights)


async def check_delivers(
    snapshot: EntitySnapshot, connector: Connector, old: Connector | None, actor: Actor
) -> None:
    """Raise Forbidden if the actor may not change a connector of subscriptions.

    An actor who changes the destination receives everything that the subscriptions deliver.
    """
    if old is None or _does(old) == _does(connector):
        return
    async for _, found in snapshot.list(f"{Subscription.kind}/", Subscription):
        if connector.id in found.value.event_handler_ids:
            await _check_source(snapshot, found.value, actor.rights)
            await _check_written(snapshot, [connector], actor.rights)


def _does(connector: Connector) -> tuple[str, Any, dict[str, Any]]:
    return connector.handler_name, connector.url, connector.properties


async def _check_written(
    snapshot: EntitySnapshot, connectors: Iterable[Connector], rights: Rights
) -> None:
    for space_id in spaces_written(connectors):
        found = await snapshot.get(key_of(Space, space_id), Space)
        if found is None:
            continue  # reported by the check of references
        for right in WRITES:
            check_all(rights, right, resources.features(found.value.resource()))


async def _check_source(snapshot: EntitySnapshot, entity: Subscription, rights: Rights) -> None:
    source = entity.source
    if source.space_id is not None:
        found = await snapshot.get(key_of(Space, source.space_id), Space)
        if found is not None and not found.value.shared:
            check_all(rights, Right.READ_FEATURES, resources.features(found.value.resource()))
        return
    assert source.storage_id is not None
    await _check_reads_storage(snapshot, source.storage_id, rights)


async def _check_reads_storage(snapshot: EntitySnapshot, storage_id: str, rights: Rights) -> None:
    """Raise Forbidden unless the actor may read all features of a storage."""
    found = await snapshot.get(key_of(StorageObject, storage_id), StorageObject)
    if found is not None:
        rights.check(Right.USE_STORAGES, found.value.resource())
        everything = resources.features(
            Resource(resources.ResourceKind.SPACE, {}),
            storage_id=storage_id,
            storage_tags=found.value.tags,
        )
        check_all(rights, Right.READ_FEATURES, everything)


def check_all(
    rights: Rights, right: Right, features: Resource, about: str = "a subscription"
) -> None:
    """Raise Forbidden unless the right covers all of the features."""
    scope = rights.scope(right, features)
    if scope.is_nothing:
        raise forbidden(right, features)
    if not scope.is_everything:
        raise Forbidden(
            f"The right {right.value} is granted for only some {features}, but {about} needs it "
            "for all of them; use a token or a role that grants it for all",
            right=right.value,
            resource=str(features),
        )
