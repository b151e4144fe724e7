"""Layers of a branch: which of them a version is read in, and where their tables are.

An overlay is complete from its base version on, which is the version of the layer below it. Before
that version the branch did not exist yet, and reads the layer below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotFound
from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Connection
from naksha.psql.read.statements import LayerTables
from naksha.psql.sql import queries
from naksha.spi.storage import BranchLayer

Branch = tuple[BranchLayer, ...]
NO_BRANCH: Final[Branch] = (BranchLayer(MAIN, None),)
"""The layers of main."""
OVERLAY_MAX: Final = 2**31 - 1
"""Greatest overlay number, an int4."""


def is_overlay(number: int) -> bool:
    """Whether the number is in the range of overlay numbers."""
    return 0 < number <= OVERLAY_MAX


def check_layers(layers: Sequence[BranchLayer]) -> Branch:
    """Check that the layers can be those of a branch."""
    if len(layers) > limits.LAYERS_MAX:
        raise LimitExceeded(
            f"The branch has {len(layers)} layers; at most {limits.LAYERS_MAX} are accepted",
            field="layers",
        )
    overlays = [layer.overlay for layer in layers]
    if not layers or overlays[-1] != MAIN or MAIN in overlays[:-1]:
        raise InvalidArgument(
            "The last layer of a branch, and no other, must be main", field="layers"
        )
    if len(set(overlays)) != len(overlays) or not all(map(is_overlay, overlays[:-1])):
        raise InvalidArgument(
            "The overlays of a branch must be distinct positive int4 numbers", field="layers"
        )
    txns = [layer.txn for layer in layers]
    fixed = [txn for txn in txns if txn is not None]
    if None in txns[1:]:
        raise InvalidArgument(
            "Only the topmost layer of a branch can be read at HEAD; give each layer below a txn",
            field="layers",
        )
    if fixed != sorted(fixed, reverse=True):
        raise InvalidArgument(
            "The txn of a layer must not be greater than that of the layer above it", field="layers"
        )
    return tuple(layers)


def visible(branch: Branch, txn: int | None) -> Branch:
    """Return the layers that are read at a version, each with the transaction to read at.

    A version of None stands for HEAD.
    """
    if txn is None:
        txn = branch[0].txn
    if txn is None:
        return branch
    below = 0
    while below + 1 < len(branch) and txn <= (branch[below + 1].txn or 0):
        below += 1
    top = branch[below]
    at = txn if top.txn is None else min(txn, top.txn)
    return (BranchLayer(top.overlay, at), *branch[below + 1 :])


async def sources_of(
    connection: Connection, branch: Branch, collection: str, txn: int | None
) -> list[LayerTables]:
    """Return the sources that a statement reads.

    An overlay without tables of the collection is left out.
    """
    layers = visible(branch, txn)
    overlays = [layer.overlay for layer in layers[:-1]]
    tables: dict[int, str | None] = {MAIN: collection}
    if overlays:
        rows = await connection.fetch(queries()["overlay_tables"], collection, overlays)
        tables |= {row["overlay"]: row["table"] for row in rows}
    sources: list[LayerTables] = []
    for overlay, at in ((layer.overlay, layer.txn) for layer in layers):
        if overlay not in tables:
            raise NotFound(f"Overlay {overlay} does not exist")
        table = tables[overlay]
        if table is not None:
            masks = tuple(source.table + "_ids" for source in sources)
            sources.append(LayerTables(table, at, masks))
    return sources
