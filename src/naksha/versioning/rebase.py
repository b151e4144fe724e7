"""Rebase: a branch as if it had been made from a newer version."""

from __future__ import annotations

import asyncio

import msgspec

from naksha.model import limits
from naksha.model.errors import Conflict, InvalidArgument, NotFound, Retryable
from naksha.model.query import Query, States
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, AtSeq
from naksha.spi.storage import Layer, Storage, WriteSession
from naksha.versioning.branches import layers_below, pin_base
from naksha.versioning.changesets import MESSAGE
from naksha.versioning.conflicts import conflict_id, store_conflict, without
from naksha.versioning.merges import (
    ATTEMPTS,
    Choices,
    Judge,
    Lines,
    Policy,
    lines_of,
    plan_merge,
)
from naksha.versioning.places import at, line_of_branch, line_on, place_of
from naksha.versioning.records import (
    CONFLICT,
    REF,
    STORAGE,
    Branch,
    Epoch,
    Scope,
    Signed,
    branch_of,
    everywhere,
    plain,
)
from naksha.versioning.refs import MAIN_BRANCH
from naksha.versioning.writing import WAIT_S, Plan, Written, write_all, written_of


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
    """
    for _ in range(ATTEMPTS):
        branch, revision = await branch_of(storage, scope, name)
        newest = f"{await parent_of(storage, branch)}:HEAD"
        lines = await _lines(storage, branch, onto or newest, scope)
        planned, open_ = await plan_merge(lines, Judge(policy, choices or {}))
        if dry_run:
            return msgspec.structs.replace(written_of(None, planned), conflicts=tuple(open_))
        if open_:
            sides = lines.source.line, lines.target.line
            raise await store_conflict(storage, *sides, open_, signed, kind="rebase", onto=onto)
        try:
            txn = await _write(storage, branch, revision, lines, planned, signed)
            return written_of(txn, planned)
        except (Conflict, Retryable):
            await asyncio.sleep(limits.RETRY_DELAY_MS_MIN / 1000)
    raise Retryable(f"{name!r} was changed during every one of {ATTEMPTS} attempts to rebase")


async def parent_of(storage: Storage, branch: Branch) -> str:
    """The present name of what a branch was made from."""
    overlay = branch.now.below[0].overlay
    if overlay == MAIN:
        return MAIN_BRANCH
    for known in await everywhere(storage):
        record = known.record
        if isinstance(record, Branch) and overlay in [each.overlay for each in record.epochs]:
            return record.name
    raise NotFound(
        f"What {branch.name!r} was made from is gone; say onto what it is to be put", field="onto"
    )


async def _lines(storage: Storage, branch: Branch, onto: str, scope: Scope) -> Lines:
    last = await at(line_of_branch(storage, branch), HEAD)
    source = await at(last.line, AtSeq(last.version.seq_number))
    found = await place_of(storage, onto, scope)
    # One version of it, whatever is written there meanwhile.
    target = await at(found.line, AtSeq(found.version.seq_number))
    own = {epoch.overlay for epoch in branch.epochs}
    if own & {layer.overlay for layer in target.line.layers}:
        raise InvalidArgument("A branch cannot be based on itself", field="onto")
    return await lines_of(storage, source, target, {})


async def _write(
    storage: Storage,
    branch: Branch,
    revision: int,
    lines: Lines,
    planned: Plan,
    signed: Signed,
) -> int:
    async def reserve(session: WriteSession) -> int:
        return await session.new_overlay()

    overlay = await storage.run(reserve, signed.app_id, signed.author)
    below = layers_below(lines.target)
    line = line_on(storage, branch.name, (Layer(overlay, None), *below))
    async with line.storage.write(signed.app_id, signed.author) as session:
        # Who opened the branch before writes to its former overlay: not from now on.
        await session.freeze_overlay(branch.now.overlay)
        await _check_still(lines)
        for name, writes in planned.items():
            await write_all(session, name, writes)
        # Always a version: until then the branch reads as it did, on its former base.
        await session.message(MESSAGE, signed.message or f"Rebase of {branch.name!r}")
        assert session.txn is not None
        epoch = Epoch(
            overlay=overlay,
            below=below,
            since=session.txn,
            replayed=(branch.now.overlay, lines.source.version.txn),
        )
        parent = lines.target.line.name
        conflict = conflict_id("rebase", lines.source.line, lines.target.line)
        moved = msgspec.structs.replace(branch, parent=parent, epochs=(*branch.epochs, epoch))
        moved = without(moved, conflict)
        await session.keep(REF, branch.scope.key(branch.name), plain(moved), expected=revision)
        await pin_base(session, epoch, branch.scope, lines.target.version)
        await session.forget(CONFLICT, conflict)
    await storage.wait_published(session.txn, WAIT_S)
    return session.txn


async def _check_still(lines: Lines) -> None:
    """Nothing may have been written on the branch, published or not, since it was read."""
    source = lines.source
    since = Query(states=States.ALL, txn_from=source.version.txn + 1)
    for name in lines.names:
        if await source.storage.count(name, since):
            raise Retryable(f"{source.line.name!r} was written to while it was rebased")
