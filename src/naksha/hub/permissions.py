"""Who may change the configuration: checked in the commit itself, on what is really there.

Whoever makes something needs the right to manage it, and the right to use what it newly names: a
space with somebody else's connector, or a connector with somebody else's storage, is a way in.
"""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.catalog.entities import Edit
from naksha.hub.context import Actor
from naksha.hub.objects import HubObject, Space, StorageObject, key_of
from naksha.hub.references import KINDS, Reference, connectors_of, names_of, stored_by, stored_in
from naksha.hub.rights import Right
from naksha.model.errors import Forbidden, LimitExceeded

ADMIN: Final[dict[type[HubObject], Right]] = {Space: Right.ADMIN_SPACES}
"""What it takes to give an object to somebody else; of other kinds, the right to manage both."""


def check_seen(thing: HubObject, actor: Actor) -> None:
    """Forbidden when the actor may not see an object."""
    actor.rights.check(thing.use_right, thing.resource())


def is_seen(thing: HubObject, actor: Actor) -> bool:
    """Whether the actor may see an object."""
    return actor.rights.allows(thing.use_right, thing.resource())


def check_removed(thing: HubObject, actor: Actor) -> None:
    """Forbidden when the actor may not remove an object."""
    actor.rights.check(thing.manage_right, thing.resource())


def check_remade(old: HubObject, new: HubObject, actor: Actor) -> None:
    """Forbidden when the actor may not make one out of the other."""
    actor.rights.check(old.manage_right, old.resource())
    actor.rights.check(new.manage_right, new.resource())
    if new.owner != old.owner and type(old) in ADMIN:
        actor.rights.check(ADMIN[type(old)], old.resource())


async def check_made(
    edit: Edit, made: HubObject, actor: Actor, old: HubObject | None = None
) -> None:
    """Forbidden when the actor may not have an object as it is now."""
    if old is None:
        actor.rights.check(made.manage_right, made.resource())
        if made.owner != actor.owner and type(made) in ADMIN:
            actor.rights.check(ADMIN[type(made)], made.resource())
        await _check_count(edit, made, actor)
    known = {name.key for name in names_of(old)} if old is not None else set()
    for name in names_of(made):
        if name.key not in known and not name.is_implicit:
            await _check_named(edit, name, actor)
    if isinstance(made, Space):
        await _check_collections(edit, made, actor, old if isinstance(old, Space) else None)


async def _check_named(edit: Edit, name: Reference, actor: Actor) -> None:
    kind = KINDS[name.kind]
    found = await edit.get(name.key, kind)
    if found is None:
        return  # told by whoever checks references
    try:
        check_seen(found.value, actor)
    except Forbidden as error:
        error.field = name.field
        raise


async def _check_collections(edit: Edit, made: Space, actor: Actor, old: Space | None) -> None:
    """A space that names a collection by itself reaches into a storage, which is to be allowed; not
    so a connector that does, since whoever made that was asked."""
    connectors = await connectors_of(edit, made)
    unnamed = msgspec.structs.replace(made, properties={})
    allowed = {each.place for each in stored_by(unnamed, connectors)}
    if old is not None:
        allowed |= {each.place for each in await stored_in(edit, old)}
    for each in stored_by(made, connectors):
        if each.place not in allowed:
            storage = await edit.get(key_of(StorageObject, each.storage_id), StorageObject)
            if storage is not None:
                actor.rights.check(Right.USE_STORAGES, storage.value.resource())


async def _check_count(edit: Edit, made: HubObject, actor: Actor) -> None:
    """What a token allows to pile up."""
    spaces_max = actor.limits.max_spaces
    if not isinstance(made, Space) or spaces_max is None:
        return
    count = 0
    async for _, found in edit.list(f"{Space.kind}/", Space):
        count += found.value.owner == made.owner
    if count >= spaces_max:
        raise LimitExceeded(
            f"{made.owner!r} has {count} spaces, and the token allows {spaces_max}", field="owner"
        )
