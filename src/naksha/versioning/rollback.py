"""Rollback to a version and revert of a changeset, as new transactions that keep the history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from naksha.model.errors import InvalidArgument, MergeConflict
from naksha.model.query import Query
from naksha.model.state import State
from naksha.model.version import HEAD
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.changesets import changeset_of
from naksha.versioning.diff import FeatureDiff, diff, lookup, names_in
from naksha.versioning.lines import Line, Place, at, place_before
from naksha.versioning.merges.threeway import merge_states
from naksha.versioning.records import Attribution, UndecidedFeature
from naksha.versioning.state_writer import (
    WAIT_S,
    Plan,
    StateWrite,
    WriteReport,
    collections_of,
    feature_of_state,
    write_plan,
    write_report,
)
from naksha.versioning.write_retry import write_with_retries


async def rollback(
    line: Line,
    to: Place,
    signed: Attribution,
    *,
    collections: Sequence[str] | None = None,
    query: Query | None = None,
    dry_run: bool = False,
) -> WriteReport:
    """Restore the features of a line to their states at a version.

    Features created since are deleted, deleted ones are restored, changed ones are changed back.
    With a query only features that matched it at some time since, or at the version, are affected;
    its authors and times refer to the changes since (see `naksha.versioning.change_filters`).
    """

    async def plan(session: WriteSession | None) -> Plan:
        now, then = await at(line.read_in(session), HEAD), to.read_in(session)
        return {
            name: [
                StateWrite(
                    each.id, each.old, None if each.new is None else feature_of_state(each.new)
                )
                async for each in diff(now, then, name, query)
            ]
            for name in await names_in(now, then, collections)
        }

    message = signed.message or f"Rollback to version {to.version.seq_number}"
    return await _apply(line, plan, signed, message, dry_run)


async def revert(
    line: Line,
    changeset: Place,
    signed: Attribution,
    *,
    collections: Sequence[str] | None = None,
    query: Query | None = None,
    dry_run: bool = False,
) -> WriteReport:
    """Undo the changes of one changeset and keep later changes.

    With a query only the changes of features that matched it before or after the changeset are
    undone. A later change of the same property is a conflict; a dry run returns the conflicts
    instead of raising.

    Raises:
        MergeConflict: There are conflicts, all of which are listed; nothing was written.
    """
    await _check_changeset(changeset)
    before = await place_before(changeset)
    conflicts: list[UndecidedFeature] = []

    async def plan(session: WriteSession | None) -> Plan:
        conflicts.clear()
        found: Plan = {}
        now = await at(line.read_in(session), HEAD)
        old, new = before.read_in(session), changeset.read_in(session)
        for name in await names_in(old, new, collections):
            changes = [each async for each in diff(old, new, name, query)]
            heads = await lookup(now, name, [each.id for each in changes])
            writes = [_reverted(name, each, heads.get(each.id), conflicts) for each in changes]
            found[name] = [write for write in writes if write is not None]
        if conflicts and not dry_run:
            raise MergeConflict(
                f"{len(conflicts)} features cannot be reverted, because later versions changed the"
                " same properties; revert those versions first",
                undecided=[msgspec.to_builtins(each) for each in conflicts],
            )
        return found

    message = signed.message or f"Revert of version {changeset.version.seq_number}"
    done = await _apply(line, plan, signed, message, dry_run)
    return msgspec.structs.replace(done, conflicts=tuple(conflicts))


def _reverted(
    name: str, change: FeatureDiff, head: State | None, conflicts: list[UndecidedFeature]
) -> StateWrite | None:
    """Merge three ways: the changeset's result is the base, its predecessor and HEAD the sides."""
    base, theirs = change.new, change.old
    merged = merge_states(name, base, head, theirs)
    if isinstance(merged, UndecidedFeature):
        conflicts.append(merged)
        return None
    return merged


async def _check_changeset(place: Place) -> None:
    """Reject a version that made no changes on this line."""
    number = place.version.seq_number
    if number == 0:
        raise InvalidArgument(
            "Version 0 is the empty storage and cannot be reverted; use a later version",
            field="changeset",
        )
    made = changeset_of(await place.line.root.transaction(place.version.txn))
    if made.overlay not in place.line.overlays:
        raise InvalidArgument(
            f"Version {number} was made on another branch and changed nothing on"
            f" {place.line.name!r}; use a version from the log of that branch",
            field="changeset",
        )
    if made.collections_changed and not made.touched:
        raise InvalidArgument(
            f"Version {number} cannot be reverted: it changed collections"
            f" ({', '.join(made.collections_changed)}) and no features",
            field="changeset",
        )


async def _apply(
    line: Line,
    plan: Callable[[WriteSession | None], Awaitable[Plan]],
    signed: Attribution,
    message: str,
    dry_run: bool,
) -> WriteReport:
    if dry_run:
        return write_report(None, await plan(None))

    async def opened() -> Storage:
        return line.storage

    async def write(session: WriteSession, planned: Plan) -> WriteReport:
        if not any(planned.values()):
            return write_report(None, planned)
        await write_plan(session, planned, message)
        return write_report(session.txn, planned)

    done = await write_with_retries(opened, signed, plan, write, collections_of)
    if done.txn is not None:
        await line.storage.wait_published(done.txn, WAIT_S)
    return done
