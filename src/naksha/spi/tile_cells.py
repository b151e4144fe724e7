"""Tile cells of a storage: which parts of the map each transaction changed.

A transaction records in its log row, for each collection and overlay that it changed, the cells of
`naksha.model.geo.tile_cells` that contain a former or new geometry; a change of the collection
itself records the whole world. So a vector tile that was rendered once stays valid until a
published transaction records a cell that meets the buffered tile.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from naksha.model.query import Bbox


class CellChange(msgspec.Struct, frozen=True):
    """Cells that one transaction changed in a collection, on main (overlay 0) or on a branch."""

    txn: int
    collection: str
    overlay: int
    cells: list[int]


class CellLog(msgspec.Struct, frozen=True):
    """The changed cells of published transactions, up to the last published one, `txn`.

    `is_settled` states that every committed transaction was published: what is read at HEAD now is
    the version of `txn`, or later. `changes` is None if there are more than TILE_CELL_CHANGES_MAX,
    or if some of their log rows were removed. Transactions that changed no cell are left out: those
    with messages, purged tombstones or features without geometry only.
    """

    seq_number: int
    txn: int
    is_settled: bool
    changes: list[CellChange] | None
    pending: list[CellChange] | None = None
    """If not settled: the cells changed by all transactions after `txn` that were committed at some
    moment of the call, after `txn` was read; None if they are unknown or too many."""


class TileCellStorage(Protocol):
    """The part of a storage that knows when the cells of the tile pyramid were changed."""

    async def cell_log(self, after_txn: int) -> CellLog:
        """Return the cells changed by published transactions after one, in txn order.

        Pending transactions are published first. Changes of all collections and overlays are
        included, also by the view of a branch. It is one short statement when nothing has changed.
        """

    async def last_cell_change(self, collection: str, box: Bbox, *, overlay: int = 0) -> int:
        """Return the last published txn that changed a cell which meets the box; 0 for none.

        Pending transactions are published first. The result is never too small, and covers the
        whole life of the collection: the storage keeps the last transaction of each cell when log
        rows expire. The collection may be unknown.
        """
