"""Cleanup after removed subscriptions: their progress and the pins that kept history for them.

The removal cannot do this in the same transaction. The cleanup is repeated after a while, because
an instance that had not yet seen the removal may have recreated the progress.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from naksha.catalog.entities import EntityEdit, EntitySnapshot
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
    """A removed subscription that has to be cleaned up."""

    storage_id: str
    progress_id: int
    removed_ms: int


def record_leftover(edit: EntityEdit, leftover: Leftover) -> Leftover:
    """Record in the commit that removes a subscription what has to be cleaned up."""
    edit.put(f"{PREFIX}{leftover.progress_id}", leftover)
    return leftover


async def clear_leftovers(realm: RealmHub, snapshot: EntitySnapshot) -> None:
    """Clean up subscriptions whose removal all instances know; retry failed ones next time."""
    before_ms = realm.opened.persistence.clock.now_ms() - limits.SUBSCRIPTION_LEFTOVER_SECONDS * 1e3
    async for key, found in snapshot.list(PREFIX, Leftover):
        if found.value.removed_ms > before_ms:
            continue
        try:
            await clear(realm, found.value)
        except NakshaError as error:
            _log.warning("Cleanup of a removed subscription failed, will retry: %s", error)
            continue
        await realm.registry.forget(key)


async def clear(realm: RealmHub, leftover: Leftover) -> None:
    """Delete the progress and the pin of a removed subscription."""
    await ProgressTable(realm.opened.persistence).forget(leftover.progress_id)
    try:
        storage = await realm.storage(leftover.storage_id)
    except NotFound:
        return  # its pins were removed with the storage
    await storage.unpin(pin_name(realm.realm_id, leftover.progress_id))
