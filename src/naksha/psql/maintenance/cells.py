"""Folding of the log's tile cells into one row per cell; the SQL is in `schema/128_cells.sql`."""

from __future__ import annotations

import asyncio
from typing import Final

from naksha.psql.connection.background_task import BackgroundTask
from naksha.psql.connection.driver import Connection, Connections, acquired
from naksha.psql.connection.errors import translated
from naksha.psql.sql import queries

_FOLD_TRANSACTIONS_MAX: Final = 500
"""Transactions that one transaction folds, which takes well below a second."""
_UNFOLDED_MAX: Final = 2_000
"""Versions that are looked up in the log before they are folded."""
_SWEEP_CELLS_MAX: Final = 50_000
"""Cells that one transaction deletes."""


async def fold_cells(connection: Connection) -> bool:
    """Fold some published transactions; return whether there may be more."""
    folded = await connection.fetchval(queries()["fold_cells"], _FOLD_TRANSACTIONS_MAX)
    return bool(folded == _FOLD_TRANSACTIONS_MAX)


async def sweep_cells(connection: Connection) -> bool:
    """Delete some cells of removed collections and branches; return whether there may be more."""
    swept = await connection.fetchval(queries()["sweep_cells"], _SWEEP_CELLS_MAX)
    return bool(swept == _SWEEP_CELLS_MAX)


class CellFoldingTask(BackgroundTask):
    """Background task that folds when look-ups report that many versions are not folded."""

    title = "Folding of tile cells"

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._wake = asyncio.Event()

    def looked_up(self, unfolded: int) -> None:
        """Take note of the number of versions that a look-up found in the log."""
        if unfolded > _UNFOLDED_MAX:
            self._wake.set()

    async def _loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._attempt(self._fold)

    async def _fold(self) -> None:
        with translated():
            async with acquired(self._connections, leaves_nothing=True) as connection:
                while await fold_cells(connection):
                    pass
