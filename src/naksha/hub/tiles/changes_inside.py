"""Exact test whether features inside a box changed, by the indices on geometry and `txn`."""

from __future__ import annotations

from typing import Final

from naksha.model.errors import CollectionNotFound, Expired, VersionNotFound
from naksha.model.query import Bbox, Query
from naksha.model.transaction import LogFilter
from naksha.model.version import AtTxn
from naksha.spi.storage import Storage, StorageReader

LEVEL_MIN: Final = 8
"""Level of the largest tiles that are tested. A larger tile consists of many cells, so a change of
its cells is nearly always one inside of it, while the test may visit all that changed."""


async def is_unchanged_inside(
    reader: StorageReader, collection: str, box: Bbox, since_txn: int
) -> bool:
    """Return whether the features in a box are now what they were after a transaction.

    No state that is valid now began since then inside the box, and none that was valid then and
    inside the box has ended. False also if history that is needed was removed.
    """
    begun = Query(spatial=box, txn_from=since_txn + 1, limit=1)
    ended = Query(spatial=box, replaced_since=since_txn, limit=1)
    try:
        for query in (begun, ended):
            async for _ in reader.chunks(collection, query):
                return False
        # Last, because history may expire meanwhile, and leaves no trace.
        await reader.resolve(AtTxn(since_txn), collection)
    except (CollectionNotFound, Expired, VersionNotFound):
        return False
    return True


async def exists(reader: StorageReader, collection: str) -> bool:
    """Return whether a collection exists and is not dropped."""
    try:
        await reader.collection(collection)
    except CollectionNotFound:
        return False
    return True


async def is_unwritten(storage: Storage, collection: str, since_txn: int) -> bool:
    """Return whether no transaction after one wrote to a collection on main.

    Other than cells, the log knows changes of features without geometry, too. False also if a part
    of it was removed.
    """
    where = LogFilter(collections=(collection,))
    try:
        since = await storage.resolve(AtTxn(since_txn))
        return not await storage.transactions(since.seq_number, 1, where)
    except (Expired, VersionNotFound):
        return False
