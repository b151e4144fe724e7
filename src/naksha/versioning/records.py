"""What is kept in the storage about tags, branches and conflicts, and under which names.

A tag and a branch must not have the same name, so both are objects of one kind. A name belongs to
a scope: the storage, or a space of the hub that has names of its own.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from naksha.model import limits
from naksha.model.errors import Conflict, NotFound, Retryable
from naksha.model.transaction import MAIN
from naksha.model.version import Version
from naksha.spi.storage import KeptObject, Layer, Reader, WriteSession

REF: Final = "ref"
"""The kind of tags and branches."""
CONFLICT: Final = "conflict"
"""The kind of merges that somebody has to decide."""
CONFLICT_PART: Final = "conflict-part"
"""The kind of what they are about."""
GONE: Final = "gone-branch"
"""The kind of deleted branches that brought others to where they were merged into."""
LAYERS_MAX: Final = 9
"""Overlays of a branch, and main."""

T = TypeVar("T")


class Signed(msgspec.Struct, frozen=True):
    """Who does it, and why."""

    app_id: str
    author: str | None = None
    message: str | None = None


class Scope(msgspec.Struct, frozen=True):
    """Where a name is unique, and which collections it is about; None for all."""

    space: str | None = None
    collections: tuple[str, ...] | None = None

    def key(self, name: str) -> str:
        """The id of the object that is kept."""
        return f"{self.space or ''}:{name}"

    def covers(self, collection: str) -> bool:
        """Whether a collection belongs to it."""
        return self.collections is None or collection in self.collections


STORAGE: Final = Scope()
"""All collections, names of the storage itself."""


class Tag(msgspec.Struct, frozen=True, kw_only=True, tag="tag"):
    """A name for a version. `layers` are those of the branch that it was given on, as they were
    then; `protects`: what is tagged cannot expire, nor be dropped."""

    name: str
    scope: Scope
    version: Version
    layers: tuple[Layer, ...]
    branch: str
    branch_number: int | None = None
    """The number of that branch, whatever its name; None: main."""
    protects: bool = True
    system: bool = False
    """Whether a program has given it for itself; people are shown it when they ask."""
    description: str | None = None
    author: str | None = None
    app_id: str
    created_ms: int


class MergePoint(msgspec.Struct, frozen=True):
    """Two transactions, one on each of two lines, after which one had all of the other.

    `before` are the earlier ones of the same two, latest first: who was made from one of the lines
    in between, or got it by a merge, has these and not the last one."""

    ours: int
    theirs: int
    before: tuple[tuple[int, int], ...] = ()

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        """This one and the earlier ones, (ours, theirs)."""
        return ((self.ours, self.theirs), *self.before)

    def after(self, known: MergePoint | None) -> MergePoint:
        """This one, behind those that are known. A merge that was planned earlier may end later;
        the last point never moves back."""
        if known is None:
            return self
        first, *rest = sorted({*self.all, *known.all}, reverse=True)
        return MergePoint(*first, tuple(rest[: limits.MERGE_POINTS_MAX - 1]))


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch on one base: from transaction `since` on, until the next rebase.

    `merged_into` and `merged_from` tell of the merges with other overlays (by number; 0 is
    main): `ours` is on this branch, `theirs` on the other one. `replayed` is what a rebase brought
    from the base before: that overlay, and the last transaction of it."""

    overlay: int
    below: tuple[Layer, ...]
    since: int
    replayed: tuple[int, int] | None = None
    merged_into: dict[int, MergePoint] = {}
    merged_from: dict[int, MergePoint] = {}

    @property
    def layers(self) -> tuple[Layer, ...]:
        """As it is read and written now."""
        return (Layer(self.overlay, None), *self.below)


class Branch(msgspec.Struct, frozen=True, kw_only=True, tag="branch"):
    """A branch; its present is the last epoch."""

    name: str
    scope: Scope
    parent: str
    parent_number: int | None = None
    """The number of the branch that it was made from, whatever its name; None: main."""
    epochs: tuple[Epoch, ...]
    description: str | None = None
    author: str | None = None
    app_id: str
    created_ms: int
    conflicts: tuple[str, ...] = ()
    """Merges and rebases of it that wait for a decision."""
    solves: str | None = None
    """The conflict that it is there for: it has what the merge would come to."""

    @property
    def number(self) -> int:
        """What it is known by, whatever its name: its first overlay."""
        return self.epochs[0].overlay

    @property
    def now(self) -> Epoch:
        return self.epochs[-1]

    @property
    def state(self) -> str:
        """OPEN, or IN_CONFLICT while a merge of it waits for a decision."""
        return "IN_CONFLICT" if self.conflicts else "OPEN"

    def epoch_at(self, txn: int) -> Epoch:
        """The epoch that a version belongs to; the first one also tells what was before it."""
        fitting = [epoch for epoch in self.epochs if epoch.since <= txn]
        return fitting[-1] if fitting else self.epochs[0]

    def epoch_on(self, overlay: int) -> Epoch:
        """The epoch whose overlay this is."""
        return next(epoch for epoch in self.epochs if epoch.overlay == overlay)


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that both sides changed; a side is null when it has no such feature."""

    collection: str
    id: str
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None
    paths: tuple[str, ...]
    """Where they differ, as JSON pointers; the empty one stands for the whole feature."""


class Contested(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a feature that both sides changed: the ids of its states, null where a side
    has no such feature."""

    collection: str
    id: str
    base: str | None
    ours: str | None
    theirs: str | None


