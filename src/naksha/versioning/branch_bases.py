"""Bases of branches: the layers below a branch, and the pins that protect them."""

from __future__ import annotations

from collections.abc import Collection

from naksha.model.errors import LimitExceeded, NotFound, NotSupported
from naksha.model.transaction import MAIN
from naksha.model.version import Version
from naksha.spi.storage import BranchLayer, WriteSession
from naksha.versioning.lines import Line, Place
from naksha.versioning.records import (
    LAYERS_MAX,
    Branch,
    BranchEpoch,
    NameScope,
    branch_over,
    change_branch,
    pins_of,
)


def layers_below(place: Place) -> tuple[BranchLayer, ...]:
    """Return the layers below a branch that starts at a place, none newer than the place.

    Raises:
        LimitExceeded: The branch would have more than the permitted number of branches below it.
    """
    txn = place.version.txn
    layers = tuple(
        BranchLayer(each.overlay, txn if each.txn is None else min(each.txn, txn))
        for each in place.line.layers
    )
    # At its base a branch is identical to what is below it, so the topmost layer is redundant.
    while len(layers) > 1 and layers[1].txn == txn:
        layers = layers[1:]
    if len(layers) >= LAYERS_MAX:
        raise LimitExceeded(
            f"A branch can have at most {LAYERS_MAX - 1} branches below it; start from main or from"
            " a branch closer to it"
        )
    return layers


async def lock_branch(session: WriteSession, line: Line) -> None:
    """Prevent a branch from being deleted while something that needs it is created.

    It rewrites the branch record, the same row that a deletion removes, so one of the two fails.
    Call it before anything else that a deletion waits for.

    Raises:
        NotFound: There is no such branch any more.
        NotSupported: The branch exists only to resolve a conflict.
    """
    if line.overlay == MAIN:
        return
    known = await branch_over(session, line.overlay)
    if known is None:
        raise NotFound(
            f"Branch {line.name!r} does not exist any more; use another base", field="branch"
        )
    if known[0].solves is not None:
        raise NotSupported(
            f"Branch {line.name!r} only exists until its conflict is resolved; use another base",
            field="branch",
        )
    await change_branch(session, *known)


async def pin_base(
    session: WriteSession, epoch: BranchEpoch, scope: NameScope, version: Version
) -> None:
    """Pin the version that a branch is based on."""
    if version.seq_number == 0:
        return
    for name, collection in _pins(epoch, scope):
        await session.pin(name, version, collection, guards=True)


async def pin_merge(
    session: WriteSession, branch: Branch, version: Version, merged: Collection[str]
) -> None:
    """Pin the last version that was merged, where the next merge begins.

    A branch that is limited to some collections pins only those that were merged; the other line
    may lack the rest.
    """
    if version.seq_number > 0:
        for name, collection in _pins(branch.now, branch.scope, "merged"):
            if collection is None or collection in merged:
                await session.pin(name, version, collection, guards=True)


async def unpin_base(session: WriteSession, epoch: BranchEpoch, scope: NameScope) -> None:
    """Remove the pins of a branch's base and of its merges."""
    for name, _ in [*_pins(epoch, scope), *_pins(epoch, scope, "merged")]:
        await session.unpin(name)


def _pins(
    epoch: BranchEpoch, scope: NameScope, what: str = "branch"
) -> list[tuple[str, str | None]]:
    # Pins are named by the branch number, which does not change when the branch is renamed.
    return pins_of(f"{what}:{epoch.overlay}", scope)
