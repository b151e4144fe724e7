"""The configuration of one realm: made, changed and removed with one commit each, so that what
names something else cannot miss it, and what is still needed cannot go."""

from __future__ import annotations

import secrets
import string
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from naksha.catalog.catalog import OpenRealm
from naksha.catalog.entities import Edit, Snapshot
from naksha.hub.context import Actor
from naksha.hub.objects import (
    POINTER,
    Connector,
    HubObject,
    Space,
    StorageObject,
    key_of,
)
from naksha.hub.references import check_references, users_of
from naksha.model.errors import Conflict, InUse, NotFound

O = TypeVar("O", bound=HubObject)  # noqa: E741
ID_LENGTH: Final = 8
"""Of a space that comes without an id."""
_ALPHABET: Final = string.ascii_letters + string.digits
Check = Callable[[O | None], None]
"""Looks at an object as it is (None: not there) when it is changed; raises if it must not be."""


class Registry:
    """Storages, connectors, spaces and roles of a realm."""

    def __init__(self, realm: OpenRealm) -> None:
        self._realm = realm
        self._entities = realm.entities(POINTER)

    async def snapshot(self) -> Snapshot:
        """All of it as it was not long ago: at most a second, when another instance changed it."""
        return await self._entities.recent()

    async def find(self, kind: type[O], id: str) -> O | None:
        """An object, or None."""
        found = await (await self.snapshot()).get(key_of(kind, id), kind)
        return None if found is None else found.value

    async def get(self, kind: type[O], id: str) -> O:
        """An object, else NotFound."""
        found = await self.find(kind, id)
        if found is None:
            raise _not_found(kind, id)
        return found

    async def list(self, kind: type[O]) -> list[O]:
        """All of a kind in the order of their ids."""
        snapshot = await self.snapshot()
        return [found.value async for _, found in snapshot.list(f"{kind.kind}/", kind)]

    async def create(self, thing: O, actor: Actor) -> O:
        """Keep a new one; Conflict if there is one of that id."""

        async def change(edit: Edit) -> O:
            kind = type(thing)
            if await edit.get(thing.key, kind) is not None:
                raise Conflict(f"There is a {kind.kind} {thing.id!r} already", field="id")
            now = self._now_ms()
            made = msgspec.structs.replace(
                thing, owner=thing.owner or actor.app_id, created_at=now, updated_at=now
            )
            await check_references(edit, made)
            edit.put(thing.key, made)
            return made

        return await self._commit(change, f"create {thing.kind} {thing.id}", actor)

    async def change(self, kind: type[O], id: str, changed: Callable[[O], O], actor: Actor) -> O:
        """Replace an object by what a function makes of it, else NotFound."""

        async def change(edit: Edit) -> O:
            found = await edit.get(key_of(kind, id), kind)
            if found is None:
                raise _not_found(kind, id)
            old = found.value
            made = msgspec.structs.replace(
                changed(old), owner=old.owner, created_at=old.created_at, updated_at=self._now_ms()
            )
            await check_references(edit, made)
            edit.put(made.key, made)
            return made

        return await self._commit(change, f"change {kind.kind} {id}", actor)

    async def remove(self, kind: type[O], id: str, actor: Actor) -> O:
        """Remove an object, else NotFound; InUse when another one needs it."""

        async def change(edit: Edit) -> O:
            found = await edit.get(key_of(kind, id), kind)
            if found is None:
                raise _not_found(kind, id)
            users = await users_of(edit, found.value)
            if users:
                raise InUse(
                    f"The {kind.kind} {id!r} is still used by {', '.join(users)}", field="id"
                )
            edit.remove(found.value.key)
            return found.value

        return await self._commit(change, f"remove {kind.kind} {id}", actor)

    async def _commit(
        self, change: Callable[[Edit], Awaitable[O]], message: str, actor: Actor
    ) -> O:
        return await self._entities.commit(
            change, message=message, author=actor.author or "", app_id=actor.app_id
        )

    def _now_ms(self) -> int:
        return self._realm.persistence.clock.now_ms()


def new_space_id() -> str:
    """An id for a space that comes without one."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))


def _not_found(kind: type[Any], id: str) -> NotFound:
    return NotFound(f"There is no {kind.kind} {id!r}", field=kind.kind)


__all__ = ["Connector", "Registry", "Space", "StorageObject", "new_space_id"]
