"""Storages are tried out before they are kept: one that cannot be opened is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from naksha.hub.context import Actor
from naksha.hub.locating import FIELD, check_location, with_location, with_secrets
from naksha.hub.objects import StorageObject
from naksha.hub.registry import Realm
from naksha.model.errors import Conflict, InvalidArgument, NakshaError


class OpeningRealm(Realm, Protocol):
    """A realm that can open a storage that is not configured yet."""

    async def check_allowed(self, thing: StorageObject) -> None: ...

    async def try_out_storage(self, thing: StorageObject) -> None: ...


async def create_storage(
    realm: OpeningRealm, thing: StorageObject, actor: Actor, *, is_tried: bool = True
) -> StorageObject:
    """Keep a new storage."""
    thing = with_location(thing)
    owned = msgspec.structs.replace(thing, owner=thing.owner or actor.owner)
    actor.rights.check(thing.manage_right, owned.resource())
    check_location(thing)
    await realm.check_allowed(thing)
    await _try_out(realm, thing, is_tried)
    return await realm.registry.create(thing, actor)


async def replace_storage(
    realm: OpeningRealm,
    thing: StorageObject,
    actor: Actor,
    *,
    if_match: Collection[str] | None = None,
    is_tried: bool = True,
) -> StorageObject:
    """Keep a storage in the place of another one of that id."""
    old = await realm.registry.get(StorageObject, thing.id)
    actor.rights.check(old.manage_right, old.resource())
    new = with_secrets(old, thing)
    check_location(new)
    if new.properties != old.properties:  # else it stays what it is: it can be switched off, say
        await realm.check_allowed(new)
    await _try_out(realm, new, is_tried)

    def checked(old: StorageObject) -> StorageObject:
        made = with_secrets(old, thing)
        if made.properties != new.properties:  # nobody has asked whether that is allowed
            raise Conflict("The storage was changed at the same time; send it again", field=FIELD)
        return made

    return await realm.registry.change(StorageObject, thing.id, checked, actor, if_match=if_match)


async def _try_out(realm: OpeningRealm, thing: StorageObject, is_tried: bool) -> None:
    if is_tried and thing.active:
        try:
            await realm.try_out_storage(thing)
        except InvalidArgument as error:
            error.field = FIELD
            raise
        except NakshaError as error:
            raise InvalidArgument(
                f"The storage cannot be opened: {error.message}; "
                "with check=false it is kept all the same",
                field=FIELD,
            ) from error
