"""Branches for tests: an overlay over a version of main, or over another branch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from naksha.model.query import Query, States
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD, Version, VersionSelector
from naksha.spi.storage import BranchLayer, Storage
from naksha.testing.storage.suite_support import APP, Handle, published, raw_of

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
"""Seeds of random writes; each takes seconds."""


class BranchCase:
    """A branch and its base."""

    def __init__(self, main: Storage, layers: Sequence[BranchLayer], base: Version) -> None:
        self.main = main
        self.layers = tuple(layers)
        self.base = base
        self.storage = main.on_branch(layers)

    @property
    def overlay(self) -> int:
        return self.layers[0].overlay

    def on(self, handle: Handle) -> Handle:
        """Return the collection as this branch sees it."""
        return Handle(self.storage, handle.name)

    async def branch(self) -> BranchCase:
        """Create a branch of this one at its current state."""
        base = await published(self.main)
        overlay = await new_overlay(self.main)
        below = (BranchLayer(self.overlay, base.txn), *self.layers[1:])
        return BranchCase(self.main, (BranchLayer(overlay, None), *below), base)


async def new_overlay(storage: Storage) -> int:
    return await storage.run(lambda session: session.new_overlay(), APP)


async def branch_of(main: Storage, base: Version | None = None) -> BranchCase:
    """Create a branch of main, at its current state or at a version."""
    base = base or await published(main)
    overlay = await new_overlay(main)
    return BranchCase(main, (BranchLayer(overlay, None), BranchLayer(MAIN, base.txn)), base)


async def raw_states(handle: Handle, at: VersionSelector = HEAD) -> list[list[bytes]]:
    """Return all states that can be read of a collection, as bytes: live, deleted, and all."""
    return [raw_of(await handle.states(Query(states=kind), at)) for kind in States]
