"""Rebase: move a branch onto a newer version, as if it had been made from that."""

from __future__ import annotations

import msgspec

from naksha.model.errors import InvalidArgument, NotFound, Retryable
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.branch_bases import layers_below, lock_branch, pin_base
from naksha.versioning.lines import Place, at, line_of_branch, place_of
from naksha.versioning.merges.conflicts import (
    conflict_id,
    forget_conflict,
    store_conflict,
    without_conflict,
)
from naksha.versioning.merges.merge import (
    Choices,
    MergeDecider,
    MergePolicy,
    MergeSides,
    PlannedMerge,
    UndecidedMerge,
    last_txn,
    plan_merge,
    require_decisions,
    sides_of,
    undecided_merge,
)
from naksha.versioning.records import (
    STORAGE,
    Attribution,
    Branch,
    BranchEpoch,
    NameScope,
    all_records,
    branch_of,
    change_branch,
)
from naksha.versioning.state_writer import WAIT_S, WriteReport, write_plan, write_report
from naksha.versioning.version_refs import MAIN_BRANCH
from naksha.versioning.write_retry import write_with_retries


async def rebase(
    storage: Storage,
    name: str,
    signed: Attribution,
    onto: str | None = None,
    *,
    scope: NameScope = STORAGE,
    policy: MergePolicy = MergePolicy.FAIL,
    choices: Choices | None = None,
    dry_run: bool = False,
    solving: bool = False,
) -> WriteReport:
    """Put the changes of a branch onto a newer version of its parent.

    Args:
        storage: The storage.
        name: The branch.
        signed: App id and author, with the commit message.
        onto: The new base; by default the head of the branch (or main) that it was made from.
        scope: The scope of the names.
        policy: The side that prevails in a conflict; THEIRS is the branch, OURS the new base.
        choices: Choices for single features.
        dry_run: Only report what would be written, conflicts included.
        solving: Whether to create a branch to resolve conflicts on, if there are any.

    Raises:
        MergeConflict: Features need a decision; nothing was written.
    """
    decider = MergeDecider(policy, choices or {})
    bases: list[Place] = []

    async def open_target() -> Storage:
        return storage

    async def plan(session: WriteSession | None) -> PlannedMerge:
        branch, revision = await branch_of(session or storage, scope, name)
        if session is None:
            # A plan inside a session uses the base that the last plan found.
            bases[:] = [await _new_base(storage, branch, onto, scope)]
        else:
            await session.freeze_overlay(branch.now.overlay)
        sides = await _sides(storage, branch, bases[-1], {name: revision}, session)
        return PlannedMerge(sides, *await plan_merge(sides, decider))

    async def write(session: WriteSession, planned_merge: PlannedMerge) -> WriteReport:
        await _write(session, planned_merge, signed)
        return write_report(session.txn, planned_merge.planned)

    if dry_run:
        return (await plan(None)).report()
    try:
        # No gates need to be closed: the overlay of the branch is frozen.
        done = await write_with_retries(
            open_target, signed, require_decisions(plan), write, lambda _: set()
        )
    except UndecidedMerge as error:
        planned_merge, resolution = await undecided_merge(
            error.planned_merge, decider, solving=solving
        )
        places, open_ = planned_merge.sides.places, planned_merge.open
        raise await store_conflict(
            storage, places, open_, signed, kind="rebase", onto=onto, solving=resolution
        ) from None
    assert done.txn is not None
    await storage.wait_published(done.txn, WAIT_S)
    return done


async def parent_of(storage: Storage, branch: Branch) -> str:
    """Return the current name of the branch (or main) that a branch was made from."""
    number, overlay = branch.parent_number, branch.now.below[0].overlay
    if number is None and overlay == MAIN:
        return MAIN_BRANCH
    for known in await all_records(storage):
        record = known.record
        if not isinstance(record, Branch):
            continue
        # A branch made from a version before the first one of its parent is based on what the
        # parent was made from.
        if record.number == number or (
            number is None and overlay in [each.overlay for each in record.epochs]
        ):
            return record.name
    raise NotFound(
        f"The parent of branch {branch.name!r} was deleted; give a new base in onto", field="onto"
    )


async def _new_base(storage: Storage, branch: Branch, onto: str | None, scope: NameScope) -> Place:
    """Return the new base as one fixed version, whatever is written there in the meantime."""
    found = await place_of(storage, onto or f"{await parent_of(storage, branch)}:HEAD", scope)
    target = await at(found.line, AtSeq(found.version.seq_number))
    own = {epoch.overlay for epoch in branch.epochs}
    if own & {layer.overlay for layer in target.line.layers}:
        raise InvalidArgument(
            f"Branch {branch.name!r} cannot be rebased onto itself or onto a branch made from it;"
            " use another base",
            field="onto",
        )
    return target


async def _sides(
    storage: Storage,
    branch: Branch,
    target: Place,
    revisions: dict[str, int],
    session: WriteSession | None,
) -> MergeSides:
    source = await at(line_of_branch(storage, branch).read_in(session), HEAD)
    if session is None:
        source = await at(source.line, AtSeq(source.version.seq_number))
    target = target.read_in(session)
    await _check_complete(source, target, branch)
    # Nothing is written to the new base, so its scope does not matter.
    return await sides_of(source, target, revisions, (source.line,))


async def _check_complete(source: Place, target: Place, branch: Branch) -> None:
    """Reject a base that is older than a collection of the branch.

    The features that the branch has of that collection would be lost.
    """
    line = target.line
    # Read the base as the branch will: main itself lists all collections that exist now.
    based = (line.session or line.root).on_branch(layers_below(target))
    existing = {info.id for info in await based.collections()}
    for info in await source.storage.collections():
        if info.id in existing or not branch.scope.covers(info.id):
            continue
        if await source.storage.count(info.id, Query(), source.at):
            raise InvalidArgument(
                f"Branch {branch.name!r} has features of collection {info.id!r}, which does not"
                " exist at the new base; use a later base",
                field="onto",
                collection_id=info.id,
            )


async def _write(session: WriteSession, planned_merge: PlannedMerge, signed: Attribution) -> None:
    sides = planned_merge.sides
    source, target = sides.source, sides.target
    branch = source.line.branch
    assert branch is not None
    await lock_branch(session, target.line)
    # Clients that opened the branch before write to its former overlay; freeze it.
    await session.freeze_overlay(branch.now.overlay)
    last = await last_txn(session, source, sides.bases)
    if source.at != HEAD and last != source.version.txn:
        raise Retryable(f"Branch {branch.name!r} was written to during the rebase; retry")
    below = layers_below(target)
    overlay = await session.branch_off(below)
    # Always create a version: until then the branch reads as before, on its former base.
    message = signed.message or f"Rebase of {branch.name!r}"
    await write_plan(session, planned_merge.planned, message)
    assert session.txn is not None
    epoch = BranchEpoch(
        overlay=overlay, below=below, since=session.txn, replayed=(branch.now.overlay, last)
    )
    conflict = conflict_id("rebase", source.line, target.line)
    moved = msgspec.structs.replace(
        without_conflict(branch, conflict),
        parent=target.line.name,
        parent_number=target.line.number,
        epochs=(*branch.epochs, epoch),
    )
    await change_branch(session, moved, sides.revisions[branch.name])
    await pin_base(session, epoch, branch.scope, target.version)
    await forget_conflict(session, conflict)
