"""What a subscription leaves behind when it is removed: its progress, and what is kept for it. That
is cleared away afterwards, since nobody can do both at once; and once more after a while, by
whoever sees it, since an instance that had not heard of it yet may have made it anew."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from naksha.catalog.entities import Edit, Snapshot
from naksha.catalog.objects import object_type
from naksha.hub.hub import RealmHub
from naksha.hub.subscriptions.pins import pin_name
from naksha.hub.subscriptions.progress import ProgressTable
from naksha.model import limits
from naksha.model.errors import NakshaError, NotFound

_log: Final = logging.getLogger(__name__)
PREFIX: Final = "removed-subscription/"


@object_type("hub-removed-subscription")
class Leftover(msgspec.Struct, frozen=True):
    """A subscription that is gone."""

    storage_id: str
    progress_id: int
    removed_ms: int


def leave(edit: Edit, leftover: Leftover) -> Leftover:
    """Note in the commit that removes a subscription what is to be cleared away."""
    edit.put(f"{PREFIX}{leftover.progress_id}", leftover)
    return leftover


async def clear_leftovers(realm: RealmHub, snapshot: Snapshot) -> None:
    """Clear away what everybody has heard of; what cannot be is left to the next one."""
    before_ms = realm.opened.persistence.clock.now_ms() - limits.SUBSCRIPTION_LEFTOVER_SECONDS * 1e3
    async for key, found in snapshot.list(PREFIX, Leftover):
        if found.value.removed_ms > before_ms:
            continue
        try:
            await clear(realm, found.value)
        except NakshaError as error:
            _log.warning("What a subscription has left cannot be cleared away: %s", error)
            continue
        await realm.registry.forget(key)


async def clear(realm: RealmHub, leftover: Leftover) -> None:
    """Clear away what a subscription has left."""
    await ProgressTable(realm.opened.persistence).forget(leftover.progress_id)
    try:
        storage = await realm.storage(leftover.storage_id)
    except NotFound:
        return  # its pins went with it
    await storage.unpin(pin_name(realm.realm_id, leftover.progress_id))
