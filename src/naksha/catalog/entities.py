"""Entities behind one pointer: each has a key, and one commit can change several.

    entities = Entities(persistence, "config")

    async def change(edit: Edit) -> None:
        edit.put("space/roads", Space(title="Roads"))
        edit.remove("space/streets")

    await entities.commit(change, message="streets are roads now")
    space = await (await entities.now()).get("space/roads", Space)

The commit holds an index from keys to objects and the list of changes, so the log of the pointer is
the log of the entities.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from naksha.catalog.commits import Commit, CommitAttempt, head_of
from naksha.catalog.group_commit import Committer
from naksha.catalog.index import EMPTY_CONTAINER, IndexContainer, SortedIndex
from naksha.catalog.objects import Object, ObjectRef, object_type, type_id_of
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.model.errors import Expired, InvalidArgument

V = TypeVar("V")
R = TypeVar("R")
Action = Literal["create", "update", "delete"]
LIST_PAGE: Final = 100
"""Number of entities of a list that are fetched together."""


class ObjectReader(Protocol):
    """Source of objects."""

    async def fetch_many(
        self, refs: Sequence[ObjectRef | None], kind: type[V]
    ) -> list[Object[V] | None]: ...


class EntityChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one entity by a commit."""

    action: Action
    key: str
    ref: bytes = b""
    """The new object; empty if it was deleted."""
    old: bytes = b""
    """The previous object; empty if it was created."""


@object_type("entities")
class EntitiesCommit(Commit, frozen=True, kw_only=True, omit_defaults=True):
    """The state of all entities of a pointer."""

    index: IndexContainer = EMPTY_CONTAINER
    changes: tuple[EntityChange, ...] = ()
    message: str = ""
    author: str = ""
    app_id: str = ""


_COMMIT: Final = type_id_of(EntitiesCommit)


class EntitySnapshot:
    """All entities as of one commit."""

    def __init__(
        self, reader: ObjectReader, commit: Object[EntitiesCommit] | None, index: SortedIndex
    ) -> None:
        self.commit = commit
        self._reader = reader
        self._index = index

    @property
    def changed_keys(self) -> Collection[str]:
        """The keys that an edit has changed since the commit; always empty for a snapshot."""
        return ()

    async def commits(self) -> AsyncIterator[Object[EntitiesCommit]]:
        """Iterate over the commits up to this one, newest first, as far as they are kept."""
        found, batch = [self.commit], 1
        while found:
            tail: Sequence[int] = ()
            for commit in found:
                if commit is None:
                    return
                yield commit
                tail = commit.value.tail
            refs = [ObjectRef(_COMMIT, id) for id in tail[:batch]]
            found, batch = await self._reader.fetch_many(refs, EntitiesCommit), 2 * batch

    async def ref(self, key: str) -> ObjectRef | None:
        """Return the reference to the object of an entity, or None."""
        return ObjectRef.from_bytes(await self._index.get(_bytes(key)) or b"")

    async def get(self, key: str, kind: type[V]) -> Object[V] | None:
        """Return an entity, or None."""
        return (await self.get_many([key], kind))[0]

    async def get_many(self, keys: Sequence[str], kind: type[V]) -> list[Object[V] | None]:
        """Return entities in the order of their keys."""
        found = await self._index.get_many([_bytes(key) for key in keys])
        refs = [ObjectRef.from_bytes(found.get(_bytes(key), b"")) for key in keys]
        return await self._fetched(keys, refs, kind)

    async def _entities_of(
        self, page: Sequence[tuple[str, ObjectRef | None]], kind: type[V]
    ) -> AsyncIterator[tuple[str, Object[V]]]:
        keys = [key for key, _ in page]
        things = await self._fetched(keys, [ref for _, ref in page], kind)
        for key, thing in zip(keys, things, strict=True):
            if thing is not None:
                yield key, thing

    async def _fetched(
        self, keys: Sequence[str], refs: Sequence[ObjectRef | None], kind: type[V]
    ) -> list[Object[V] | None]:
        things = await self._reader.fetch_many(refs, kind)
        for key, ref, thing in zip(keys, refs, things, strict=True):
            if ref is not None and thing is None:
                seq = self.commit.value.seq if self.commit is not None else 0
                raise Expired(
                    f"The entity {key!r} of commit {seq} is no longer kept; read the current state",
                    field="key",
                )
        return things

    async def list(
        self, prefix: str, kind: type[V], after: str | None = None
    ) -> AsyncIterator[tuple[str, Object[V]]]:
        """Iterate over entities whose keys begin with `prefix`, after a key, in byte order."""
        behind = _bytes(after) if after is not None else None
        page: list[tuple[str, ObjectRef | None]] = []
        async for key, ref in self._index.prefix(_bytes(prefix), after=behind):
            page.append((key.decode(), ObjectRef.from_bytes(ref)))
            if len(page) == LIST_PAGE:
                async for found in self._entities_of(page, kind):
                    yield found
                page = []
        async for found in self._entities_of(page, kind):
            yield found


