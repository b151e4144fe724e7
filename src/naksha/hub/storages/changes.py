"""Storage creation and replacement, with a trial opening before the configuration is committed."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

import msgspec

from naksha.hub.config.objects import Identity, StorageObject
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.storages.identities import with_identity
from naksha.hub.storages.locations import FIELD, check_location, with_location, with_secrets
from naksha.model.errors import Conflict, InvalidArgument, NakshaError


class OpeningRealm(ConfiguredRealm, Protocol):
    """A realm that can open a storage before it is configured."""

    def claimed(self, entity: StorageObject) -> AbstractAsyncContextManager[None]: ...

    async def proposed(
        self, entity: StorageObject, old: StorageObject | None = None
    ) -> StorageObject: ...

    async def try_out_storage(self, entity: StorageObject) -> Identity: ...

    def unique(self, entity: StorageObject) -> AbstractAsyncContextManager[None]: ...


async def create_storage(
    realm: OpeningRealm, entity: StorageObject, actor: Actor, *, is_tried: bool = True
) -> StorageObject:
    """Create a storage, after opening it once unless `is_tried` is false."""
    entity = with_location(entity)
    owned = msgspec.structs.replace(entity, owner=entity.owner or actor.owner)
    actor.rights.check(entity.manage_right, owned.resource())
    check_location(entity)
    async with realm.claimed(entity):
        made = await _tried_out(realm, await realm.proposed(entity), is_tried)
        async with realm.unique(made):
            return await realm.registry.create(made, actor)


async def replace_storage(
    realm: OpeningRealm,
    entity: StorageObject,
    actor: Actor,
    *,
    if_match: Collection[str] | None = None,
    is_tried: bool = True,
) -> StorageObject:
    """Replace the configuration of a storage, after opening it once unless `is_tried` is false."""
    old = await realm.registry.get(StorageObject, entity.id)
    actor.rights.check(old.manage_right, old.resource())
    new = with_secrets(old, entity)
    check_location(new)

    # An unchanged location need not be allowed any more, so that the storage can, for example,
    # still be deactivated.
    is_moved = new.properties != old.properties
    async with realm.claimed(new) if is_moved else nullcontext():
        made = await realm.proposed(new, old) if is_moved else with_identity(new, old.identity)
        made = await _tried_out(realm, made, is_tried)

        def checked(old: StorageObject) -> StorageObject:
            changed = with_secrets(old, entity)
            if changed.properties != new.properties:  # these properties were not checked
                raise Conflict(
                    f"The storage {entity.id!r} was changed by another request; read it again and "
                    "repeat the change",
                    field=FIELD,
                )
            return with_identity(changed, made.identity)

        is_other = made.identity not in (None, old.identity)
        async with realm.unique(made) if is_other else nullcontext():
            return await realm.registry.change(
                StorageObject, entity.id, checked, actor, if_match=if_match
            )


async def _tried_out(realm: OpeningRealm, entity: StorageObject, is_tried: bool) -> StorageObject:
    """Return the storage with the identity determined by opening it."""
    if not is_tried or not entity.active:
        return entity
    try:
        return with_identity(entity, await realm.try_out_storage(entity))
    except InvalidArgument as error:
        error.field = FIELD
        raise
    except NakshaError as error:
        raise InvalidArgument(
            f"The storage cannot be opened: {error.message}; "
            "use check=false to configure it anyway",
            field=FIELD,
        ) from error
