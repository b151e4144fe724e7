"""Resolve a conflict with the contents of the branch that was made for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from naksha.model.errors import Conflict, InvalidArgument, MergeConflict, NotFound, Retryable
from naksha.model.query import Op, Query
from naksha.model.query import Test as PropertyTest
from naksha.model.state import CONFLICTING
from naksha.model.transaction import MAIN
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.branch_bases import pin_merge
from naksha.versioning.diff import lookup
from naksha.versioning.lines import Place, at, line_of, line_of_branch
from naksha.versioning.merges.conflicts import (
    conflict_of,
    forget_conflict,
    undecided_of,
    without_conflict,
)
from naksha.versioning.merges.merge import (
    MergeDecider,
    MergePolicy,
    MergeSides,
    PlannedMerge,
    UndecidedMerge,
    last_txn,
    merge_sides,
    merged_at,
    plan_merge,
    require_decisions,
    with_merge_point,
)
from naksha.versioning.records import (
    CONFLICT,
    REF,
    STORAGE,
    Attribution,
    Branch,
    NameScope,
    StoredConflict,
    as_json_value,
    branch_of,
    branch_with,
    change_branch,
)
from naksha.versioning.state_writer import WAIT_S, Plan, WriteReport, write_plan, write_report
from naksha.versioning.version_refs import MAIN_BRANCH
from naksha.versioning.write_retry import write_with_retries


async def merge_resolution(
    storage: Storage,
    name: str,
    target: str,
    signed: Attribution,
    *,
    scope: NameScope = STORAGE,
    policy: MergePolicy = MergePolicy.FAIL,
    dry_run: bool = False,
) -> WriteReport:
    """Complete a merge or rebase as it was resolved on a branch, which is then removed.

    Args:
        storage: The storage.
        name: The branch on which the conflict was resolved.
        target: The target of the merge; for a rebase, the rebased branch itself.
        signed: App id and author, with the commit message.
        scope: The scope of the names.
        policy: The side that prevails where the target was changed in the meantime.
        dry_run: Only report what would be written.

    Raises:
        MergeConflict: A feature is still marked, or the target was changed in the same places.
    """
    branch, _ = await branch_of(storage, scope, name)
    if branch.solves is None:
        raise InvalidArgument(
            f"Branch {name!r} was not made to resolve a conflict; merge it as any other branch",
            field="branch",
        )
    stored = await conflict_of(storage, branch.solves)
    is_rebase = stored.kind == "rebase"
    into = await _name_of(storage, stored.source if is_rebase else stored.target)
    if target != into:
        raise InvalidArgument(
            f"Branch {name!r} can only be merged into {into!r}", field="targetBranchId"
        )
    if is_rebase:
        await _check_decided(storage, stored, branch)
        return await _take_over(storage, stored, branch, signed, dry_run=dry_run)
    return await _ResolutionMerge(storage, stored, branch, signed, policy).run(
        into, dry_run=dry_run
    )


async def _name_of(storage: Storage, number: int) -> str:
    if number == MAIN:
        return MAIN_BRANCH
    known = await branch_with(storage, number)
    if known is None:
        raise NotFound(
            f"Branch number {number} of the conflict was deleted, so the conflict cannot be"
            " resolved; give the conflict up",
            field="branch",
        )
    return known[0].name


async def _still_open(
    storage: Storage, stored: StoredConflict, ids: Iterable[str]
) -> MergeConflict:
    left = set(ids)
    reports = [each async for each in undecided_of(storage, stored.id) if each.id in left]
    return MergeConflict(
        f"Conflict {stored.id!r} still has {len(left)} undecided feature(s); write or delete each "
        "of them on the branch",
        undecided=[msgspec.to_builtins(each) for each in reports],
        id=stored.id,
    )


# ---- A merge -------------------------------------------------------------------------------------


class _ResolutionMerge:
    """Merge the contents of a resolving branch in the name of the branch in conflict."""

    def __init__(
        self,
        storage: Storage,
        stored: StoredConflict,
        branch: Branch,
        signed: Attribution,
        policy: MergePolicy,
    ) -> None:
        self._storage = storage
        self._stored = stored
        self._branch = branch
        self._signed = signed
        self._decider = MergeDecider(policy, {})

    async def run(self, into: str, *, dry_run: bool) -> WriteReport:
        async def open_target() -> Storage:
            return (await line_of(self._storage, into, self._branch.scope)).storage

        async def plan(session: WriteSession | None) -> PlannedMerge:
            return await self._plan(into, session)

        await self._source(None)
        if dry_run:
            return (await plan(None)).report()
        try:
            done = await write_with_retries(
                open_target,
                self._signed,
                require_decisions(plan),
                self._write,
                PlannedMerge.touched,
            )
        except UndecidedMerge as error:
            open_ = error.planned_merge.open
            raise MergeConflict(
                f"{into!r} was changed in the same places of {len(open_)} feature(s) since the "
                "conflict arose; merge with the policy ours or theirs, or abandon the conflict "
                "and merge the branch again",
                undecided=[msgspec.to_builtins(each) for each in open_],
                id=self._stored.id,
            ) from None
        if done.txn is not None:
            await self._storage.wait_published(done.txn, WAIT_S)
        return done

    async def _plan(self, into: str, session: WriteSession | None) -> PlannedMerge:
        branch = self._branch
        sides = await merge_sides(self._storage, branch.name, into, branch.scope, session)
        planned, open_ = await plan_merge(sides, self._decider)
        left = [
            write.id
            for writes in planned.values()
            for write in writes
            if write.feature is not None and CONFLICTING in write.feature
        ]
        left += [each.id for each in open_ if each.theirs and CONFLICTING in each.theirs]
        if left:
            raise await _still_open(self._storage, self._stored, left)
        source = await self._source(session)
        return PlannedMerge(sides, await _with_origins(planned, source), open_)

    async def _source(self, session: WriteSession | None) -> Place:
        """Return the source of the merge, a branch or main, as it was when the conflict arose."""
        spot = self._stored.spots[2]
        line = await line_of(self._storage, MAIN_BRANCH)
        if self._stored.source != MAIN:
            known = await branch_with(session or self._storage, self._stored.source)
            if known is None or known[0].now.overlay != spot.layers[0].overlay:
                raise _moved()
            line = line_of_branch(self._storage, known[0])
        return await at(line.read_in(session), AtSeq(spot.seq_number))

    async def _write(self, session: WriteSession, planned_merge: PlannedMerge) -> WriteReport:
        sides = planned_merge.sides
        await _check_unchanged(session, sides)
        source = await self._source(session)
        known = await branch_with(session, self._stored.source or self._stored.target)
        if known is None:
            raise _moved()
        owner, revision = known
        if planned_merge.planned:
            message = self._signed.message or f"Merge of {source.line.name!r}"
            await write_plan(session, planned_merge.planned, message)
        at_txn = await merged_at(session, sides)
        merged = with_merge_point(owner, replace(sides, source=source), at_txn)
        await change_branch(session, merged, revision)
        await pin_merge(session, owner, source.version, sides.bases)
        await forget_conflict(session, self._stored.id)
        return write_report(session.txn, planned_merge.planned)


async def _check_unchanged(session: WriteSession, sides: MergeSides) -> None:
    """Raise Retryable if a branch was changed after the merge was planned."""
    for place in (sides.source, sides.target):
        branch = place.line.branch
        if branch is not None:
            _, revision = await branch_of(session, branch.scope, branch.name)
            if revision != sides.revisions[branch.name]:
                raise Retryable(
                    f"Branch {branch.name!r} was changed concurrently; retry", field="branch"
                )


async def _with_origins(planned: Plan, source: Place) -> Plan:
    """Set the source of the merge as the origin of the features.

    The resolving branch that the writes were planned from is removed.
    """
    found: Plan = {}
    for name, writes in planned.items():
        states = await lookup(source, name, [write.id for write in writes])
        origins = {id: state.uuid for id, state in states.items()}
        found[name] = [
            msgspec.structs.replace(write, origin=origins.get(write.id)) for write in writes
        ]
    return found


def _moved() -> Conflict:
    return Conflict(
        "A branch of the conflict was rebased or deleted since the conflict arose; give the"
        " conflict up and merge again",
        field="branch",
    )


# ---- A rebase ------------------------------------------------------------------------------------


async def _check_decided(storage: Storage, stored: StoredConflict, branch: Branch) -> None:
    line = line_of_branch(storage, branch)
    query = Query(where=PropertyTest((CONFLICTING,), Op.EXISTS))
    left = [
        state.id
        for info in await line.storage.collections()
        if branch.scope.covers(info.id)
        async for state in line.storage.states(info.id, query)
    ]
    if left:
        raise await _still_open(storage, stored, left)


async def _take_over(
    storage: Storage, stored: StoredConflict, branch: Branch, signed: Attribution, *, dry_run: bool
) -> WriteReport:
    """Continue the branch on its new base with the overlay of the resolving branch.

    Nothing is copied.
    """
    if dry_run:
        return write_report(None, {})
    spot = stored.spots[2]

    async def work(session: WriteSession) -> int:
        known = await branch_with(session, stored.source)
        if known is None or known[0].now.overlay != spot.layers[0].overlay:
            raise _moved()
        moved, revision = known
        await session.freeze_overlay(moved.now.overlay)
        source = await at(line_of_branch(storage, moved), AtSeq(spot.seq_number))
        names = [i.id for i in await storage.collections() if moved.scope.covers(i.id)]
        last = await last_txn(session, source, names)
        if last != source.version.txn:
            raise _moved()
        await write_plan(session, {}, signed.message or f"Rebase of {moved.name!r}")
        assert session.txn is not None
        epoch = msgspec.structs.replace(
            branch.now, since=session.txn, replayed=(moved.now.overlay, last)
        )
        record = msgspec.structs.replace(
            without_conflict(moved, stored.id),
            parent=branch.parent,
            parent_number=branch.parent_number,
            epochs=(*moved.epochs, epoch),
        )
        await change_branch(session, record, revision)
        await _forget_name(session, stored, branch)
        return session.txn

    line = line_of_branch(storage, branch)
    txn = await line.storage.run(work, signed.app_id, signed.author)
    await storage.wait_published(txn, WAIT_S)
    return write_report(txn, {})


async def _forget_name(session: WriteSession, stored: StoredConflict, branch: Branch) -> None:
    """Remove the conflict and the record of the resolving branch, but keep its overlay."""
    _, revision = await branch_of(session, branch.scope, branch.name)
    await session.remove_object(REF, branch.scope.key(branch.name), expected=revision)
    await session.store_object(
        CONFLICT, stored.id, as_json_value(msgspec.structs.replace(stored, solving=None))
    )
    await forget_conflict(session, stored.id)
