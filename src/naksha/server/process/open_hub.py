"""Open the hub that the settings describe."""

from __future__ import annotations

import logging
from typing import Final

from naksha.catalog.catalog import Tuning
from naksha.hub.config.objects import StorageObject
from naksha.hub.config.realm_setup import DEFAULT_REALM, DEFAULT_STORAGE
from naksha.hub.hub import Hub
from naksha.hub.pipeline.pipeline import Observe, ignore_event
from naksha.model.errors import NakshaError, RealmInactive
from naksha.server.process.settings import ServerSettings
from naksha.spi.locations import redacted

_log: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"


async def open_hub(
    settings: ServerSettings, *, observe: Observe = ignore_event, reads_only: bool = False
) -> Hub:
    """Open the hub with the given settings; with `reads_only`, its catalog must exist."""
    peers = settings.peers or (_LOOPBACK if settings.workers > 1 else "")
    tuning = Tuning(pointer_seconds=settings.config_seconds, listen=peers)
    # Without keys there is one local user; with keys there are tenants, isolated from each other.
    allowed = settings.allowed_locations if settings.allowed_locations or settings.keys else None
    return await Hub.open(
        settings.catalog_location,
        settings.default_storage,
        tuning=tuning,
        observe=observe,
        files=settings.data_directory,
        allowed_locations=allowed,
        remote_handlers=settings.remote_handlers,
        reads_only=reads_only,
    )


async def check_default_storage(hub: Hub, settings: ServerSettings) -> None:
    """Open the default storage of the default realm, so that a wrong setting fails at start-up."""
    try:
        realm = await hub.realm(DEFAULT_REALM)
    except RealmInactive as error:
        _log.warning("The default realm is not served, but all others are: %s", error)
        return
    thing = await realm.registry.find(StorageObject, DEFAULT_STORAGE)
    if thing is None or not thing.active:
        return
    configured = settings.default_storage.for_realm(DEFAULT_REALM)
    if settings.realm_storage and thing.properties != configured.properties:
        _log.warning(
            "Realm %s keeps its features in %s, as configured when it was created; the setting "
            "realm_storage applies to new realms only",
            DEFAULT_REALM,
            redacted(str(thing.properties.get("location"))),
        )
    try:
        await realm.storage(DEFAULT_STORAGE)
    except NakshaError as error:
        error.message = f"The storage of realm {DEFAULT_REALM} cannot be used: {error.message}"
        raise
