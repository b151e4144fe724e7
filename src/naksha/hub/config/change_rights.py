"""Authorization of configuration changes, checked inside the commit against its own snapshot.

An actor needs the right to manage the object and the right to use every object that it newly
references: a space with another owner's connector, or a connector with another owner's storage,
would otherwise give access to their data.
"""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.catalog.entities import EntityEdit
from naksha.hub.auth.rights import Right, forbidden
from naksha.hub.config.objects import (
    Connector,
    HubObject,
    Space,
    StorageChoice,
    StorageObject,
    key_of,
)
from naksha.hub.config.reference_index import ReferenceIndex, owned_by
from naksha.hub.config.references import KINDS, Reference, references_of, stored_by, stored_in
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.subscriptions.cycles import check_no_cycle
from naksha.hub.subscriptions.objects import Subscription
from naksha.hub.subscriptions.rights import check_delivers, check_subscription
from naksha.model import limits
from naksha.model.errors import Forbidden, LimitExceeded

ADMIN: Final[dict[type[HubObject], Right]] = {Space: Right.ADMIN_SPACES}
"""The right needed to change an object's owner. Other kinds: the right to manage old and new."""


def check_visible(entity: HubObject, actor: Actor) -> None:
    """Raise Forbidden if the actor may not see an object."""
    if not is_visible(entity, actor):
        raise forbidden(entity.use_right, entity.resource())


def is_visible(entity: HubObject, actor: Actor) -> bool:
    """Return whether the actor may see an object. Shared spaces are visible to every actor."""
    is_shared = isinstance(entity, Space) and entity.shared
    return is_shared or actor.rights.allows(entity.use_right, entity.resource())


def check_listing(kind: type[HubObject], actor: Actor) -> None:
    """Raise Forbidden if the actor has no right to see objects of a kind at all."""
    _check_granted(kind.use_right, actor)


def check_managing(kind: type[HubObject], actor: Actor) -> None:
    """Raise Forbidden if the actor has no right to manage objects of a kind at all."""
    _check_granted(kind.manage_right, actor)


def _check_granted(right: Right, actor: Actor) -> None:
    if not actor.rights.grants.get(right):
        raise Forbidden(
            f"The token lacks the right {right.value}; request a token or a role that grants it",
            right=right.value,
        )


def check_removed(entity: HubObject, actor: Actor) -> None:
    """Raise Forbidden if the actor may not remove an object."""
    actor.rights.check(entity.manage_right, entity.resource())


def check_replaced(old: HubObject, new: HubObject, actor: Actor) -> None:
    """Raise Forbidden if the actor may not replace the old object with the new one."""
    actor.rights.check(old.manage_right, old.resource())
    actor.rights.check(new.manage_right, new.resource())
    if new.owner != old.owner and type(old) in ADMIN:
        actor.rights.check(ADMIN[type(old)], old.resource())


async def check_written(
    edit: EntityEdit,
    references: ReferenceIndex,
    made: HubObject,
    actor: Actor,
    old: HubObject | None = None,
) -> None:
    """Raise Forbidden if the actor may not create or change an object to this state."""
    if old is None:
        actor.rights.check(made.manage_right, made.resource())
        if made.owner != actor.owner and type(made) in ADMIN:
            actor.rights.check(ADMIN[type(made)], made.resource())
    if old is None or old.owner != made.owner:
        await _check_count(edit, references, made, actor)
    known = {
        name.key for name in (references_of(old) if old is not None else ()) if not name.is_implicit
    }
    for name in references_of(made):
        if name.key not in known and not name.is_implicit:
            await _check_named(edit, name, actor)
    await _check_delivered(edit, made, actor, old)
    for storage_id in await _reached_into(edit, made, old):
        storage = await edit.get(key_of(StorageObject, storage_id), StorageObject)
        if storage is not None:
            check_visible(storage.value, actor)


async def _check_delivered(
    edit: EntityEdit, made: HubObject, actor: Actor, old: HubObject | None
) -> None:
    """Check that the actor may read everything that affected subscriptions would then deliver."""
    if isinstance(made, Subscription):
        await check_subscription(edit, made, actor)
    elif isinstance(made, Connector):
        await check_delivers(edit, made, old if isinstance(old, Connector) else None, actor)
    is_new = old is None
    if isinstance(made, Subscription) or (isinstance(made, Connector | Space) and not is_new):
        await check_no_cycle(edit, made)


async def _check_named(edit: EntityEdit, name: Reference, actor: Actor) -> None:
    kind = KINDS[name.kind]
    found = await edit.get(name.key, kind)
    if found is None:
        return  # check_references reports missing objects
    try:
        check_visible(found.value, actor)
    except Forbidden as error:
        error.field = name.field
        raise


async def _reached_into(edit: EntityEdit, made: HubObject, old: HubObject | None) -> set[str]:
    """Return the storages in which an object newly names a collection.

    Naming a collection gives access to data that others have stored there. Collections named by a
    space's connectors do not count: they were checked when the connector was created.
    """
    named = await _named_collections(edit, made)
    known = await _named_collections(edit, old) if old is not None else set()
    return {storage_id for storage_id, _ in named - known}


async def _named_collections(edit: EntityEdit, entity: HubObject) -> set[tuple[str, str]]:
    if isinstance(entity, Connector):
        return {each.place for each in stored_by(Space(id="any"), [entity]) if not each.is_own}
    if not isinstance(entity, Space):
        return set()
    storage = None if entity.storage is None else StorageChoice(entity.storage.id)
    silent = msgspec.structs.replace(entity, properties={}, storage=storage)
    named = {each.place for each in await stored_in(edit, entity)}
    return named - {each.place for each in await stored_in(edit, silent)}


async def _check_count(
    edit: EntityEdit, references: ReferenceIndex, made: HubObject, actor: Actor
) -> None:
    """Check the number of subscriptions per realm, and of spaces per owner as the token allows."""
    if isinstance(made, Subscription):
        known = [key async for key, _ in edit.list(f"{made.kind}/", Subscription)]
        if len(known) >= limits.SUBSCRIPTIONS_MAX:
            raise LimitExceeded(
                f"The realm has {limits.SUBSCRIPTIONS_MAX} subscriptions, the maximum; remove one "
                "first"
            )
    spaces_max = actor.limits.max_spaces
    if not isinstance(made, Space) or spaces_max is None:
        return
    count = len(await references.keys(edit, owned_by(made.owner)))
    if count >= spaces_max:
        raise Forbidden(
            f"{made.owner!r} has {count} spaces, but the token allows at most {spaces_max}; "
            "remove a space, or request a token that allows more",
            field="owner",
        )
