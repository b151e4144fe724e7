"""Read tile cells: what recent transactions changed, and the last change inside a box.

Most of it is in the log rows of transactions. Maintenance folds them into the last transaction of
each cell (`naksha.sqlite.maintenance.cells`).
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

import msgspec

from naksha.model import limits
from naksha.model.geo.tile_cells import CellLookUp
from naksha.model.transaction import MAIN
from naksha.spi.tile_cells import CellChange, CellLog
from naksha.sqlite.read import versions
from naksha.sqlite.sql import queries
from naksha.sqlite.write.states import as_json

_decode_cells: Final = msgspec.json.Decoder(list[int]).decode


def cell_log(connection: sqlite3.Connection, after_txn: int) -> CellLog:
    """See `TileCellStorage.cell_log`; pending transactions are not published."""
    number, last, settled = connection.execute(queries()["cell_log_end"]).fetchone()
    changes = [] if after_txn == last else _changes(connection, after_txn, last)
    pending = None if settled else _rows(connection, last, limits.INT8_MAX)
    return CellLog(number, last, bool(settled), changes, pending)


def _changes(connection: sqlite3.Connection, after_txn: int, last: int) -> list[CellChange] | None:
    """Return the changes between two transactions; None if they are too many or unknown."""
    first = versions.find(connection, "first_version")
    is_cut = first is not None and first.seq_number > 1 and after_txn < first.txn
    if is_cut or after_txn > last:
        return None
    return _rows(connection, after_txn, last)


def _rows(connection: sqlite3.Connection, after_txn: int, last: int) -> list[CellChange] | None:
    """Return the changes between two transactions, published or not; None if they are too many."""
    most = limits.TILE_CELL_CHANGES_MAX
    rows = connection.execute(queries()["cell_log"], (after_txn, last, most + 1)).fetchall()
    if len(rows) > most:
        return None
    return [CellChange(txn, name, overlay, _decode_cells(c)) for txn, name, overlay, c in rows]


class LastChange(NamedTuple):
    """The last transaction that changed a cell, and how many log rows were searched for it."""

    txn: int
    rows: int


def last_change(
    connection: sqlite3.Connection, collection: str, look_up: CellLookUp, overlay: int
) -> LastChange:
    """Find the last published change inside of a box, in folded cells and newer log rows."""
    cells, outer = as_json(look_up.cells), as_json(look_up.outer)
    folded = connection.execute(queries()["cells_folded"], (collection, overlay, cells, outer))
    last: int = folded.fetchone()[0]
    unfolded = queries()["cells_unfolded"]
    if overlay == MAIN:
        changed = connection.execute(unfolded, (collection, "MODIFY_COLLECTION", overlay))
        last = max(last, (changed.fetchone() or (0,))[0])
    count = 0
    for txn, text in connection.execute(unfolded, (collection, "MODIFY_FEATURES", overlay)):
        if txn <= last:
            break
        count += 1
        if look_up.meets(_decode_cells(text)):
            last = txn
    return LastChange(last, count)
