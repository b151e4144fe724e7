"""Back to a version, and back out of a changeset: as new transactions, which keep the history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from naksha.model import limits
from naksha.model.errors import Conflict, MergeConflict, Retryable
from naksha.model.merge import merge3, same
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import HEAD
from naksha.spi.merging import content_of
from naksha.versioning.changesets import MESSAGE
from naksha.versioning.diff import Change, diff, lookup, names_in
from naksha.versioning.places import Line, Place, at, place_before
from naksha.versioning.records import Undecided
from naksha.versioning.writing import Write, as_it_was, feature_of, write_all

WAIT_S: Final = 5.0
"""For a transaction that is committed but not published."""


class Signed(msgspec.Struct, frozen=True):
    """Who does it, and why."""

    app_id: str
    author: str | None = None
    message: str | None = None


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback or revert did, or would do: ids by collection. `txn` is None for a dry run
    and when there was nothing to do."""

    txn: int | None
    created: dict[str, list[str]]
    updated: dict[str, list[str]]
    deleted: dict[str, list[str]]
    conflicts: tuple[Undecided, ...] = ()

    @property
    def count(self) -> int:
        """How many features."""
        parts = (self.created, self.updated, self.deleted)
        return sum(len(ids) for part in parts for ids in part.values())


Plan = dict[str, list[Write]]


async def rollback(
    line: Line,
    to: Place,
    signed: Signed,
    *,
    collections: Sequence[str] | None = None,
    query: Query | None = None,
    dry_run: bool = False,
) -> Undo:
    """Make the features of a line again what they were at a version.

    What was created since is deleted, what was deleted comes back, what was changed is changed
    back. With a query only features that matched it at some time since, or at the version.
    """

    async def plan() -> Plan:
        now = await at(line, HEAD)
        return {
            name: [
                Write(each.id, each.old, None if each.new is None else as_it_was(each.new))
                async for each in diff(now, to, name, query)
            ]
            for name in await names_in(now, to, collections)
        }

    message = signed.message or f"Rollback to version {to.version.seq_number}"
    return await _apply(line, plan, signed, message, dry_run)


async def revert(
    line: Line,
    changeset: Place,
    signed: Signed,
    *,
    collections: Sequence[str] | None = None,
    dry_run: bool = False,
) -> Undo:
    """Take the changes of one changeset back, and leave what others did since.

    Where later work touched the same property it is a conflict: MergeConflict with all of them,
    and nothing is written; a dry run tells them in its answer.
    """
    before = await place_before(changeset)
    conflicts: list[Undecided] = []

    async def plan() -> Plan:
        conflicts.clear()
        found: Plan = {}
        for name in await names_in(before, changeset, collections):
            changes = [each async for each in diff(before, changeset, name)]
            heads = await lookup(await at(line, HEAD), name, [each.id for each in changes])
            writes = [_reverted(name, each, heads.get(each.id), conflicts) for each in changes]
            found[name] = [write for write in writes if write is not None]
        if conflicts and not dry_run:
            raise MergeConflict(
                f"{len(conflicts)} features were changed since in the same places",
                undecided=[msgspec.to_builtins(each) for each in conflicts],
            )
        return found

    message = signed.message or f"Revert of version {changeset.version.seq_number}"
    done = await _apply(line, plan, signed, message, dry_run)
    return msgspec.structs.replace(done, conflicts=tuple(conflicts))


def _reverted(
    name: str, change: Change, head: State | None, conflicts: list[Undecided]
) -> Write | None:
    """Three-way: what the changeset made is the base, what was before it one side, HEAD the
    other."""
    base, theirs = change.new, change.old
    merged = merge_states(name, base, head, theirs)
    if isinstance(merged, Undecided):
        conflicts.append(merged)
        return None
    return merged


def merge_states(
    name: str, base: State | None, ours: State | None, theirs: State | None
) -> Write | Undecided | None:
    """What is to be written over `ours` so that it has what `theirs` changed since `base`; None
    when that is nothing."""
    contents = [None if each is None else content_of(each.feature) for each in (base, ours, theirs)]
    was, mine, other = contents
    if same(mine, other) or same(was, other):
        return None
    id_ = next(each.id for each in (ours, theirs, base) if each is not None)
    if same(was, mine):
        return Write(id_, ours, None if other is None else feature_of(other))
    if mine is None or other is None:
        return undecided(name, id_, (base, ours, theirs), ("",))
    merged = merge3({} if was is None else was, mine, other)
    if merged.conflicts:
        paths = tuple(each.path for each in merged.conflicts)
        return undecided(name, id_, (base, ours, theirs), paths)
    if same(merged.value, mine):
        return None
    return Write(id_, ours, feature_of(merged.value))


def undecided(
    name: str, id_: str, sides: Sequence[State | None], paths: tuple[str, ...]
) -> Undecided:
    """The report of a feature that both sides changed."""
    base, ours, theirs = (None if each is None else each.feature for each in sides)
    return Undecided(collection=name, id=id_, base=base, ours=ours, theirs=theirs, paths=paths)


async def _apply(
    line: Line,
    plan: Callable[[], Any],
    signed: Signed,
    message: str,
    dry_run: bool,
) -> Undo:
    """Plan and write, again when somebody else was faster."""
    pauses = _pauses()
    while True:
        planned: Plan = await plan()
        if dry_run or not any(planned.values()):
            return undo_of(None, planned)
        try:
            return undo_of(await write_plan(line, planned, signed, message), planned)
        except (Conflict, Retryable) as error:
            if isinstance(error, MergeConflict):
                raise
            try:
                await anext(pauses)
            except StopAsyncIteration:
                raise error from None


async def write_plan(line: Line, planned: Plan, signed: Signed, message: str) -> int:
    """Write all of it as one transaction."""
    async with line.storage.write(signed.app_id, signed.author) as session:
        for name, writes in planned.items():
            for start in range(0, len(writes), limits.WRITE_FEATURES_MAX):
                await write_all(session, name, writes[start : start + limits.WRITE_FEATURES_MAX])
        await session.message(MESSAGE, message)
        txn = session.txn
    assert txn is not None
    await line.storage.wait_published(txn, WAIT_S)
    return txn


async def _pauses() -> AsyncIterator[None]:
    """As often as a single write is tried again."""
    for attempt in range(limits.RETRY_COUNT_MAX):
        pause = limits.RETRY_DELAY_MS_MIN * 2**attempt
        await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
        yield


def undo_of(txn: int | None, planned: Plan) -> Undo:
    """The report of what is planned or done."""
    created: dict[str, list[str]] = {}
    updated: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    for name, writes in planned.items():
        for write in writes:
            part = deleted if write.feature is None else created if write.head is None else updated
            part.setdefault(name, []).append(write.id)
    return Undo(txn=txn, created=created, updated=updated, deleted=deleted)
