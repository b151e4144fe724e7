"""What a subscription leaves behind when it is removed: its progress, and what is kept for it. That
is cleared away afterwards, by whoever sees it, since nobody can do both at once."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from naksha.catalog.entities import Edit, Snapshot
from naksha.catalog.objects import object_type
from naksha.hub.hub import RealmHub
from naksha.hub.subscription_objects import Subscription
from naksha.hub.subscriptions.pinning import pin_name
from naksha.hub.subscriptions.progress import ProgressTable
from naksha.model.errors import NakshaError, NotFound

_log: Final = logging.getLogger(__name__)
PREFIX: Final = "removed-subscription/"


@object_type("hub-removed-subscription")
class Leftover(msgspec.Struct, frozen=True):
    """A subscription that is gone."""

    storage_id: str
    progress_id: int


def leave(edit: Edit, subscription: Subscription, storage_id: str) -> None:
    """Note in the commit that removes a subscription what is to be cleared away."""
    leftover = Leftover(storage_id, subscription.progress_id)
    edit.put(f"{PREFIX}{subscription.progress_id}", leftover)


async def clear_leftovers(realm: RealmHub, snapshot: Snapshot) -> None:
    """Clear away what there is; what cannot be is left to the next one."""
    async for key, found in snapshot.list(PREFIX, Leftover):
        try:
            await _clear(realm, found.value)
        except NakshaError as error:
            _log.warning("What a subscription has left cannot be cleared away: %s", error)
            continue
        await realm.registry.forget(key)


async def _clear(realm: RealmHub, leftover: Leftover) -> None:
    await ProgressTable(realm.opened.persistence).forget(leftover.progress_id)
    try:
        storage = await realm.storage(leftover.storage_id)
    except NotFound:
        return  # its pins went with it
    await storage.unpin(pin_name(realm.realm_id, leftover.progress_id))
