"""Changes of tile cells since a process opened a storage, kept in memory.

Each request needs to know what changed up to a moment after its arrival. Requests that arrive
while a question to the storage is under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from naksha.model import limits
from naksha.model.geo.tile_cells import WORLD_CELL, ancestors, look_up_cells
from naksha.model.query import Bbox
from naksha.spi.tile_cells import CellChange, CellLog, TileCellStorage

WORLD: Final = Bbox(-180.0, -90.0, 180.0, 90.0)


class TileArea:
    """An area on earth, with the cells to look it up by."""

    def __init__(self, box: Bbox) -> None:
        self.box: Final = box
        self.cells: Final = tuple(look_up_cells(box))
        above = {outer for cell in self.cells for outer in ancestors(cell)}
        self.containing: Final = (*self.cells, *sorted(above))
        """The cells that contain a part of the area: itself and all larger ones."""


EVERYWHERE: Final = TileArea(WORLD)


class CellMoment(NamedTuple):
    """State of a storage's log at one moment."""

    txn: int
    """The last published transaction."""
    is_settled: bool
    """Whether all committed transactions were published."""
    pending: Mapping[tuple[str, int], ChangedCells] | None = None
    """The cells that the others changed; None if they are unknown."""

    def has_pending(self, collection: str, overlay: int, area: TileArea) -> bool:
        """Return whether a transaction that is not published may have changed an area."""
        if self.is_settled:
            return False
        if self.pending is None:
            return True
        found = self.pending.get((collection, overlay))
        return found is not None and found.last(area) > 0


class ChangedCells:
    """The last transaction that changed each cell of a collection, on main or in an overlay."""

    def __init__(self) -> None:
        self._recorded: dict[int, int] = {}
        self._inside: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._recorded) + len(self._inside)

    def add(self, cells: Iterable[int], txn: int) -> None:
        """Record cells of a transaction, which must be later than all before."""
        for cell in cells:
            self._recorded[cell] = self._inside[cell] = txn
            for outer in ancestors(cell):
                if self._inside.get(outer) == txn:
                    break
                self._inside[outer] = txn

    def last(self, area: TileArea) -> int:
        """Return the last transaction that changed an area; 0 for none."""
        if area is EVERYWHERE:
            return self._inside.get(WORLD_CELL, 0)
        recorded, inside = self._recorded.get, self._inside.get
        found = max(recorded(cell, 0) for cell in area.containing)
        return max(found, *(inside(cell, 0) for cell in area.cells))


class CellTail:
    """The changed cells of a storage after `start`, the transaction that the tail begins at."""

    def __init__(
        self, storage: TileCellStorage, *, cells_max: int = limits.TILE_TAIL_CELLS_MAX
    ) -> None:
        self.start = 0
        self._storage = storage
        self._cells_max = cells_max
        self.txn = 0
        """The last published transaction that is known."""
        self._changed: dict[tuple[str, int], ChangedCells] = {}
        self._asking: asyncio.Future[None] | None = None
        self._next: asyncio.Task[CellMoment] | None = None

    async def now(self) -> CellMoment:
        """Ask the storage for changes, and return its state at a moment after this call."""
        if self._asking is None:
            return await self._ask()
        if self._next is None:
            self._next = asyncio.create_task(self._ask_next())
            self._next.add_done_callback(_note_failure)
        return await asyncio.shield(self._next)

    def last_change(self, collection: str, overlay: int, area: TileArea) -> int:
        """Return the last transaction after `start` that changed an area; 0 for none."""
        found = self._changed.get((collection, overlay))
        return 0 if found is None else found.last(area)

    async def _ask_next(self) -> CellMoment:
        """Ask after the question that is under way; requests that arrive until then share it."""
        while self._asking is not None:
            await asyncio.wait([self._asking])
        self._next = None
        return await self._ask()

    async def _ask(self) -> CellMoment:
        ended = self._asking = asyncio.get_running_loop().create_future()
        try:
            log = await self._storage.cell_log(self.txn)
            self._add(log)
        finally:
            self._asking = None
            ended.set_result(None)
        if log.is_settled or log.pending is None or _are_many(log.pending):
            return CellMoment(log.txn, log.is_settled)
        pending: dict[tuple[str, int], ChangedCells] = {}
        _record(pending, log.pending)
        return CellMoment(log.txn, is_settled=False, pending=pending)

    def _add(self, log: CellLog) -> None:
        # The numbers of a storage that was replaced by an earlier state go back.
        if log.changes is None or log.txn < self.txn or _are_many(log.changes):
            self._restart(log.txn)
            return
        _record(self._changed, log.changes)
        self.txn = log.txn
        if sum(map(len, self._changed.values())) > self._cells_max:
            self._restart(log.txn)

    def _restart(self, txn: int) -> None:
        self.start = self.txn = txn
        self._changed.clear()


def _are_many(changes: Sequence[CellChange]) -> bool:
    return sum([len(change.cells) for change in changes]) > limits.TILE_REPLY_CELLS_MAX


def _record(changed: dict[tuple[str, int], ChangedCells], changes: Sequence[CellChange]) -> None:
    for change in changes:
        key = change.collection, change.overlay
        changed.setdefault(key, ChangedCells()).add(change.cells, change.txn)


def _note_failure(asked: asyncio.Task[CellMoment]) -> None:
    """Mark a failure as seen: the requests that wait for the answer raise it, if there are any."""
    if not asked.cancelled():
        asked.exception()
