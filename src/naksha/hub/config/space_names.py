"""Tags and branches are names inside a space: they go with it, lest they come back with another
space of that id."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from naksha.hub.config.objects import Space, StorageObject
from naksha.hub.config.references import stored_in
from naksha.hub.config.registry import Realm
from naksha.hub.config.space_collections import scope_of
from naksha.hub.pipeline.request_context import Actor
from naksha.model.errors import InUse, NakshaError, NotFound
from naksha.spi.storage import Storage
from naksha.versioning import Branch, Signed, Tag, branches, delete_branch, delete_tag, tags
from naksha.versioning.records import everywhere

_log: Final = logging.getLogger(__name__)


async def forget_names(realm: Realm, space: Space, actor: Actor) -> None:
    """Delete all tags and branches of a space."""
    signed = Signed(actor.app_id, actor.author, f"the space {space.id} is removed")
    scope = scope_of(realm.realm_id, space.id)
    for storage_id in {
        each.storage_id for each in await stored_in(await realm.registry.snapshot(), space)
    }:
        try:
            storage = await realm.storage(storage_id)
            for tag in await tags(storage, space=scope):
                with suppress(NotFound):  # somebody else was faster
                    await delete_tag(storage, tag.name, signed, scope=tag.scope)
            await _forget_branches(storage, scope, signed)
        except NakshaError as error:
            _log.warning("Names of the space %s are left in %s: %s", space.id, storage_id, error)


async def spaces_with_tag(realm: Realm, names: Collection[str]) -> set[str]:
    """The ids of spaces with a version tag of one of these names. A storage that does not answer is
    left out."""
    found: set[str] = set()
    prefix = scope_of(realm.realm_id, "")
    for thing in await realm.registry.list(StorageObject):
        try:
            known = await everywhere(await realm.storage(thing.id)) if thing.active else []
        except NakshaError as error:
            _log.warning("The tags of the storage %s are not known: %s", thing.id, error)
            continue
        scopes = {
            one.record.scope.space or ""
            for one in known
            if isinstance(one.record, Tag) and one.record.name in names
        }
        found |= {scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)}
    return found


async def _forget_branches(storage: Storage, scope: str, signed: Signed) -> None:
    """Those first on which no other one stands."""
    left = await branches(storage, space=scope)
    while left:
        blocked: list[Branch] = []
        for branch in left:
            try:
                await delete_branch(storage, branch.name, signed, scope=branch.scope)
            except InUse:
                blocked.append(branch)
            except NotFound:
                continue
        if len(blocked) == len(left):
            _log.warning("Branches of the space %s are needed by others", scope)
            return
        left = blocked