class EntityEdit(EntitySnapshot):
    """The entities as a change finds them, with its modifications; reads see its own writes."""

    def __init__(self, attempt: CommitAttempt[EntitiesCommit], index: SortedIndex) -> None:
        super().__init__(attempt, attempt.head, index.copy())
        self._attempt = attempt
        self._before = index
        self._changed: dict[str, bytes] = {}

    def put(self, key: str, value: V) -> Object[V]:
        """Create or replace an entity."""
        thing = self._attempt.write_or_replace(key, value)
        ref = self._changed[key] = thing.ref.to_bytes()
        self._index.change(_bytes(key), ref)
        return thing

    def remove(self, key: str) -> None:
        """Remove an entity."""
        self._attempt.take_back(key)
        self._index.change(_bytes(key), None)
        self._changed[key] = b""

    @property
    def changed_keys(self) -> Collection[str]:
        return self._changed.keys()

    async def propose(self, message: str, author: str, app_id: str) -> SortedIndex:
        """Propose a commit of all changes, if there are any, and return the resulting index."""
        changes = await self._changes()
        if not changes:
            return self._before
        container, stripes = await self._index.save(self._attempt.persistence.new_id)
        for stripe in stripes:
            self._attempt.write_object(stripe)
        self._attempt.commit(
            EntitiesCommit(
                index=container, changes=changes, message=message, author=author, app_id=app_id
            )
        )
        return self._index

    async def _changes(self) -> tuple[EntityChange, ...]:
        old = await self._before.get_many([_bytes(key) for key in self._changed])
        changes = []
        for key, now in self._changed.items():
            before = old.get(_bytes(key), b"")
            if before != now:
                action: Action = "delete" if not now else "update" if before else "create"
                changes.append(EntityChange(action, key, now, before))
        return tuple(changes)


class Entities:
    """All entities of one pointer, which must exist."""

    def __init__(self, persistence: Persistence, pointer: str) -> None:
        self._persistence = persistence
        self._pointer = pointer
        self._committer = Committer(persistence, pointer, EntitiesCommit)
        self._index: SortedIndex | None = None
        self._last: tuple[Pointer, EntitySnapshot] | None = None
        self.log = self._committer.log

    async def now(self) -> EntitySnapshot:
        """Return the entities as they are in the database."""
        return await self._snapshot(await self._persistence.pointer_now(self._pointer))

    async def recent(self) -> EntitySnapshot:
        """Return the entities as last read or written here, or reported by a peer."""
        return await self._snapshot(await self._persistence.pointer(self._pointer))

    async def commit(
        self,
        change: Callable[[EntityEdit], Awaitable[R]],
        *,
        message: str = "",
        author: str = "",
        app_id: str = "",
    ) -> R:
        """Change entities with one commit and return the result of the change."""

        async def attempt_of(attempt: CommitAttempt[EntitiesCommit]) -> R:
            edit = EntityEdit(attempt, self._index_of(attempt.head))
            result = await change(edit)
            self._index = await edit.propose(message, author, app_id)
            return result

        return await self._committer.commit(attempt_of)

    async def _snapshot(self, pointer: Pointer) -> EntitySnapshot:
        """Return the snapshot of a pointer, the same one as long as the pointer does not move."""
        if self._last is not None and self._last[0] is pointer:
            return self._last[1]
        commit = await head_of(self._persistence, pointer, EntitiesCommit)
        snapshot = EntitySnapshot(self._persistence, commit, self._index_of(commit))
        self._last = (pointer, snapshot)
        return snapshot

    def _index_of(self, commit: Object[EntitiesCommit] | None) -> SortedIndex:
        """Return the index of a commit.

        The last used index is reused if it belongs to this commit, because its loaded pages serve
        many reads and changes. Only copies of it are modified.
        """
        container = commit.value.index if commit is not None else EMPTY_CONTAINER
        if self._index is None or self._index.container is not container:
            self._index = SortedIndex(self._persistence.fetch_values, container)
        return self._index


def _bytes(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"The key {key[:80]!r} cannot be encoded as UTF-8; use a key without surrogates",
            field="key",
        ) from None
