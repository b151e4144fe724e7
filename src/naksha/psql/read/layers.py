"""The layers of a branch: which of them a version is read in, and where their tables are.

An overlay is complete from the version on that it stands on, which is that of the layer below it.
Before that version the branch was not there yet, and reads what is below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naksha.model import limits
from naksha.model.errors import InvalidArgument, LimitExceeded, NotFound
from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Connection
from naksha.psql.read.statements import Source
from naksha.psql.sql import queries
from naksha.spi.storage import Layer

Branch = tuple[Layer, ...]
NO_BRANCH: Final[Branch] = (Layer(MAIN, None),)
"""Main itself."""
OVERLAY_MAX: Final = 2**31 - 1
"""Overlays are counted by an int4."""


def is_overlay(number: int) -> bool:
    """Whether it can be the number of an overlay."""
    return 0 < number <= OVERLAY_MAX


def check_layers(layers: Sequence[Layer]) -> Branch:
    """Refuse what cannot be the layers of a branch."""
    if len(layers) > limits.LAYERS_MAX:
        raise LimitExceeded(f"{len(layers)} layers, more than {limits.LAYERS_MAX}", field="layers")
    overlays = [layer.overlay for layer in layers]
    if not layers or overlays[-1] != MAIN or MAIN in overlays[:-1]:
        raise InvalidArgument("The last layer of a branch, and only that, is main", field="layers")
    if len(set(overlays)) != len(overlays) or not all(map(is_overlay, overlays[:-1])):
        raise InvalidArgument("The overlays of a branch are different ones", field="layers")
    txns = [layer.txn for layer in layers]
    fixed = [txn for txn in txns if txn is not None]
    if None in txns[1:]:
        raise InvalidArgument("Only the topmost layer is read at HEAD", field="layers")
    if fixed != sorted(fixed, reverse=True):
        raise InvalidArgument("A layer is not younger than the one above", field="layers")
    return tuple(layers)


def visible(branch: Branch, txn: int | None) -> Branch:
    """The layers that are read at a version (None: HEAD), each with the transaction to read at."""
    if txn is None:
        txn = branch[0].txn
    if txn is None:
        return branch
    below = 0
    while below + 1 < len(branch) and txn <= (branch[below + 1].txn or 0):
        below += 1
    top = branch[below]
    at = txn if top.txn is None else min(txn, top.txn)
    return (Layer(top.overlay, at), *branch[below + 1 :])


async def sources_of(
    connection: Connection, branch: Branch, collection: str, txn: int | None
) -> list[Source]:
    """What a statement reads. An overlay that nothing of the collection was written to is left
    out."""
    layers = visible(branch, txn)
    overlays = [layer.overlay for layer in layers[:-1]]
    tables: dict[int, str | None] = {MAIN: collection}
    if overlays:
        rows = await connection.fetch(queries()["overlay_tables"], collection, overlays)
        tables |= {row["overlay"]: row["table"] for row in rows}
    sources: list[Source] = []
    for overlay, at in ((layer.overlay, layer.txn) for layer in layers):
        if overlay not in tables:
            raise NotFound(f"There is no overlay {overlay}")
        table = tables[overlay]
        if table is not None:
            masks = tuple(source.table + "_ids" for source in sources)
            sources.append(Source(table, at, masks))
    return sources
