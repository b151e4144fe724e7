"""Commits: the log entries that a pointer refers to, and the attempts that create them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from naksha.catalog.objects import Object, ObjectRef, type_id
from naksha.catalog.persistence import Persistence, of_kind
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.model.errors import InvalidArgument, StorageCorrupt

V = TypeVar("V")
R = TypeVar("R")

ANCHOR_STEPS: Final = (256, 4_096, 65_536, 1_048_576)
"""Distances of the anchors of a commit.

For each of these numbers a commit names its last ancestor whose number is a multiple of it, so that
any point of a long log is a few dozen reads away.
"""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all committed structs; its fields are set by the committer."""

    seq: int = 0
    """1 for the first commit of a pointer, then one more for each that follows."""
    tail: tuple[int, ...] = ()
    """The ids of its ancestors, nearest first, at most COMMIT_TAIL_MAX."""
    anchors: tuple[int, ...] = ()
    """See ANCHOR_STEPS; shorter while the log is."""
    at_us: int = 0
    """Time of the commit in microseconds; never before its ancestor's."""


H = TypeVar("H", bound=Commit)


def child_of(parent: Object[H] | None, value: H, now_us: int) -> H:
    """Return the value as the commit that follows `parent`."""
    if parent is None:
        return msgspec.structs.replace(value, seq=1, tail=(), anchors=(), at_us=now_us)
    before = parent.value
    return msgspec.structs.replace(
        value,
        seq=before.seq + 1,
        tail=(parent.id, *before.tail)[: limits.COMMIT_TAIL_MAX],
        anchors=_anchors_after(parent),
        at_us=max(now_us, before.at_us),
    )


def _anchors_after(parent: Object[H]) -> tuple[int, ...]:
    seq, anchors = parent.value.seq, list(parent.value.anchors)
    for level, step in enumerate(ANCHOR_STEPS):
        if seq % step:
            break
        anchors[level : level + 1] = [parent.id]
    return tuple(anchors)


async def head_of(persistence: Persistence, pointer: Pointer, kind: type[H]) -> Object[H] | None:
    """Return the object that a pointer refers to; None if it refers to nothing."""
    if pointer.target is None:
        return None
    head = await persistence.fetch(pointer.target, kind)
    if head is None:
        raise StorageCorrupt(
            f"Pointer {pointer.name!r} of realm {persistence.realm!r} points to object "
            f"{pointer.target.id}, which is missing; run `naksha doctor` and `naksha realm "
            "repair`"
        )
    return head


class Draft:
    """The objects that one change has written so far, over all its attempts."""

    def __init__(self) -> None:
        self.kept: dict[str, Object[Any]] = {}
        """The current objects by key."""
        self.own: list[Object[Any]] = []
        """Objects that only the current attempt writes."""
        self.superseded: list[ObjectRef] = []
        """Objects that earlier attempts wrote and later ones did not use."""
        self.seen: set[int] = set()
        """Ids that attempts have read; they do not belong to this change and must not be deleted.
        """

    def leftovers(self, committed: Collection[int] = ()) -> list[ObjectRef]:
        """Return the written objects that the commit, whose outcome is known, does not need."""
        things = (*self.kept.values(), *self.own)
        written = [*self.superseded, *(thing.ref for thing in things)]
        return [ref for ref in written if ref.id not in self.seen and ref.id not in committed]


class CommitAttempt(Generic[H]):
    """One attempt of a change: the head it is based on, and the means to read and write.

    A change may run several times, on different heads, before one of its attempts counts; its
    caller receives what that attempt returns or raises. A change that does not call `commit` only
    reads the head, and must not write anything.
    """

    def __init__(self, persistence: Persistence, draft: Draft, head: Object[H] | None) -> None:
        self.head = head
        self.persistence = persistence
        self.proposed: H | None = None
        self._draft = draft
        self._used: dict[str, Object[Any]] = {}
        draft.superseded += [thing.ref for thing in draft.own]
        draft.own = []

    @property
    def used(self) -> list[Object[Any]]:
        """The objects that this attempt writes."""
        return [*self._used.values(), *self._draft.own]

    async def fetch(self, ref: ObjectRef, kind: type[V]) -> Object[V] | None:
        """Return an object, including one that this change has written but not yet committed."""
        return (await self.fetch_many([ref], kind))[0]

    async def fetch_many(
        self, refs: Sequence[ObjectRef | None], kind: type[V]
    ) -> list[Object[V] | None]:
        """Return objects in the order of their references, including uncommitted ones."""
        mine = {thing.id: thing for thing in self.used}
        others = [ref if ref is not None and ref.id not in mine else None for ref in refs]
        self._draft.seen.update(ref.id for ref in others if ref is not None)
        found = await self.persistence.fetch_many(others, kind)
        for place, ref in enumerate(refs):
            if ref is not None and ref.id in mine:
                found[place] = of_kind(mine[ref.id], kind)
        return found

    def write_intent(self, key: str, value: V) -> Object[V]:
        """Write an object under a key that this attempt has not used."""
        if key in self._used:
            raise InvalidArgument(
                f"The key {key!r} is already used by this attempt; use another key", field="key"
            )
        return self.write_or_replace(key, value)

    def write_if_new(self, key: str, value: V) -> Object[V]:
        """Write an object, or reuse the one that an earlier attempt wrote under the key."""
        kept = self._draft.kept.get(key)
        if kept is None:
            return self._put(key, value)
        if type_id(kept.value) != type_id(value):
            raise InvalidArgument(
                f"The key {key!r} is already used for an object of another type; use another key",
                field="key",
            )
        self._used[key] = kept
        return kept

    def write_or_replace(self, key: str, value: V) -> Object[V]:
        """Write an object in place of the one written under the key before."""
        self.take_back(key)
        return self._put(key, value)

    def write_object(self, thing: Object[Any]) -> None:
        """Write an object that already has an id and is created again by every attempt."""
        self._draft.own.append(thing)

    def take_back(self, key: str) -> None:
        """Discard the objects written under the key."""
        self._used.pop(key, None)
        replaced = self._draft.kept.pop(key, None)
        if replaced is not None:
            self._draft.superseded.append(replaced.ref)

    def commit(self, value: H) -> None:
        """Propose the commit that follows the head."""
        if self.proposed is not None:
            raise InvalidArgument(
                "A change can make only one commit; call commit once per attempt", field="commit"
            )
        self.proposed = value

    def _put(self, key: str, value: V) -> Object[V]:
        thing = Object(self.persistence.new_id(), value)
        self._draft.kept[key] = self._used[key] = thing
        return thing


Change = Callable[[CommitAttempt[H]], Awaitable[R]]
"""A change to apply on top of the head. It runs in the caller's context."""
