"""Back to a version, and back out of a changeset: as new transactions, which keep the history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from naksha.model import limits
from naksha.model.errors import Conflict, MergeConflict, Retryable
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import HEAD
from naksha.versioning.diff import Change, diff, lookup, names_in
from naksha.versioning.places import Line, Place, at, place_before
from naksha.versioning.records import Signed, Undecided
from naksha.versioning.threeway import merge_states
from naksha.versioning.writing import Plan, Write, Written, as_it_was, write_plan, written_of


async def rollback(
    line: Line,
    to: Place,
    signed: Signed,
    *,
    collections: Sequence[str] | None = None,
    query: Query | None = None,
    dry_run: bool = False,
) -> Written:
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
) -> Written:
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


async def _apply(
    line: Line,
    plan: Callable[[], Any],
    signed: Signed,
    message: str,
    dry_run: bool,
) -> Written:
    """Plan and write, again when somebody else was faster."""
    pauses = _pauses()
    while True:
        planned: Plan = await plan()
        if dry_run or not any(planned.values()):
            return written_of(None, planned)
        try:
            return written_of(await write_plan(line, planned, signed, message), planned)
        except (Conflict, Retryable) as error:
            if isinstance(error, MergeConflict):
                raise
            try:
                await anext(pauses)
            except StopAsyncIteration:
                raise error from None


async def _pauses() -> AsyncIterator[None]:
    """As often as a single write is tried again."""
    for attempt in range(limits.RETRY_COUNT_MAX):
        pause = limits.RETRY_DELAY_MS_MIN * 2**attempt
        await asyncio.sleep(min(pause, limits.RETRY_DELAY_MS_MAX) / 1000)
        yield
