"""Space and connector changes, including the effects on collections in storages.

A catalog commit decides; the storage is updated afterwards. Concurrent changes are detected after
the fact: if a dropped collection is in use again, either the operation that dropped it or the one
that uses it restores it, whichever checks last.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.config.objects import Connector, HubObject, Space, StorageObject, key_of
from naksha.hub.config.references import stored_by, stored_in
from naksha.hub.config.registry import ConfiguredRealm, ObjectChange, RemovedSpace
from naksha.hub.config.space_collections import SpaceCollection, derived_collection_id
from naksha.hub.config.space_names import forget_names
from naksha.hub.pipeline.request_context import Actor
from naksha.model import limits
from naksha.model.collection import CollectionChange, CollectionInfo
from naksha.model.errors import CollectionNotFound, InUse, NakshaError, Unavailable
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, WriteSession

H = TypeVar("H", bound=HubObject)
_log: Final = logging.getLogger(__name__)
_SETTINGS: Final = (
    *("history_enabled", "max_age", "id_prefix", "author", "optimal_partitioning", "partitions"),
)
"""Settings of an existing collection that can be changed."""


async def create_space(
    realm: ConfiguredRealm, space: Space, actor: Actor, *, dry_run: bool = False
) -> Space:
    """Create a space and its own collections. A dry run only checks."""
    # Checked before the storage is accessed, so that Forbidden reveals nothing about it.
    owned = msgspec.structs.replace(space, owner=space.owner or actor.owner)
    actor.rights.check(Right.MANAGE_SPACES, owned.resource())
    named = msgspec.structs.replace(space, collection_id=await _free_name(realm, space, actor))
    made = await realm.registry.create(named, actor, dry_run=dry_run)
    if not dry_run:
        await _ensure(realm, await _stored(realm, made), actor)
    return made


async def change_space(
    realm: ConfiguredRealm,
    id: str,
    changed: Callable[[Space], Space],
    actor: Actor,
    *,
    if_match: Collection[str] | None = None,
    dry_run: bool = False,
) -> Space:
    """Change a space and the settings of its collections. A dry run only checks.

    `min_version` is never lowered.
    """

    def lasting(old: Space) -> Space:
        return changed(old).without_versions_before(old.min_version)

    old, new = await realm.registry.exchange(
        Space, id, lasting, actor, if_match=if_match, dry_run=dry_run
    )
    if new is not old and not dry_run:
        before, after = await _stored(realm, old), await _stored(realm, new)
        await _apply_or_restore(realm, ObjectChange(old, new), before, after, actor)
    return new


async def change_connector(
    realm: ConfiguredRealm,
    id: str,
    changed: Callable[[Connector], Connector],
    actor: Actor,
    *,
    if_match: Collection[str] | None = None,
) -> Connector:
    """Change a connector, and the settings of the collections that spaces use through it."""
    old, new = await realm.registry.exchange(Connector, id, changed, actor, if_match=if_match)
    if new is not old:
        registry = realm.registry
        spaces = await registry.references.spaces_served_by(await registry.snapshot(), id)
        before = [each for space in spaces for each in stored_by(space, [old])]
        after = [each for space in spaces for each in stored_by(space, [new])]
        await _apply_or_restore(realm, ObjectChange(old, new), before, after, actor)
    return new


async def remove_space(
    realm: ConfiguredRealm,
    id: str,
    actor: Actor,
    *,
    if_match: Collection[str] | None = None,
    keeps_collection: bool = False,
    dry_run: bool = False,
) -> Space:
    """Remove a space with its tags and branches. A dry run only checks.

    A collection that no other space is stored in is dropped; it can be restored until the grace
    period (`limits.SPACE_GRACE_SECONDS`) ends.
    """
    space = await realm.registry.get(Space, id)
    if not keeps_collection:
        await _check_reachable(realm, await _stored(realm, space))
    removed = await realm.registry.remove_space(id, actor, if_match=if_match, dry_run=dry_run)
    if dry_run:
        return removed.space
    await forget_names(realm, removed.space, actor)
    if not keeps_collection:
        await _drop_unused(realm, removed, actor)
    return removed.space


# ---- Names ---------------------------------------------------------------------------------------


async def _free_name(realm: ConfiguredRealm, space: Space, actor: Actor) -> str:
    """Choose the id of the space's own collection.

    A collection may already exist under the derived id, for example from a removed space. It is
    reused only if the actor may use the storage directly and it is not scheduled for deletion;
    otherwise the space gets a salted id.
    """
    name = derived_collection_id(space.id)
    snapshot = await realm.registry.snapshot()
    for each in await stored_in(snapshot, space):
        if not each.is_own:
            continue
        entity = await snapshot.get(key_of(StorageObject, each.storage_id), StorageObject)
        if entity is None:
            continue  # the commit reports the missing storage
        found = await _found(await realm.storage(each.storage_id), name)
        may_use = actor.rights.allows(Right.USE_STORAGES, entity.value.resource())
        if found is not None and (found.delete_at or not may_use):
            return derived_collection_id(space.id, salt=secrets.token_hex(8))
    return name


async def _found(storage: Storage, collection: str) -> CollectionInfo | None:
    try:
        return await storage.collection(collection, dropped=True)
    except CollectionNotFound:
        return None


# ---- What follows in the storage -----------------------------------------------------------------


async def _stored(realm: ConfiguredRealm, space: Space) -> list[SpaceCollection]:
    return await stored_in(await realm.registry.snapshot(), space)


async def _ensure(realm: ConfiguredRealm, places: Iterable[SpaceCollection], actor: Actor) -> None:
    """Create or restore collections. If that fails now, the first write does it."""
    for each in places:
        if not each.auto_create:
            continue
        try:
            storage = await realm.storage(each.storage_id)
            await storage.run(_creation_of(each.collection), actor.app_id, actor.author)
        except NakshaError as error:
            _log.warning(
                "The collection %s in the storage %s was not created: %s; the first write retries",
                *each.place[::-1],
                error,
            )


def _creation_of(info: CollectionInfo) -> Callable[[WriteSession], Any]:
    async def work(session: WriteSession) -> None:
        try:
            known = await session.collection(info.id, dropped=True)
        except CollectionNotFound:
            await session.create_collection(info)
            return
        if known.dropped_at:
            await session.restore_collection(info.id)

    return work


async def _change_settings(
    realm: ConfiguredRealm, each: SpaceCollection, earlier: CollectionInfo, actor: Actor
) -> None:
    different: dict[str, Any] = {
        name: getattr(each.collection, name)
        for name in _SETTINGS
        if getattr(each.collection, name) != getattr(earlier, name)
    }
    if different.get("partitions") == 1:
        del different["partitions"]  # a grown collection never shrinks to one partition
    if not different:
        return
    change = CollectionChange(**different)

    async def work(session: WriteSession) -> None:
        try:
            await session.change_collection(each.collection.id, change)
        except CollectionNotFound:
            await session.create_collection(each.collection)

    storage = await realm.storage(each.storage_id)
    await storage.run(work, actor.app_id, actor.author)


async def _apply_or_restore(
    realm: ConfiguredRealm,
    change: ObjectChange[H],
    before: list[SpaceCollection],
    after: list[SpaceCollection],
    actor: Actor,
) -> None:
    """Apply a configuration change to the storages.

    If a storage fails, restore the object's old state, unless it has been changed again.
    """
    known = {each.place: each.collection for each in before}
    try:
        for each in after:
            earlier = known.get(each.place)
            if earlier is None:
                await _ensure(realm, [each], actor)
            else:
                await _change_settings(realm, each, earlier, actor)
    except NakshaError:
        old, new = change
        try:
            await realm.registry.restore(old, new, actor)
        except NakshaError as error:
            _log.warning(
                "The change of %s failed and could not be reverted, so its configuration may "
                "differ from its collections; repeat the change: %s",
                new.key,
                error,
            )
        raise


async def _check_reachable(realm: ConfiguredRealm, places: Iterable[SpaceCollection]) -> None:
    """Raise Unavailable, before anything is changed, if a storage cannot be opened."""
    for storage_id in {each.storage_id for each in places}:
        try:
            await realm.storage(storage_id)
        except NakshaError as error:
            raise Unavailable(
                f"The storage {storage_id!r} cannot be reached to drop the space's collection: "
                f"{error.message}; retry later, or remove only the space with keepCollection=true"
            ) from error


async def _drop_unused(realm: ConfiguredRealm, removed: RemovedSpace, actor: Actor) -> None:
    delete_at = SystemClock().now_ms() + limits.SPACE_GRACE_SECONDS * 1000
    for each in removed.unused:
        if not each.auto_delete:
            continue
        try:
            storage = await realm.storage(each.storage_id)
            await _drop(storage, each.collection.id, delete_at, actor)
            now = await realm.registry.snapshot_now()
            if await realm.registry.references.keys(now, each.place):
                await storage.run(_creation_of(each.collection), actor.app_id, actor.author)
        except NakshaError as error:
            _log.warning(
                "The collection %s in the storage %s was not dropped: %s", *each.place[::-1], error
            )


async def _drop(storage: Storage, collection: str, delete_at: int, actor: Actor) -> None:
    async def work(session: WriteSession) -> None:
        with suppress(CollectionNotFound):
            await session.drop_collection(collection, delete_at)

    try:
        await storage.run(work, actor.app_id, actor.author)
    except InUse as error:
        _log.warning("The collection %s is still in use and was not dropped: %s", collection, error)
