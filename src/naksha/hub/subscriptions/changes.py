"""Creation, removal, reset and move of subscriptions, and their status."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from naksha.catalog.entities import EntityEdit
from naksha.hub.config.change_rights import check_removed, check_visible
from naksha.hub.hub import RealmHub
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.cleanup import Leftover, clear, record_leftover
from naksha.hub.subscriptions.objects import BEGINNING, NOW, Subscription, check_start
from naksha.hub.subscriptions.pins import pin_name
from naksha.hub.subscriptions.progress import (
    DeliveryCondition,
    Kept,
    ProgressTable,
    SubscriptionProgress,
)
from naksha.hub.subscriptions.service import begin
from naksha.hub.subscriptions.sources import storage_id_of
from naksha.model import limits
from naksha.model.errors import InvalidArgument, NakshaError, NotFound
from naksha.model.version import HEAD, AtSeq, Version
from naksha.spi.storage import Storage
from naksha.versioning import FeedPosition


class DeliveryState(StrEnum):
    """Delivery state of a subscription."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    EXPIRED = "expired"


async def create_subscription(
    realm: RealmHub, subscription: Subscription, actor: Actor
) -> Subscription:
    """Create a subscription; it delivers all changes published later, unless it starts later."""
    # Check rights first, so that unauthorized actors learn nothing about existing objects.
    actor.rights.check(subscription.manage_right, subscription.resource())
    storage_id = await _storage_id(realm, subscription)
    storage = await realm.storage(storage_id)
    start = await _version(storage, subscription.start)
    table = ProgressTable(realm.opened.persistence)
    thing = msgspec.structs.replace(
        subscription,
        started_after=start.seq_number,
        started_in=storage_id,
        progress_id=table.new_id(),
    )
    made = await realm.registry.create(thing, actor)
    # The subscription exists already: the instance that delivers it repeats what fails here.
    with contextlib.suppress(NakshaError):
        await begin(table, made)
        await storage.pin(pin_name(realm.realm_id, made.progress_id), start)
    return made


async def remove_subscription(
    realm: RealmHub, id: str, actor: Actor, *, if_match: Collection[str] | None = None
) -> Subscription:
    """Remove a subscription; a delivery in progress may still arrive."""

    table = ProgressTable(realm.opened.persistence)
    left: Leftover | None = None

    async def leaving(edit: EntityEdit, removed: Subscription) -> None:
        nonlocal left
        kept = await table.get(removed.progress_id)
        storage_id = removed.started_in if kept is None else kept.value.storage_id
        left = record_leftover(edit, Leftover(storage_id, removed.progress_id, table.now_ms))

    removed = await realm.registry.remove(Subscription, id, actor, if_match=if_match, also=leaving)
    assert left is not None
    with contextlib.suppress(NakshaError):  # the cleanup job clears it again later
        await clear(realm, left)
    return removed


async def reset_subscription(
    realm: RealmHub, id: str, since: str | int, actor: Actor
) -> Subscription:
    """Continue after another version: an earlier one to repeat changes, a later one to skip some.

    The instance that delivers the subscription stops first and releases it.
    """
    subscription = await _managed(realm, id, actor)
    check_start(since, field="since")
    storage_id = await _storage_id(realm, subscription)
    storage = await realm.storage(storage_id)
    start = await _version(storage, since)
    table = ProgressTable(realm.opened.persistence)
    life = table.new_id()

    def changed(old: SubscriptionProgress) -> SubscriptionProgress:
        return msgspec.structs.replace(
            old,
            position=FeedPosition(start.seq_number),
            storage_id=storage_id,
            storage_number=storage.number,
            life=max(life, old.life + 1),
            condition=DeliveryCondition.ACTIVE,
            reason="",
            since_ms=table.now_ms,
            moved_ms=table.now_ms,
        )

    # Pin first: later, the history may already be expired.
    await storage.pin(pin_name(realm.realm_id, subscription.progress_id), start)
    await _change(table, subscription, changed)
    return subscription


async def move_subscription(
    realm: RealmHub, id: str, instance: str, actor: Actor, living: Collection[str]
) -> Subscription:
    """Move the delivery to another instance."""
    subscription = await _managed(realm, id, actor)
    if instance not in living:
        raise InvalidArgument(
            f"Hub instance {instance!r:.80} is not running; use one of {', '.join(sorted(living))}",
            field="instance",
        )
    table = ProgressTable(realm.opened.persistence)
    until_ms = table.now_ms + int(limits.SUBSCRIPTION_MOVE_SECONDS * 1000)

    def changed(old: SubscriptionProgress) -> SubscriptionProgress:
        if old.holder == instance:
            return old
        return msgspec.structs.replace(old, wanted=instance, wanted_until_ms=until_ms)

    await _change(table, subscription, changed)
    return subscription


async def status_of(realm: RealmHub, subscription: Subscription) -> dict[str, Any]:
    """Return the state and the position of a subscription."""
    return (await statuses_of(realm, [subscription]))[0]


async def statuses_of(
    realm: RealmHub, subscriptions: Sequence[Subscription]
) -> list[dict[str, Any]]:
    """Return the status of several subscriptions at once."""
    table = ProgressTable(realm.opened.persistence)
    known = await table.read([one.progress_id for one in subscriptions])
    return [_status(one, known.get(one.progress_id)) for one in subscriptions]


def _status(subscription: Subscription, kept: Kept | None) -> dict[str, Any]:
    if kept is None:
        return {"state": DeliveryState.ACTIVE if subscription.active else DeliveryState.PAUSED}
    progress = kept.value
    state = DeliveryState(progress.condition.value)
    if not subscription.active and state is not DeliveryState.EXPIRED:
        state = DeliveryState.PAUSED
    status = {
        "state": state,
        "stateReason": progress.reason or None,
        "since": progress.since_ms or None,
        "version": progress.position.seq_number,
        "instance": progress.holder or None,
        "term": progress.term,
        "delivered": progress.delivered,
        "deliveredAt": progress.delivered_ms or None,
    }
    return {name: value for name, value in status.items() if value is not None}


async def _managed(realm: RealmHub, id: str, actor: Actor) -> Subscription:
    subscription = await realm.registry.get(Subscription, id)
    check_visible(subscription, actor)
    check_removed(subscription, actor)
    return subscription


async def _storage_id(realm: RealmHub, subscription: Subscription) -> str:
    return await storage_id_of(await realm.registry.snapshot(), subscription.source)


async def _version(storage: Storage, start: str | int) -> Version:
    """Return the version after which deliveries begin; raise Expired if it is gone."""
    if start == NOW:
        return await storage.resolve(HEAD)
    return await storage.resolve(AtSeq(0 if start == BEGINNING else int(start)))


async def _change(
    table: ProgressTable,
    subscription: Subscription,
    changed: Callable[[SubscriptionProgress], SubscriptionProgress],
) -> None:
    await begin(table, subscription)
    if await table.change(subscription.progress_id, changed) is None:
        raise NotFound(
            f"The subscription {subscription.id!r} does not exist; correct its id",
            field="subscription",
        )
