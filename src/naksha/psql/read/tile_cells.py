"""Look-ups of tile cells that transactions have changed; see `naksha.spi.tile_cells`."""

from __future__ import annotations

from naksha.model import limits
from naksha.model.geo.tile_cells import look_up_cells
from naksha.model.query import Bbox
from naksha.psql.connection.driver import Connection
from naksha.psql.read.layers import is_overlay
from naksha.psql.sql import queries
from naksha.spi.tile_cells import CellChange, CellLog


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


async def last_cell_change(
    connection: Connection, collection: str, box: Bbox, overlay: int
) -> tuple[int, int]:
    """Return the last published txn that changed a cell of the box; 0 for none.

    The second number is how many versions had to be looked up in the log.
    """
    if overlay != 0 and not is_overlay(overlay):
        return 0, 0
    row = await connection.fetchrow(
        queries()["last_cell_change"], collection, overlay, look_up_cells(box)
    )
    assert row is not None
    return row["last"], row["unfolded"]