class Spot(msgspec.Struct, frozen=True):
    """A version and the layers that it is read in."""

    layers: tuple[Layer, ...]
    seq_number: int


class StoredConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A merge or rebase that was not done. Doing it again with a choice for each of its features
    ends it. `source` and `target` are the numbers of branches, MAIN for main; `onto` is the new
    base of a rebase, if it was given. Its features are kept in parts, by the ids of their states,
    which are protected while it waits."""

    id: str
    source: int
    target: int
    onto: str | None = None
    scope: Scope
    kind: str = "merge"
    count: int
    """How many features there are to decide about."""
    parts: int
    spots: tuple[Spot, Spot, Spot]
    """Where base, ours and theirs were read."""
    solving: int | None = None
    """The number of the branch that it can be solved on, if there is one."""
    author: str | None = None
    app_id: str
    created_ms: int


class Known(msgspec.Struct, frozen=True):
    """A tag or branch, and the revision of the object it is kept in."""

    record: Tag | Branch
    revision: int


async def find(reader: Reader, scope: Scope, name: str) -> Known | None:
    """The tag or branch of this name."""
    found = await reader.kept(REF, scope.key(name))
    return None if found is None else _known(found)


async def branch_of(reader: Reader, scope: Scope, name: str) -> tuple[Branch, int]:
    """The branch of this name and its revision, else NotFound."""
    known = await find(reader, scope, name)
    if known is None or not isinstance(known.record, Branch):
        raise NotFound(f"There is no branch {name!r}", field="branch")
    return known.record, known.revision


async def branch_with(reader: Reader, number: int) -> tuple[Branch, int] | None:
    """The branch with this number, of whatever space and name, and its revision."""
    for known in await everywhere(reader):
        if isinstance(known.record, Branch) and known.record.number == number:
            return known.record, known.revision
    return None


async def branch_over(reader: Reader, overlay: int) -> tuple[Branch, int] | None:
    """The branch that an overlay is of, now or formerly, and its revision."""
    for known in await everywhere(reader):
        record = known.record
        if isinstance(record, Branch) and any(each.overlay == overlay for each in record.epochs):
            return record, known.revision
    return None


async def change_branch(session: WriteSession, branch: Branch, revision: int) -> None:
    """Keep a branch that was read in the same session."""
    try:
        await session.keep(REF, branch.scope.key(branch.name), plain(branch), expected=revision)
    except Conflict as error:
        raise Retryable(f"Branch {branch.name!r} was changed meanwhile", field="branch") from error


async def every(reader: Reader, space: str | None = None) -> list[Known]:
    """All tags and branches of the storage itself, or of a space."""
    return [_known(each) for each in await reader.all_kept(REF, Scope(space).key(""))]


async def gone_branches(reader: Reader) -> list[Branch]:
    """Those that were deleted, as far as others need to know of them."""
    kept = await reader.all_kept(GONE)
    return [msgspec.convert(each.value, Branch, strict=False) for each in kept]


async def everywhere(reader: Reader) -> list[Known]:
    """All tags and branches, of whatever space."""
    return [_known(each) for each in await reader.all_kept(REF)]


def pins_of(name: str, scope: Scope) -> list[tuple[str, str | None]]:
    """Names of pins that protect what is in a scope, each with its collection (None: all)."""
    if scope.collections is None:
        return [(name, None)]
    return [(f"{name}:{collection}", collection) for collection in scope.collections]


def plain(record: Tag | Branch | StoredConflict | list[Contested]) -> Any:
    """A record as plain JSON values."""
    return msgspec.to_builtins(record, str_keys=True)


def stored_conflict(kept: KeptObject) -> StoredConflict:
    """A conflict as it was kept."""
    return msgspec.convert(kept.value, StoredConflict, strict=False)


def _known(kept: KeptObject) -> Known:
    record: Tag | Branch = msgspec.convert(kept.value, Tag | Branch, strict=False)
    return Known(record, kept.revision)


def taken(name: str) -> Conflict:
    """The error for a name that is there already."""
    return Conflict(f"There is a tag or branch {name!r} already", field="name")


MAIN_LAYERS: Final = (Layer(MAIN, None),)
