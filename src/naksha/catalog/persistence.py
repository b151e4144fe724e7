"""Typed, checked and cached access to the objects and named pointers of one realm.

Plain writes are eventually consistent: they may be large, and precede the pointers that lead to
them. Conditional writes and pointers are strongly consistent and must fit one row.

A realm has an epoch, which grows whenever the realm stops serving. Pointers carry it, so a client
that opened the realm before cannot move one. New pointers and conditional objects cannot carry it;
they are checked against the realm's own record after the write, and undone if it has changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from naksha.catalog.cache import CatalogCache
from naksha.catalog.cluster.clock import MonotonicClock
from naksha.catalog.cluster.pointer_moves import PointerMoves
from naksha.catalog.fencing import EpochFence, Step, Unfenced, check_written, write_fenced
from naksha.catalog.object_rows import (
    assembled,
    conditional_row,
    hinted_keys,
    missing_keys,
    rows_of,
)
from naksha.catalog.objects import Object, ObjectRef
from naksha.catalog.pointers import Pointer, check_pointer_name
from naksha.model import limits
from naksha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    OutcomeUnknown,
    PointerExists,
    PointerNotFound,
    RealmChanged,
    Unavailable,
)
from naksha.spi.catalog import CatalogBackend, ObjectRow

V = TypeVar("V")
_BUCKET: Final = 16
"""Number of objects of a stream that are fetched together."""


class Ids(Protocol):
    """Generator of new ids."""

    def next_id(self) -> int: ...


class Persistence:
    """Objects and pointers of one realm."""

    def __init__(
        self,
        backend: CatalogBackend,
        realm: str,
        ids: Ids,
        clock: MonotonicClock,
        cache: CatalogCache,
        moves: PointerMoves,
        fence: EpochFence | None = None,
    ) -> None:
        self.backend = backend
        self.realm = realm
        self.clock = clock
        self.moves = moves
        self._ids = ids
        self._cache = cache
        self._fence: EpochFence = fence or Unfenced()
        self._pending: dict[int, Object[Any]] = {}

    def new_id(self) -> int:
        """Return a unique id."""
        return self._ids.next_id()

    # ---- Objects -----------------------------------------------------------------------------

    async def fetch(self, ref: ObjectRef, kind: type[V]) -> Object[V] | None:
        """Return the object, or None."""
        return (await self.fetch_many([ref], kind))[0]

    async def fetch_many(
        self, refs: Sequence[ObjectRef | None], kind: type[V]
    ) -> list[Object[V] | None]:
        """Return objects in the order of their references; None for None and for absent objects."""
        if len(refs) > limits.CATALOG_BATCH_MAX:
            raise LimitExceeded(
                f"At most {limits.CATALOG_BATCH_MAX:,} objects can be fetched at once, not"
                f" {len(refs):,}"
            )
        found = {ref.id: self._known(ref.id) for ref in refs if ref}
        wanted = {ref.id: ref for ref in refs if ref and found[ref.id] is None}
        found |= await self._fetch_now(wanted.values())
        objects = [found[ref.id] if ref else None for ref in refs]
        return [of_kind(thing, kind) if thing is not None else None for thing in objects]

    def _known(self, id: int) -> Object[Any] | None:
        return self._pending.get(id) or self._cache.get(self.realm, id)

    def hold(self, things: Iterable[Object[Any]]) -> None:
        """Make objects readable that are about to be written."""
        self._pending.update((thing.id, thing) for thing in things)

    def release(self, things: Iterable[Object[Any]]) -> None:
        """Forget held objects that were written or will not be."""
        for thing in things:
            self._pending.pop(thing.id, None)

    async def _fetch_now(self, refs: Collection[ObjectRef]) -> dict[int, Object[Any] | None]:
        """Fetch from the backend: the expected rows first, then parts that the references omit."""
        if not refs:
            return {}
        keys = [key for ref in refs for key in hinted_keys(ref)]
        rows = await self.backend.fetch(self.realm, keys)
        more = [key for ref in refs for key in missing_keys(ref.id, rows)]
        if more:
            rows |= await self.backend.fetch(self.realm, more)
        found = {ref.id: assembled(ref, rows) for ref in refs}
        for thing in found.values():
            if thing is not None:
                size = sum(len(rows[key].value) for key in hinted_keys(thing.ref))
                self._cache.put(self.realm, thing, size)
        return found

    async def fetch_values(self, refs: Sequence[ObjectRef]) -> list[Any]:
        """Return the values of objects of any type."""
        objects = await self.fetch_many(refs, object)
        return [found.value if found is not None else None for found in objects]

    async def stream(self, refs: Iterable[ObjectRef], kind: type[V]) -> AsyncIterator[Object[V]]:
        """Iterate over the existing objects, fetched in batches on demand."""
        bucket: list[ObjectRef] = []
        for ref in refs:
            bucket.append(ref)
            if len(bucket) == _BUCKET:
                for thing in await self.fetch_many(bucket, kind):
                    if thing is not None:
                        yield thing
                bucket = []
        for thing in await self.fetch_many(bucket, kind):
            if thing is not None:
                yield thing

    async def write(self, objects: Sequence[Object[V]]) -> list[Object[V]]:
        """Write objects that nothing refers to yet, replacing existing rows with their ids."""
        written = self.prepared(objects)
        await self.backend.write(self.realm, [row for _, rows in written for row in rows])
        self.remember(written)
        return [thing for thing, _ in written]

    def prepared(self, objects: Sequence[Object[V]]) -> list[tuple[Object[V], list[ObjectRow]]]:
        """Return objects as they will be stored, with their rows."""
        if len(objects) > limits.CATALOG_BATCH_MAX:
            raise LimitExceeded(
                f"At most {limits.CATALOG_BATCH_MAX:,} objects can be written at once,"
                f" not {len(objects):,}"
            )
        now = self.clock.now_us()
        prepared = []
        for thing in objects:
            rows = rows_of(thing, now)
            kept = Object(thing.id, thing.value, None, len(rows), now)
            prepared.append((kept, rows))
        return prepared

    def remember(self, written: Iterable[tuple[Object[Any], list[ObjectRow]]]) -> None:
        """Add written objects to the cache."""
        for thing, rows in written:
            self._cache.put(self.realm, thing, sum(len(row.value) for row in rows))

    async def delete(self, refs: Collection[ObjectRef]) -> None:
        """Delete objects with as many parts as the references announce."""
        for ref in refs:
            self._cache.evict(self.realm, ref.id)
        await self.backend.delete(self.realm, [key for ref in refs for key in hinted_keys(ref)])
        for ref in refs:
            self._cache.evict(self.realm, ref.id)

    # ---- Conditional objects -----------------------------------------------------------------

    async def insert(self, id: int, value: V) -> Object[V] | None:
        """Write an object unless its id exists; return None if it does."""
        row = conditional_row(id, value, self.clock.now_us())
        token = _token_of(row)
        is_done = await write_fenced(
            self._fence,
            lambda: self.backend.insert(self.realm, row),
            lambda: self.backend.delete_if(self.realm, row.key, token),
        )
        return Object(id, value, token, 1, row.created_us) if is_done else None

    async def replace(self, expected: Object[Any], value: V) -> Object[V] | None:
        """Replace an object that is still as expected; return None if it is not."""
        row = conditional_row(expected.id, value, self.clock.now_us())
        if row.type != expected.ref.type:
            raise InvalidArgument(
                f"Object {expected.id} is of type {expected.ref.type!r} and cannot be replaced by "
                f"a value of type {row.type!r}; write a new object",
                field="type",
            )
        old, token = _row_of(expected), _token_of(row)
        is_done = await write_fenced(
            self._fence,
            lambda: self.backend.replace(self.realm, row, _token_of(old)),
            lambda: self.backend.replace(self.realm, old, token),
        )
        return Object(expected.id, value, token, 1, row.created_us) if is_done else None

    async def delete_if(self, expected: Object[Any]) -> bool:
        """Delete an object that is still as expected; return whether it was deleted."""
        old = _row_of(expected)
        # If the outcome is unknown, nothing is undone: another client may have deleted it.
        if not await self.backend.delete_if(self.realm, old.key, _token_of(old)):
            return False
        await check_written(self._fence, lambda: self.backend.insert(self.realm, old))
        return True

    # ---- Pointers ----------------------------------------------------------------------------

    async def create_pointer(self, name: str, target: ObjectRef | None = None) -> Pointer:
        """Create a pointer, else raise PointerExists."""
        check_pointer_name(name)
        while True:
            pointer = Pointer(name, target, self.new_id(), self._fence.epoch)
            row = pointer.to_row()
            if await self._make([pointer], partial(self.backend.create_pointer, self.realm, row)):
                return pointer
            # Retry if the existing pointer was a leftover of a fenced client and is gone now.
            if await self._current(name) is not None:
                raise PointerExists(
                    f"Pointer {name!r} already exists; move it, or choose another name"
                )

    async def ensure_pointers(self, names: Collection[str]) -> None:
        """Create the pointers that do not exist, with no target."""
        for name in names:
            check_pointer_name(name)
        wanted = set(names)
        while wanted:
            made = [Pointer(name, None, self.new_id(), self._fence.epoch) for name in wanted]
            if await self._make_all(made):
                return
            found = await self.backend.fetch_pointers(self.realm, wanted)
            others = [name for name, row in found.items() if row.epoch != self._fence.epoch]
            wanted = {name for name in others if await self._current(name) is None}

    async def _make_all(self, pointers: Sequence[Pointer]) -> bool:
        """Create the pointers that do not exist; return whether all of them were created."""
        count = 0

        async def create() -> bool:
            nonlocal count
            rows = [pointer.to_row() for pointer in pointers]
            count = await self.backend.create_pointers(self.realm, rows)
            return count > 0

        await self._make(pointers, create)
        return count == len(pointers)

    async def _make(self, pointers: Sequence[Pointer], create: Step) -> bool:
        """Create new pointers, which no existing row fences."""

        async def undo() -> bool:
            for pointer in pointers:
                await self._take_back(pointer)
            return True

        try:
            return await write_fenced(self._fence, create, undo)
        finally:
            for pointer in pointers:
                self._cache.evict_pointer(self.realm, pointer.name)

    async def _take_back(self, pointer: Pointer) -> None:
        """Delete a pointer created here, even if it has received the new epoch meanwhile."""
        while (found := await self.pointer_of_any_epoch(pointer.name)) is not None:
            if found.created != pointer.created:
                return
            if found.target != pointer.target:
                raise OutcomeUnknown(
                    f"Pointer {pointer.name!r} was created while realm {self.realm!r} changed its "
                    "state, and other clients already use it; open the realm again and read the "
                    "pointer"
                )
            if await self.backend.delete_pointer(self.realm, found.to_row()):
                return

    async def pointer(self, name: str) -> Pointer:
        """Return the pointer from the cache or the database, else raise PointerNotFound."""
        cached = self._cache.pointer(self.realm, name)
        # The cache is shared with persistences that opened the realm in another epoch.
        if isinstance(cached, Pointer) and cached.epoch == self._fence.epoch:
            return cached
        return await self.pointer_now(name)

    async def pointer_now(self, name: str) -> Pointer:
        """Return the pointer as it is in the database, else raise PointerNotFound."""
        check_pointer_name(name)
        stamp = self._cache.stamp(self.realm, name)
        pointer = await self._current(name)
        self._cache.put_pointer(self.realm, name, pointer, stamp)
        if pointer is None:
            raise PointerNotFound(
                f"Pointer {name!r} does not exist in realm {self.realm!r}; correct its name or "
                "the realm, or create it"
            )
        return pointer

    async def pointer_of_any_epoch(self, name: str) -> Pointer | None:
        """Return the pointer from the database, whatever the realm's epoch."""
        rows = await self.backend.fetch_pointers(self.realm, [name])
        return Pointer.from_row(rows[name]) if name in rows else None

    async def _current(self, name: str) -> Pointer | None:
        """Return the pointer of this epoch, if any.

        A pointer of another epoch means that this client is fenced, which the check reports; or
        else that a fenced client created it: it never counted, and is removed.
        """
        while (pointer := await self.pointer_of_any_epoch(name)) is not None:
            if pointer.epoch == self._fence.epoch:
                return pointer
            await self._fence.check()
            try:
                if await self.backend.delete_pointer(self.realm, pointer.to_row()):
                    return None
            except OutcomeUnknown as error:
                raise Unavailable(
                    f"Pointer {name!r} of an earlier state of the realm could not be removed, "
                    "because the database did not confirm it; retry later"
                ) from error
        return None

    async def list_pointers(
        self, prefix: str = "", after: str = "", limit: int = limits.CATALOG_BATCH_MAX
    ) -> list[Pointer]:
        """Return pointers in the byte order of their names, after a name."""
        found: list[Pointer] = []
        while True:
            wanted = limit - len(found)
            rows = await self.backend.list_pointers(self.realm, prefix, after, wanted)
            ours = [row for row in rows if row.epoch == self._fence.epoch]
            if len(ours) < len(rows):
                await self._fence.check()
            found += map(Pointer.from_row, ours)
            if len(found) >= limit or len(rows) < wanted:
                return found
            after = rows[-1].name

    async def move_pointer(self, pointer: Pointer, target: ObjectRef) -> Pointer | None:
        """Move a pointer that is still as it was read; return None if it was moved concurrently."""
        return await self.publish([], pointer, target)

    async def publish(
        self,
        written: Sequence[tuple[Object[Any], list[ObjectRow]]],
        pointer: Pointer,
        target: ObjectRef,
        sequence: int | None = None,
    ) -> Pointer | None:
        """Write objects, then move the pointer; return None if it was moved concurrently.

        `sequence` grows with every move in the pointer's life.
        """
        self._check_epoch(pointer)
        moved = pointer.moved(target)
        rows = [row for _, rows in written for row in rows]
        stamp = self._cache.stamp(self.realm, pointer.name)
        is_done = False
        try:
            is_done = await self.backend.publish(self.realm, rows, pointer.to_row(), moved.to_row())
        finally:
            if not is_done or sequence is None:
                self._cache.evict_pointer(self.realm, pointer.name)
        self.remember(written)
        if not is_done:
            return None
        if sequence is not None:
            self._cache.pointer_moved(self.realm, moved, sequence, stamp)
        self.moves.report_move(self.realm, moved, sequence)
        return moved

    async def delete_pointer(self, pointer: Pointer) -> bool:
        """Delete a pointer that is still as it was read; return whether it was deleted."""
        self._check_epoch(pointer)
        try:
            is_done = await self.backend.delete_pointer(self.realm, pointer.to_row())
        finally:
            self._cache.evict_pointer(self.realm, pointer.name)
        if is_done:
            self.moves.report_move(self.realm, pointer, None)
        return is_done

    def _check_epoch(self, pointer: Pointer) -> None:
        """Raise RealmChanged unless the pointer was read in this epoch of the realm.

        Only then can a swap compare it.
        """
        if pointer.epoch != self._fence.epoch:
            raise RealmChanged(
                f"Pointer {pointer.name!r} was read before realm {self.realm!r} changed its state;"
                " open the realm again"
            )

    def forget(self, realm: str) -> None:
        """Evict a realm from the cache because its state has changed."""
        self._cache.evict_realm(realm)


def of_kind(thing: Object[Any], kind: type[V]) -> Object[V]:
    """Return the object, else raise InvalidArgument if its value is not of that kind."""
    if not isinstance(thing.value, kind):
        raise InvalidArgument(
            f"Object {thing.id} of type {thing.ref.type!r} is read as a {kind.__name__}; read it "
            "as its own type",
            field="type",
        )
    return thing


def _row_of(thing: Object[Any]) -> ObjectRow:
    """Return the row of a conditionally written object."""
    if thing.token is None:
        raise InvalidArgument(
            f"Object {thing.id} has no token, because it was not written conditionally, and "
            "cannot be compared; read it again",
            field="token",
        )
    return conditional_row(thing.id, thing.value, thing.created_us, thing.token)


def _token_of(row: ObjectRow) -> str:
    assert row.token is not None
    return row.token
