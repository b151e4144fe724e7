"""Look-ups of tile cells that transactions have changed; see `naksha.spi.tile_cells`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from naksha.model import limits
from naksha.model.geo.tile_cells import look_up_cells
from naksha.model.query import Bbox
from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Connection
from naksha.psql.read.layers import is_overlay
from naksha.psql.sql import queries
from naksha.spi.tile_cells import CellChange, CellLog


class RecordedChange(NamedTuple):
    """The last change of some cells, 0 for none, and how many versions were looked up in the log.

    `is_settled` states that every committed transaction was published.
    """

    txn: int
    unfolded: int
    is_settled: bool


async def cell_log(connection: Connection, after_txn: int, *, is_writable: bool) -> CellLog:
    """Return the cells changed after a transaction by those that are published by now."""
    rows = await connection.fetch(
        queries()["cell_log"], after_txn, limits.TILE_CELL_CHANGES_MAX, is_writable
    )
    first = rows[0]
    changes = [
        CellChange(row["changed"], row["collection"], row["overlay_number"], row["cells"])
        for row in rows
        if row["changed"] is not None
    ]
    return CellLog(
        first["seq_number"],
        first["txn"],
        first["is_settled"],
        changes if first["is_whole"] else None,
    )


async def with_pending(connection: Connection, log: CellLog) -> CellLog:
    """Add the cells of committed transactions after the last published one."""
    most = limits.TILE_CELL_CHANGES_MAX
    rows = await connection.fetch(queries()["pending_cells"], log.txn, most + 1)
    if len(rows) > most:
        return log
    pending = [CellChange(row["txn"], row["id"], row["overlay"], row["cells"]) for row in rows]
    return msgspec.structs.replace(log, pending=pending)


async def last_cell_change(
    connection: Connection, collection: str, box: Bbox, overlay: int, *, is_writable: bool
) -> RecordedChange:
    """Return the last change of a cell of the box that is published by now."""
    if overlay != MAIN and not is_overlay(overlay):
        return RecordedChange(0, 0, True)
    row = await connection.fetchrow(
        queries()["last_cell_change"], collection, overlay, look_up_cells(box), is_writable
    )
    assert row is not None
    return RecordedChange(row["last"], row["unfolded"], row["is_settled"])
