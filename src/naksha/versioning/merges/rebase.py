"""Rebase: a branch as if it had been made from a newer version."""

from __future__ import annotations

import msgspec

from naksha.model.errors import InvalidArgument, NotFound, Retryable
from naksha.model.query import Query
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.branch_bases import layers_below, pin_base, stand_on
from naksha.versioning.lines import Place, at, line_of_branch, place_of
from naksha.versioning.merges.conflicts import conflict_id, forget_conflict, store_conflict, without
from naksha.versioning.merges.merge import (
    Choices,
    Judge,
    Lines,
    Merging,
    Policy,
    Stuck,
    decided,
    last_txn,
    lines_of,
    plan_merge,
    undone,
)
from naksha.versioning.records import (
    STORAGE,
    Branch,
    Epoch,
    Scope,
    Signed,
    branch_of,
    change_branch,
    everywhere,
)
from naksha.versioning.state_writer import WAIT_S, Written, write_plan, written_of
from naksha.versioning.version_refs import MAIN_BRANCH
from naksha.versioning.write_retry import settle


async def rebase(
    storage: Storage,
    name: str,
    signed: Signed,
    onto: str | None = None,
    *,
    scope: Scope = STORAGE,
    policy: Policy = Policy.FAIL,
    choices: Choices | None = None,
    dry_run: bool = False,
    solving: bool = False,
) -> Written:
    """Put what was changed on a branch onto a newer version of what it was made from.

    Args:
        storage: Where.
        name: The branch.
        signed: Who, and a message.
        onto: The new base; the head of the branch (or main) that it was made from if not given.
        scope: Where the names are.
        policy: What counts in a conflict; THEIRS is the branch, OURS the new base.
        choices: What counts for single features.
        dry_run: Only tell what would be written, conflicts included.
        solving: Whether a branch is made, when there are conflicts, to solve them on.
    """
    judge = Judge(policy, choices or {})
    bases: list[Place] = []

    async def opened() -> Storage:
        return storage

    async def plan(session: WriteSession | None) -> Merging:
        branch, revision = await branch_of(session or storage, scope, name)
        if session is None:
            # Who reads in a session takes the one that was found last.
            bases[:] = [await _new_base(storage, branch, onto, scope)]
        else:
            await session.freeze_overlay(branch.now.overlay)
        lines = await _lines(storage, branch, bases[-1], {name: revision}, session)
        return Merging(lines, *await plan_merge(lines, judge))

    async def write(session: WriteSession, merging: Merging) -> Written:
        await _write(session, merging, signed)
        return written_of(session.txn, merging.planned)

    if dry_run:
        return (await plan(None)).report()
    try:
        # No gates to close: what is frozen is not written to.
        done = await settle(opened, signed, decided(plan), write, lambda _: set())
    except Stuck as stuck:
        merging, made = await undone(stuck.merging, judge, solving=solving)
        places, open_ = merging.lines.places, merging.open
        raise await store_conflict(
            storage, places, open_, signed, kind="rebase", onto=onto, solving=made
        ) from None
    assert done.txn is not None
    await storage.wait_published(done.txn, WAIT_S)
    return done


async def parent_of(storage: Storage, branch: Branch) -> str:
    """The present name of what a branch was made from."""
    number, overlay = branch.parent_number, branch.now.below[0].overlay
    if number is None and overlay == MAIN:
        return MAIN_BRANCH
    for known in await everywhere(storage):
        record = known.record
        if not isinstance(record, Branch):
            continue
        # Made from a version before its parent's own ones, it stands on what that was made from.
        if record.number == number or (
            number is None and overlay in [each.overlay for each in record.epochs]
        ):
            return record.name
    raise NotFound(
        f"What {branch.name!r} was made from is gone; say onto what it is to be put", field="onto"
    )


async def _new_base(storage: Storage, branch: Branch, onto: str | None, scope: Scope) -> Place:
    """One version, whatever is written there meanwhile."""
    found = await place_of(storage, onto or f"{await parent_of(storage, branch)}:HEAD", scope)
    target = await at(found.line, AtSeq(found.version.seq_number))
    own = {epoch.overlay for epoch in branch.epochs}
    if own & {layer.overlay for layer in target.line.layers}:
        raise InvalidArgument("A branch cannot be based on itself", field="onto")
    return target


async def _lines(
    storage: Storage,
    branch: Branch,
    target: Place,
    revisions: dict[str, int],
    session: WriteSession | None,
) -> Lines:
    source = await at(line_of_branch(storage, branch).read_in(session), HEAD)
    if session is None:
        source = await at(source.line, AtSeq(source.version.seq_number))
    target = target.read_in(session)
    await _check_complete(source, target, branch)
    # Nothing is written to the new base, so it does not matter what that is about.
    return await lines_of(source, target, revisions, (source.line,))


async def _check_complete(source: Place, target: Place, branch: Branch) -> None:
    """Refuse a base that is older than a collection: what the branch has of it would be lost."""
    line = target.line
    # As the branch will see it: main itself tells of all that are there now.
    based = (line.session or line.root).on_branch(layers_below(target))
    there = {info.id for info in await based.collections()}
    for info in await source.storage.collections():
        if info.id in there or not branch.scope.covers(info.id):
            continue
        if await source.storage.count(info.id, Query(), source.at):
            raise InvalidArgument(
                f"{branch.name!r} has features of a collection that is not there yet at the new"
                " base; take a later one",
                field="onto",
                collection_id=info.id,
            )


async def _write(session: WriteSession, merging: Merging, signed: Signed) -> None:
    lines = merging.lines
    source, target = lines.source, lines.target
    branch = source.line.branch
    assert branch is not None
    await stand_on(session, target.line)
    # Who opened the branch before writes to its former overlay: not from now on.
    await session.freeze_overlay(branch.now.overlay)
    last = await last_txn(session, source, lines.bases)
    if source.at != HEAD and last != source.version.txn:
        raise Retryable(f"{branch.name!r} was written to while it was rebased")
    below = layers_below(target)
    overlay = await session.branch_off(below)
    # Always a version: until then the branch reads as it did, on its former base.
    message = signed.message or f"Rebase of {branch.name!r}"
    await write_plan(session, merging.planned, message)
    assert session.txn is not None
    epoch = Epoch(
        overlay=overlay, below=below, since=session.txn, replayed=(branch.now.overlay, last)
    )
    conflict = conflict_id("rebase", source.line, target.line)
    moved = msgspec.structs.replace(
        without(branch, conflict),
        parent=target.line.name,
        parent_number=target.line.number,
        epochs=(*branch.epochs, epoch),
    )
    await change_branch(session, moved, lines.revisions[branch.name])
    await pin_base(session, epoch, branch.scope, target.version)
    await forget_conflict(session, conflict)
