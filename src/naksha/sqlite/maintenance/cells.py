"""Fold the tile cells of log rows into the last transaction of each cell.

Look-ups then need not search the log, and log rows can expire.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from naksha.sqlite.sql import queries
from naksha.sqlite.write.writer import WriterThread

UNFOLDED_MAX: Final = 500
"""Log rows that a look-up searches before it folds them."""
_STEP_BYTES: Final = 40_000
"""Size of the log rows folded in one step, for which writers wait."""
_CELLS_MAX: Final = 5_000
"""Number of cells deleted in one step."""


def fold(connection: sqlite3.Connection) -> int:
    """Fold the next published transactions; return the number of log rows."""
    upto, count, total = 0, 0, 0
    for txn, size in connection.execute(queries()["cells_due"]):
        # All rows of a transaction are folded together.
        if txn != upto and total > _STEP_BYTES:
            break
        upto, count, total = txn, count + 1, total + size
    if count:
        connection.execute(queries()["cells_fold"], (upto,))
        connection.execute(queries()["cells_folded_set"], (upto,))
    return count


def forget(connection: sqlite3.Connection) -> int:
    """Delete a batch of cells of a removed collection or dropped overlay; return their number."""
    place: tuple[str, int] = ("", -1)
    while row := connection.execute(queries()["cells_next"], place).fetchone():
        place = row[:2]
        if row[2]:
            return connection.execute(queries()["cells_forget"], (*place, _CELLS_MAX)).rowcount
    return 0


def folded_txn(connection: sqlite3.Connection) -> int:
    """Return the transaction up to which all are folded."""
    txn: int = connection.execute(queries()["cells_folded_txn"]).fetchone()[0]
    return txn


async def fold_all(writer: WriterThread) -> None:
    """Fold all published transactions in short steps, between which others write."""
    while await writer.task(fold):
        pass
