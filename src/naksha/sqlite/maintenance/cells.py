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
    """Delete the cells of removed collections and dropped overlays; return their number."""
    return connection.execute(queries()["cells_forget"]).rowcount


def folded_txn(connection: sqlite3.Connection) -> int:
    """Return the transaction up to which all are folded."""
    txn: int = connection.execute(queries()["cells_folded_txn"]).fetchone()[0]
    return txn


async def fold_all(writer: WriterThread) -> None:
    """Fold all published transactions in short steps, between which others write."""
    while await writer.task(fold):
        pass
