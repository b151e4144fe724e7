"""Tags and branches of a space.

They are removed with the space, so that a later space of the same id does not inherit them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from naksha.hub.config.objects import Space, StorageObject
from naksha.hub.config.references import stored_in
from naksha.hub.config.registry import ConfiguredRealm
from naksha.hub.config.space_collections import scope_of
from naksha.hub.pipeline.request_context import Actor
from naksha.model.errors import InUse, NakshaError, NotFound
from naksha.spi.storage import Storage
from naksha.versioning import Attribution, Branch, Tag, branches, delete_branch, delete_tag, tags
from naksha.versioning.records import all_records

_log: Final = logging.getLogger(__name__)


async def forget_names(realm: ConfiguredRealm, space: Space, actor: Actor) -> None:
    """Delete all tags and branches of a space."""
    signed = Attribution(actor.app_id, actor.author, f"remove the space {space.id}")
    scope = scope_of(realm.realm_id, space.id)
    for storage_id in {
        each.storage_id for each in await stored_in(await realm.registry.snapshot(), space)
    }:
        try:
            storage = await realm.storage(storage_id)
            for tag in await tags(storage, space=scope):
                with suppress(NotFound):  # another instance has deleted it
                    await delete_tag(storage, tag.name, signed, scope=tag.scope)
            await _forget_branches(storage, scope, signed)
        except NakshaError as error:
            _log.warning(
                "Tags and branches of the space %s were not deleted in the storage %s: %s",
                space.id,
                storage_id,
                error,
            )


async def spaces_with_tag(realm: ConfiguredRealm, names: Collection[str]) -> set[str]:
    """Return the ids of spaces with a version tag of one of these names.

    Storages that cannot be read are skipped.
    """
    found: set[str] = set()
    prefix = scope_of(realm.realm_id, "")
    for entity in await realm.registry.list(StorageObject):
        try:
            known = await all_records(await realm.storage(entity.id)) if entity.active else []
        except NakshaError as error:
            _log.warning("The tags of the storage %s could not be read: %s", entity.id, error)
            continue
        scopes = {
            one.record.scope.space or ""
            for one in known
            if isinstance(one.record, Tag) and one.record.name in names
        }
        found |= {scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)}
    return found


async def _forget_branches(storage: Storage, scope: str, signed: Attribution) -> None:
    """Delete branches, starting with those that no other branch is based on."""
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
            _log.warning(
                "Branches of the space %s were not deleted: other branches depend on them", scope
            )
            return
        left = blocked
