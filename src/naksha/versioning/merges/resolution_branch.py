"""Branches to resolve a conflict on: the planned result of a merge, with contested features marked.

Such a branch is based on the version that would have been merged into, and is written like any
branch. A contested feature has the values of the merged branch where both sides differ, and a mark
that the next write removes; merging this branch ends the conflict
(`naksha.versioning.merges.branch_resolution`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from naksha.model.merge import merge3
from naksha.model.state import CONFLICTING, State
from naksha.spi.clock import SystemClock
from naksha.spi.storage import BranchLayer, WriteSession
from naksha.spi.support.write_merge import content_of
from naksha.versioning.branch_bases import layers_below, pin_base, unpin_base
from naksha.versioning.lines import Place
from naksha.versioning.records import (
    REF,
    Attribution,
    Branch,
    BranchEpoch,
    UndecidedFeature,
    as_json_value,
    branch_with,
    name_taken,
)
from naksha.versioning.state_writer import Plan, StateWrite, feature_of, write_plan
from naksha.versioning.version_refs import SOLVING


class ResolutionPlan(NamedTuple):
    """Plan of a resolving branch: its base, the layers below it, and the writes to it."""

    base: Place
    below: tuple[BranchLayer, ...]
    planned: Plan


def resolution_plan(
    base: Place, planned: Plan, open_: Iterable[UndecidedFeature]
) -> ResolutionPlan:
    """Return the plan of a resolving branch with all planned writes and all undecided features."""
    whole = {name: list(writes) for name, writes in planned.items()}
    for report in open_:
        whole.setdefault(report.collection, []).append(_marked(report))
    return ResolutionPlan(base, layers_below(base), whole)


def _marked(report: UndecidedFeature) -> StateWrite:
    """Return the write of a contested feature with its mark.

    Of a feature that one side deleted, the other side is written, as the only content to show.
    """
    ours, theirs = report.ours, report.theirs
    head = None if ours is None else State(report.id, msgspec.json.encode(ours))
    content: Any
    if ours is None or theirs is None:
        side = ours or theirs
        assert side is not None
        content = content_of(side)
    else:
        base = {} if report.base is None else content_of(report.base)
        content = merge3(base, content_of(ours), content_of(theirs), prefer="theirs").value
    return StateWrite(report.id, head, {**feature_of(content), CONFLICTING: True})


async def create_resolution_branch(
    session: WriteSession,
    solving: ResolutionPlan,
    owner: Branch,
    conflict: str,
    signed: Attribution,
) -> Branch:
    """Create the overlay of a resolving branch and fill it.

    The session must be unused, and is a session of that branch afterwards. Then
    `store_resolution_branch` stores the returned record.
    """
    overlay = await session.branch_off(solving.below)
    message = f"The conflicts of branch {owner.name!r}"
    await write_plan(session, solving.planned, message)
    base = solving.base
    return Branch(
        name=SOLVING + owner.name,
        scope=owner.scope,
        parent=base.line.name,
        parent_number=base.line.number,
        epochs=(BranchEpoch(overlay=overlay, below=solving.below, since=base.version.txn),),
        description=f"To solve the conflicts of branch {owner.name!r}",
        author=signed.author,
        app_id=signed.app_id,
        created_ms=SystemClock().now_ms(),
        solves=conflict,
    )


async def store_resolution_branch(
    session: WriteSession, branch: Branch, solving: ResolutionPlan
) -> None:
    """Store the record of a resolving branch, which makes it visible."""
    key = branch.scope.key(branch.name)
    if await session.stored_object(REF, key) is not None:
        raise name_taken(branch.name)
    await session.store_object(REF, key, as_json_value(branch), expected=0)
    await pin_base(session, branch.now, branch.scope, solving.base.version)


async def drop_resolution_branch(session: WriteSession, number: int) -> None:
    """Remove a resolving branch with everything written to it, if it exists."""
    known = await branch_with(session, number)
    if known is None or known[0].solves is None:
        return
    branch, revision = known
    await session.remove_object(REF, branch.scope.key(branch.name), expected=revision)
    await unpin_base(session, branch.now, branch.scope)
    await session.drop_overlay(branch.now.overlay)
