"""Realm setup: creates a realm's pointers and its default storage.

Safe when several instances do it concurrently or one crashes half-way.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from naksha.catalog.catalog import Catalog, OpenRealm
from naksha.catalog.entities import EntityEdit
from naksha.catalog.realms import Realm, RealmStatus
from naksha.hub.config.objects import POINTER, StorageObject
from naksha.hub.pipeline.request_context import DEFAULT_REALM
from naksha.model.errors import Conflict, InvalidArgument, RealmChanged, RealmNotFound, Retryable

DEFAULT_STORAGE: Final = "default"
_ATTEMPTS_MAX: Final = 20
__all__ = ["DEFAULT_REALM", "DEFAULT_STORAGE", "DefaultStorage", "set_up_realm"]


class DefaultStorage(msgspec.Struct, frozen=True, kw_only=True):
    """Template of the storage that a new realm gets; `{realm}` is replaced by the realm's id."""

    location: str
    options: dict[str, Any] = {}
    options_of_others: dict[str, Any] = {}
    """Defaults of realms other than the default one, so that no two realms share features."""

    def for_realm(self, realm: str) -> StorageObject:
        """Return the storage configuration of a realm; each realm gets one of its own."""
        options = self.options
        if realm != DEFAULT_REALM:
            options = {**self.options_of_others, **options}
            if not any("{realm}" in str(text) for text in (self.location, *options.values())):
                raise InvalidArgument(
                    f"The realm {realm!r} would share its features with other realms; the location "
                    "of the default storage, or one of its options, must contain {realm}",
                    field="storage",
                )
        options = {
            name: value.format(realm=realm) if isinstance(value, str) else value
            for name, value in options.items()
        }
        return StorageObject(
            id=DEFAULT_STORAGE,
            title="The default storage",
            properties={**options, "location": self.location.format(realm=realm)},
        )


async def set_up_realm(catalog: Catalog, id: str, storage: StorageObject) -> OpenRealm:
    """Open a realm; first create it, or finish its setup, if it is not active yet."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            realm = await catalog.realms.get(id)
            if realm.status not in (RealmStatus.CREATED, RealmStatus.INITIALIZING):
                return await catalog.realm(id)
            await _finish(catalog, realm, storage)
        except RealmNotFound:
            await _reserve(catalog, id)
        except (Conflict, RealmChanged):
            continue  # another instance made progress
    raise Retryable(f"The realm {id!r} is being set up by other instances; retry later")


async def _reserve(catalog: Catalog, id: str) -> None:
    with contextlib.suppress(Conflict):  # another instance has created it
        await catalog.realms.create(id)


async def _finish(catalog: Catalog, realm: Realm, made: StorageObject) -> None:
    if realm.status is RealmStatus.CREATED:
        realm = await catalog.realms.update(realm, RealmStatus.INITIALIZING)
    persistence = await catalog.realm_for_setup(realm)
    await persistence.ensure_pointers([POINTER])

    async def change(edit: EntityEdit) -> None:
        if await edit.ref(made.key) is None:
            edit.put(made.key, made)

    await OpenRealm(persistence, realm).entities(POINTER).commit(change, message="set up")
    await catalog.realms.update(realm, RealmStatus.ACTIVE)
