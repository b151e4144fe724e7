"""Expected tile cells of transactions, for the conformance tests of tile cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import shapely
from shapely.geometry import shape

from naksha.model.geo.tile_cells import ancestors, cover, look_up_cells
from naksha.model.query import Bbox
from naksha.model.transaction import MAIN
from naksha.model.version import Version
from naksha.spi.storage import Storage
from naksha.spi.tile_cells import CellLog
from naksha.testing.storage.suite_support import Handle, published

Edges = tuple[float, float, float, float]
WORLD: Final = {1}
EVERYWHERE: Final = Bbox(-180, -90, 180, 90)


def edges_of(geometry: Mapping[str, Any]) -> Edges:
    """Return the box of a GeoJSON geometry."""
    west, south, east, north = shapely.bounds(shape(geometry)).tolist()
    return west, south, east, north


def cells_at(*positions: tuple[float, float]) -> set[int]:
    """Return the cells of positions, each a longitude and a latitude."""
    return set().union(*(cover(lon, lat, lon, lat) for lon, lat in positions))


def around(lon: float, lat: float, by: float = 0.001) -> Bbox:
    """Return a small box around a position."""
    return Bbox(lon - by, lat - by, lon + by, lat + by)


def do_meet(cells: Iterable[int], box: Bbox) -> bool:
    """Return whether one of the cells contains, is contained in, or is a cell of the box."""
    wanted = {*look_up_cells(box)}
    outer = {cell for each in wanted for cell in ancestors(each)}
    return any(
        cell in wanted or cell in outer or not wanted.isdisjoint(ancestors(cell)) for cell in cells
    )


def boxes_meet(edges: Edges, box: Bbox) -> bool:
    """Return whether a box meets one that does not cross the date line."""
    west, south, east, north = edges
    return west <= box.east and box.west <= east and south <= box.north and box.south <= north


async def settled_log(storage: Storage, after: Version) -> CellLog:
    """Return the log of cells after a version, once every transaction is published."""
    last = await published(storage)
    log = await storage.cell_log(after.txn)
    assert (log.seq_number, log.txn, log.is_settled) == (last.seq_number, last.txn, True)
    return log


async def changed_cells(handle: Handle, after: Version, overlay: int = MAIN) -> set[int]:
    """Return the cells of a collection that were changed after a version."""
    log = await settled_log(handle.storage, after)
    assert log.changes is not None
    assert [change.txn for change in log.changes] == sorted(change.txn for change in log.changes)
    assert all(after.txn < change.txn <= log.txn for change in log.changes)
    assert all(change.cells for change in log.changes)
    of_it = [c for c in log.changes if (c.collection, c.overlay) == (handle.name, overlay)]
    return {cell for change in of_it for cell in change.cells}


async def last_change(handle: Handle, box: Bbox, overlay: int = MAIN) -> int:
    """Return the last transaction that changed a collection inside a box."""
    return await handle.storage.last_cell_change(handle.name, box, overlay=overlay)
