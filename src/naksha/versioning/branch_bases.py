"""What a branch stands on, and what is protected for it."""

from __future__ import annotations

from collections.abc import Collection

from naksha.model.errors import LimitExceeded, NotFound, NotSupported
from naksha.model.transaction import MAIN
from naksha.model.version import Version
from naksha.spi.storage import Layer, WriteSession
from naksha.versioning.lines import Line, Place
from naksha.versioning.records import (
    LAYERS_MAX,
    Branch,
    Epoch,
    Scope,
    branch_over,
    change_branch,
    pins_of,
)


def layers_below(place: Place) -> tuple[Layer, ...]:
    """What a branch has below it that starts at a place: all layers, none newer than that."""
    txn = place.version.txn
    layers = tuple(
        Layer(each.overlay, txn if each.txn is None else min(each.txn, txn))
        for each in place.line.layers
    )
    # Until its base a branch is what is below it.
    while len(layers) > 1 and layers[1].txn == txn:
        layers = layers[1:]
    if len(layers) >= LAYERS_MAX:
        raise LimitExceeded(f"A branch has at most {LAYERS_MAX - 1} branches below it")
    return layers


async def stand_on(session: WriteSession, line: Line) -> None:
    """Make sure that a branch is not deleted while something is made that needs it; to be done
    before anything else that a deletion waits for."""
    if line.overlay == MAIN:
        return
    known = await branch_over(session, line.overlay)
    if known is None:
        raise NotFound(f"There is no branch {line.name!r}", field="branch")
    if known[0].solves is not None:
        raise NotSupported(
            f"{line.name!r} goes when its conflict is solved; nothing can be made from it",
            field="branch",
        )
    await change_branch(session, *known)


async def pin_base(session: WriteSession, epoch: Epoch, scope: Scope, version: Version) -> None:
    """Protect what a branch stands on."""
    if version.seq_number == 0:
        return
    for name, collection in _pins(epoch, scope):
        await session.pin(name, version, collection, guards=True)


async def pin_merge(
    session: WriteSession, branch: Branch, version: Version, merged: Collection[str]
) -> None:
    """Protect the last version that was merged: the next merge begins there. Of the collections of
    a branch the other one may not have all."""
    if version.seq_number > 0:
        for name, collection in _pins(branch.now, branch.scope, "merged"):
            if collection is None or collection in merged:
                await session.pin(name, version, collection, guards=True)


async def unpin_base(session: WriteSession, epoch: Epoch, scope: Scope) -> None:
    """Protect nothing for it any longer."""
    for name, _ in [*_pins(epoch, scope), *_pins(epoch, scope, "merged")]:
        await session.unpin(name)


def _pins(epoch: Epoch, scope: Scope, what: str = "branch") -> list[tuple[str, str | None]]:
    # By the number, which stays when the branch is renamed.
    return pins_of(f"{what}:{epoch.overlay}", scope)
