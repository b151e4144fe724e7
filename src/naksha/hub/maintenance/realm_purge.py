"""Catalog maintenance for the realms of a hub.

maintenance = Maintenance(hub.catalog, [HubRealms(hub)])
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from naksha.catalog.catalog import OpenRealm
from naksha.catalog.entities import EntitySnapshot
from naksha.catalog.maintenance import AllRealms, RetentionRule
from naksha.catalog.persistence import Persistence
from naksha.catalog.realms import Realm
from naksha.hub.config.objects import POINTER, StorageObject
from naksha.hub.hub import Hub
from naksha.hub.subscriptions.cleanup import PREFIX, Leftover
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.pins import pin_name
from naksha.model.errors import PointerNotFound, StorageCorrupt

_log: Final = logging.getLogger(__name__)


class HubRealms(AllRealms):
    """All realms of a hub, for catalog maintenance.

    Before a realm is purged, its subscriptions' pins are removed from its storages: otherwise they
    would keep history forever.
    """

    def __init__(self, hub: Hub, rules: Sequence[RetentionRule] = ()) -> None:
        super().__init__(rules)
        self._hub = hub

    async def release(self, realm: Realm, persistence: Persistence) -> None:
        try:
            snapshot = await OpenRealm(persistence, realm).entities(POINTER).now()
            pins = [pin_name(realm.id, id) for id in await _progress_ids(snapshot)]
            things = [
                found.value
                async for _, found in snapshot.list(f"{StorageObject.kind}/", StorageObject)
            ]
        except PointerNotFound:
            return  # the realm was never set up
        except StorageCorrupt as error:
            _log.warning(
                "The pins of the purged realm %s cannot be determined; they keep history in its "
                "storages until they are removed by hand: %s",
                realm.id,
                error,
            )
            return
        try:
            for thing in things:
                if pins and self._hub.storages.exists(thing):
                    await self._unpin(realm.id, thing, pins)
        finally:
            self._hub.storages.keep_only(realm.id, ())

    async def _unpin(self, realm_id: str, thing: StorageObject, pins: Sequence[str]) -> None:
        active = msgspec.structs.replace(thing, active=True)
        storage = await self._hub.storages.get(realm_id, active)
        for pin in pins:
            await storage.unpin(pin)


async def _progress_ids(snapshot: EntitySnapshot) -> list[int]:
    """Return the progress ids of subscriptions, including removed ones not yet cleaned up."""
    kept = snapshot.list(f"{Subscription.kind}/", Subscription)
    left = snapshot.list(PREFIX, Leftover)
    return [found.value.progress_id async for _, found in kept] + [
        found.value.progress_id async for _, found in left
    ]
