"""Configuration registry of a realm: creates, changes and removes objects.

Each operation is one commit, so a reference to a missing object cannot be stored, and an object
that is still referenced cannot be removed.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from naksha.catalog.catalog import OpenRealm
from naksha.catalog.entities import EntityEdit, EntitySnapshot
from naksha.hub.config.change_rights import check_removed, check_replaced, check_written
from naksha.hub.config.handler_check import construct_handlers
from naksha.hub.config.objects import POINTER, HubObject, Identity, Space, StorageObject, key_of
from naksha.hub.config.reference_index import ReferenceIndex
from naksha.hub.config.references import check_references
from naksha.hub.config.space_collections import SpaceCollection
from naksha.hub.pipeline.pipeline import HubServices
from naksha.hub.pipeline.request_context import Actor
from naksha.hub.storages.identities import check_unique, registered_in, with_identity
from naksha.model.errors import Conflict, InUse, NotFound, PreconditionFailed

H = TypeVar("H", bound=HubObject)
R = TypeVar("R")
_ID_LENGTH: Final = 8
"""Length of the generated id of a space that is created without one."""
_ALPHABET: Final = string.ascii_letters + string.digits


class ObjectChange(NamedTuple, Generic[H]):
    """An object before and after a change."""

    old: H
    new: H


class RemovedSpace(NamedTuple):
    """A removed space, and the collections that no other space is stored in."""

    space: Space
    unused: list[SpaceCollection]


class Registry:
    """Storages, connectors, spaces and roles of a realm."""

    def __init__(self, realm: OpenRealm, hub: HubServices) -> None:
        self._realm = realm
        self._hub = hub
        self._entities = realm.entities(POINTER)
        self.references = ReferenceIndex()

    async def snapshot(self) -> EntitySnapshot:
        """Return a recent snapshot: changes by other instances appear within a second."""
        return await self._entities.recent()

    async def snapshot_now(self) -> EntitySnapshot:
        """Return the current snapshot from the catalog."""
        return await self._entities.now()

    async def find(self, kind: type[H], id: str) -> H | None:
        """Return an object, or None."""
        found = await (await self.snapshot()).get(key_of(kind, id), kind)
        return None if found is None else found.value

    async def get(self, kind: type[H], id: str) -> H:
        """Return an object, else raise NotFound."""
        found = await self.find(kind, id)
        if found is None:
            raise _not_found(kind, id)
        return found

    async def list(self, kind: type[H]) -> list[H]:
        """Return all objects of a kind, ordered by id."""
        snapshot = await self.snapshot()
        return [found.value async for _, found in snapshot.list(f"{kind.kind}/", kind)]

    async def create(self, entity: H, actor: Actor, *, dry_run: bool = False) -> H:
        """Store a new object. A dry run checks everything and stores nothing.

        Raises:
            Conflict: An object of that kind and id exists.
        """

        async def change(edit: EntityEdit) -> H:
            now = self._now_ms()
            made = msgspec.structs.replace(
                entity,
                owner=entity.owner or actor.owner,
                app_id=actor.app_id,
                author=actor.author,
                created_at=now,
                updated_at=now,
            )
            # First, so that Forbidden does not reveal which ids exist.
            await check_written(edit, self.references, made, actor)
            if await edit.get(entity.key, type(entity)) is not None:
                raise Conflict(
                    f"The {entity.kind} {entity.id!r} already exists; choose another id, or change "
                    f"the existing {entity.kind}",
                    field="id",
                )
            await check_references(edit, made)
            await self._check_identity(edit, made)
            await construct_handlers(edit, self.references, made, self._hub)
            edit.put(entity.key, made)
            return made

        return await self._commit(change, f"create {entity.kind} {entity.id}", actor, dry_run)

    async def change(
        self,
        kind: type[H],
        id: str,
        changed: Callable[[H], H],
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
    ) -> H:
        """Replace an object with the result of `changed(old)`, else raise NotFound."""
        return (await self.exchange(kind, id, changed, actor, if_match=if_match)).new

    async def exchange(
        self,
        kind: type[H],
        id: str,
        changed: Callable[[H], H],
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
        dry_run: bool = False,
    ) -> ObjectChange[H]:
        """Replace an object as `change` does, and return its old and new state.

        If `if_match` is given, the object's ETag must be one of it, else PreconditionFailed.
        """

        async def change(edit: EntityEdit) -> ObjectChange[H]:
            old = await _found(edit, kind, id, if_match)
            now = changed(old)
            kept: dict[str, Any] = {name: getattr(old, name) for name in kind.kept}
            made = msgspec.structs.replace(
                now, owner=now.owner or old.owner, updated_at=old.updated_at, **kept
            )
            check_replaced(old, made, actor)
            if made == old:
                return ObjectChange(old, old)
            made = msgspec.structs.replace(made, updated_at=max(self._now_ms(), old.updated_at + 1))
            await check_written(edit, self.references, made, actor, old)
            await check_references(edit, made)
            await self._check_identity(edit, made, old)
            await construct_handlers(edit, self.references, made, self._hub)
            edit.put(made.key, made)
            return ObjectChange(old, made)

        return await self._commit(change, f"change {kind.kind} {id}", actor, dry_run)

    async def restore(self, old: H, new: H, actor: Actor) -> None:
        """Restore an object's old state, unless it has been changed again."""

        async def change(edit: EntityEdit) -> None:
            now = await _found(edit, type(new), new.id, None)
            if now == new:
                edit.put(old.key, old)

        await self._commit(change, f"take back {new.kind} {new.id}", actor)

    async def note(self, space_id: str, changed: Callable[[Space], Space], actor: Actor) -> Space:
        """Update members that the hub itself maintains; the actor needs no right to manage it."""

        async def change(edit: EntityEdit) -> Space:
            made = changed(await _found(edit, Space, space_id, None))
            edit.put(made.key, made)
            return made

        return await self._commit(change, f"note of space {space_id}", actor)

    async def note_identity(self, entity: StorageObject, identity: Identity) -> None:
        """Record the identity of an opened storage, unless its configuration has changed."""

        async def change(edit: EntityEdit) -> None:
            found = await edit.get(entity.key, StorageObject)
            if found is not None and found.value.properties == entity.properties:
                edit.put(entity.key, with_identity(found.value, identity))

        await self._entities.commit(change, message=f"note {entity.key}", app_id="naksha")

    async def _check_identity(
        self, edit: EntityEdit, made: HubObject, old: HubObject | None = None
    ) -> None:
        """Check that no other storage of the realm has the same id or number."""
        if not isinstance(made, StorageObject) or made.identity is None:
            return
        if not isinstance(old, StorageObject) or old.identity != made.identity:
            realm = self._realm.realm.id
            known = await registered_in(realm, edit)
            check_unique(realm, made, [each for each in known if each.name != made.id])

    async def remove(
        self,
        kind: type[H],
        id: str,
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
        also: Callable[[EntityEdit, H], Awaitable[None]] | None = None,
    ) -> H:
        """Remove an object and return it; `also` runs in the same commit.

        Raises:
            NotFound: The object does not exist.
            InUse: Another object references it.
        """

        async def change(edit: EntityEdit) -> H:
            removed = await self._removed(edit, kind, id, actor, if_match)
            if also is not None:
                await also(edit, removed)
            return removed

        return await self._commit(change, f"remove {kind.kind} {id}", actor)

    async def forget(self, key: str) -> None:
        """Remove an entity that the hub itself maintains, if it exists."""

        async def change(edit: EntityEdit) -> None:
            if await edit.ref(key) is not None:
                edit.remove(key)

        await self._entities.commit(change, message=f"forget {key}", app_id="naksha")

    async def remove_space(
        self,
        id: str,
        actor: Actor,
        *,
        if_match: Collection[str] | None = None,
        dry_run: bool = False,
    ) -> RemovedSpace:
        """Remove a space; return it with the collections that no space is stored in any more."""

        async def change(edit: EntityEdit) -> RemovedSpace:
            space = await self._removed(edit, Space, id, actor, if_match)
            return RemovedSpace(space, await self.references.unused_without(edit, space))

        return await self._commit(change, f"remove space {id}", actor, dry_run)

    async def _removed(
        self,
        edit: EntityEdit,
        kind: type[H],
        id: str,
        actor: Actor,
        if_match: Collection[str] | None,
    ) -> H:
        entity = await _found(edit, kind, id, if_match)
        check_removed(entity, actor)
        users = await self.references.users_of(edit, entity)
        if users:
            raise InUse(
                f"The {kind.kind} {id!r} is still used by {', '.join(users)}; remove the users "
                "or their references to it first",
                field="id",
            )
        edit.remove(entity.key)
        return entity

    async def _commit(
        self,
        change: Callable[[EntityEdit], Awaitable[R]],
        message: str,
        actor: Actor,
        dry_run: bool = False,
    ) -> R:
        result: list[R] = []

        async def simulated(edit: EntityEdit) -> R:
            result.append(await change(edit))
            raise _DryRun

        try:
            return await self._entities.commit(
                simulated if dry_run else change,
                message=message,
                author=actor.author or "",
                app_id=actor.app_id,
            )
        except _DryRun:
            return result[-1]

    def _now_ms(self) -> int:
        return self._realm.persistence.clock.now_ms()


class _DryRun(Exception):
    """Aborts the commit of a dry run."""


class ConfiguredRealm(HubServices, Protocol):
    """A realm with its configuration registry."""

    registry: Registry


def new_space_id() -> str:
    """Generate an id for a space that is created without one."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


async def _found(edit: EntityEdit, kind: type[H], id: str, if_match: Collection[str] | None) -> H:
    found = await edit.get(key_of(kind, id), kind)
    if found is None:
        raise _not_found(kind, id)
    etag = found.value.etag()
    if if_match is not None and not {"*", etag} & set(if_match):
        raise PreconditionFailed(
            f"The {kind.kind} {id!r} does not match If-Match: its ETag is {etag}; read it again",
            field="If-Match",
        )
    return found.value


def _not_found(kind: type[Any], id: str) -> NotFound:
    return NotFound(
        f"The {kind.kind} {id!r} does not exist; correct its id, or create it", field=kind.kind
    )
