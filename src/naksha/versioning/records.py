"""Stored records of tags, branches and conflicts, and the names they are stored under.

A tag and a branch must not have the same name, so both are objects of one kind. A name belongs to a
scope: the storage, or a space of the hub that has names of its own.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from naksha.model import limits
from naksha.model.errors import Conflict, NotFound, Retryable
from naksha.model.transaction import MAIN
from naksha.model.version import Version
from naksha.spi.storage import BranchLayer, StorageReader, StoredObject, WriteSession

REF: Final = "ref"
"""Object kind of tags and branches."""
CONFLICT: Final = "conflict"
"""Object kind of merges that wait for a decision."""
CONFLICT_PART: Final = "conflict-part"
"""Object kind of the features of a conflict."""
GONE: Final = "gone-branch"
"""Object kind of deleted branches whose merges brought other branches along."""
LAYERS_MAX: Final = 9
"""Most layers of a branch: its overlay, those below it, and main."""

T = TypeVar("T")


class Attribution(msgspec.Struct, frozen=True):
    """App id and author of a change, and its message."""

    app_id: str
    author: str | None = None
    message: str | None = None


class NameScope(msgspec.Struct, frozen=True):
    """The scope that a name is unique in, and the collections it refers to; None for all."""

    space: str | None = None
    collections: tuple[str, ...] | None = None

    def key(self, name: str) -> str:
        """Return the id of the stored object."""
        return f"{self.space or ''}:{name}"

    def covers(self, collection: str) -> bool:
        """Return whether the scope includes a collection."""
        return self.collections is None or collection in self.collections


STORAGE: Final = NameScope()
"""All collections, with names of the storage itself."""


class Tag(msgspec.Struct, frozen=True, kw_only=True, tag="tag"):
    """A name for a version.

    `layers` are those of the branch at the time of tagging. If `protects` is true, what is tagged
    cannot expire or be dropped.
    """

    name: str
    scope: NameScope
    version: Version
    layers: tuple[BranchLayer, ...]
    branch: str
    branch_number: int | None = None
    """Number of that branch, which stays when it is renamed; None for main."""
    protects: bool = True
    system: bool = False
    """Whether a program created it for its own use; clients list it only on request."""
    description: str | None = None
    author: str | None = None
    app_id: str
    created_ms: int


class MergePoint(msgspec.Struct, frozen=True):
    """Two transactions on two lines, after which one line contains all of the other.

    `before` lists earlier points of the same two lines, latest first: a branch that was made from
    one of the lines in between, or received it by a merge, contains these and not the last one.
    """

    ours: int
    theirs: int
    before: tuple[tuple[int, int], ...] = ()

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        """Return the point and the earlier ones, as (ours, theirs)."""
        return ((self.ours, self.theirs), *self.before)

    def after(self, known: MergePoint | None) -> MergePoint:
        """Return this point combined with the known ones.

        A merge that was planned earlier may be committed later; the last point never moves back.
        """
        if known is None:
            return self
        first, *rest = sorted({*self.all, *known.all}, reverse=True)
        return MergePoint(*first, tuple(rest[: limits.MERGE_POINTS_MAX - 1]))


class BranchEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch on one base, from transaction `since` until the next rebase.

    `merged_into` and `merged_from` record merges with other overlays (by number; 0 is main): `ours`
    is on this branch, `theirs` on the other one. `replayed` is what a rebase brought from the
    previous base: that overlay, and its last transaction.
    """

    overlay: int
    below: tuple[BranchLayer, ...]
    since: int
    replayed: tuple[int, int] | None = None
    merged_into: dict[int, MergePoint] = {}
    merged_from: dict[int, MergePoint] = {}

    @property
    def layers(self) -> tuple[BranchLayer, ...]:
        """The layers that the branch is read and written through."""
        return (BranchLayer(self.overlay, None), *self.below)


class Branch(msgspec.Struct, frozen=True, kw_only=True, tag="branch"):
    """A branch; its last epoch is the current one."""

    name: str
    scope: NameScope
    parent: str
    parent_number: int | None = None
    """Number of the branch that it was made from, which stays on renames; None for main."""
    epochs: tuple[BranchEpoch, ...]
    description: str | None = None
    author: str | None = None
    app_id: str
    created_ms: int
    conflicts: tuple[str, ...] = ()
    """Ids of its merges and rebases that wait for a decision."""
    solves: str | None = None
    """Id of the conflict that the branch exists to resolve; it contains the result of the merge."""

    @property
    def number(self) -> int:
        """Permanent number of the branch, whatever its name: its first overlay."""
        return self.epochs[0].overlay

    @property
    def now(self) -> BranchEpoch:
        return self.epochs[-1]

    @property
    def state(self) -> str:
        """OPEN, or IN_CONFLICT while a merge of it waits for a decision."""
        return "IN_CONFLICT" if self.conflicts else "OPEN"

    def epoch_at(self, txn: int) -> BranchEpoch:
        """Return the epoch of a version; the first epoch for versions before it."""
        fitting = [epoch for epoch in self.epochs if epoch.since <= txn]
        return fitting[-1] if fitting else self.epochs[0]

    def epoch_on(self, overlay: int) -> BranchEpoch:
        """Return the epoch of an overlay."""
        return next(epoch for epoch in self.epochs if epoch.overlay == overlay)


class UndecidedFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that both sides changed; a side is null if it lacks the feature."""

    collection: str
    id: str
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None
    paths: tuple[str, ...]
    """Differing places as JSON pointers; an empty pointer stands for the whole feature."""


class StoredUndecided(msgspec.Struct, frozen=True, kw_only=True):
    """Stored form of a feature that both sides changed.

    It holds the ids of its states; null where a side lacks the feature.
    """

    collection: str
    id: str
    base: str | None
    ours: str | None
    theirs: str | None


class StoredPosition(msgspec.Struct, frozen=True):
    """A version and the layers that it is read in."""

    layers: tuple[BranchLayer, ...]
    seq_number: int


class StoredConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A merge or rebase that waits for decisions.

    Repeating it with a choice for each of its features ends it. `source` and `target` are branch
    numbers, MAIN for main; `onto` is the new base of a rebase, if it was given. The features are
    stored in parts, by the ids of their states, which are pinned while the conflict is open.
    """

    id: str
    source: int
    target: int
    onto: str | None = None
    scope: NameScope
    kind: str = "merge"
    count: int
    """Number of features to decide."""
    parts: int
    spots: tuple[StoredPosition, StoredPosition, StoredPosition]
    """The versions at which base, ours and theirs were read."""
    solving: int | None = None
    """Number of the branch to resolve it on, if there is one."""
    author: str | None = None
    app_id: str
    created_ms: int


class StoredRecord(msgspec.Struct, frozen=True):
    """A tag or branch with the revision of its stored object."""

    record: Tag | Branch
    revision: int


async def find_record(reader: StorageReader, scope: NameScope, name: str) -> StoredRecord | None:
    """Return the tag or branch with this name."""
    found = await reader.stored_object(REF, scope.key(name))
    return None if found is None else _known(found)


async def branch_of(reader: StorageReader, scope: NameScope, name: str) -> tuple[Branch, int]:
    """Return the branch with this name and its revision, else raise NotFound."""
    known = await find_record(reader, scope, name)
    if known is None or not isinstance(known.record, Branch):
        raise no_branch(name)
    return known.record, known.revision


async def branch_with(reader: StorageReader, number: int) -> tuple[Branch, int] | None:
    """Return the branch with this number, in any scope, and its revision."""
    for known in await all_records(reader):
        if isinstance(known.record, Branch) and known.record.number == number:
            return known.record, known.revision
    return None


async def branch_over(reader: StorageReader, overlay: int) -> tuple[Branch, int] | None:
    """Return the branch that owns an overlay, now or formerly, and its revision."""
    for known in await all_records(reader):
        record = known.record
        if isinstance(record, Branch) and any(each.overlay == overlay for each in record.epochs):
            return record, known.revision
    return None


async def change_branch(session: WriteSession, branch: Branch, revision: int) -> None:
    """Store a branch that was read in the same session.

    Raises:
        Retryable: The branch was changed concurrently.
    """
    try:
        await session.store_object(
            REF, branch.scope.key(branch.name), as_json_value(branch), expected=revision
        )
    except Conflict as error:
        raise Retryable(
            f"Branch {branch.name!r} was changed concurrently; retry", field="branch"
        ) from error


async def records_in(reader: StorageReader, space: str | None = None) -> list[StoredRecord]:
    """List the tags and branches of the storage itself, or of a space."""
    return [_known(each) for each in await reader.stored_objects(REF, NameScope(space).key(""))]


async def deleted_branches(reader: StorageReader) -> list[Branch]:
    """List the deleted branches that the merge history still needs."""
    kept = await reader.stored_objects(GONE)
    return [msgspec.convert(each.value, Branch, strict=False) for each in kept]


async def all_records(reader: StorageReader) -> list[StoredRecord]:
    """List the tags and branches of the storage and of all spaces."""
    return [_known(each) for each in await reader.stored_objects(REF)]


def pins_of(name: str, scope: NameScope) -> list[tuple[str, str | None]]:
    """Return names of pins that protect a scope, each with its collection (None for all)."""
    if scope.collections is None:
        return [(name, None)]
    return [(f"{name}:{collection}", collection) for collection in scope.collections]


def as_json_value(record: Tag | Branch | StoredConflict | list[StoredUndecided]) -> Any:
    """Return a record as plain JSON values."""
    return msgspec.to_builtins(record, str_keys=True)


def stored_conflict(kept: StoredObject) -> StoredConflict:
    """Decode a stored conflict."""
    return msgspec.convert(kept.value, StoredConflict, strict=False)


def _known(kept: StoredObject) -> StoredRecord:
    record: Tag | Branch = msgspec.convert(kept.value, Tag | Branch, strict=False)
    return StoredRecord(record, kept.revision)


def no_branch(name: str) -> NotFound:
    """Return the error for a branch that does not exist."""
    return NotFound(
        f"Branch {name!r} does not exist; correct its name, or create it", field="branch"
    )


def name_taken(name: str) -> Conflict:
    """Return the error for a name that is already in use."""
    return Conflict(
        f"The name {name!r} is already used by a tag or branch; choose another name", field="name"
    )


MAIN_LAYERS: Final = (BranchLayer(MAIN, None),)
