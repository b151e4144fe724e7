"""Baseline of loads: copy the same rows into 16 plain tables and create the same indexes.

Nothing is validated, and there is neither a log nor a collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from naksha.model.features import NAMESPACE
from naksha.psql.bulk.bulk_writer import LANES, Lanes
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.bulk.staged_rows import Data
from naksha.psql.connection.driver import Direct
from naksha.psql.connection.servers import DatabaseServer

RAW = "raw_p"
RAW_INDICES = "SELECT naksha_create_indices($1, 'head', false)"
COLLECTION = "loaded"
UUID = f"bench:{COLLECTION}:2026:1:30:"
VALUES: dict[str, Any] = {
    "action": "CREATE",
    "version": 1,
    "author": "bench",
    "appId": "bench",
    "puuid": None,
    "muuid": None,
    "txn": "2026013000000000001",
    "txn_next": "0",
    "createdAt": 1769731200000,
    "updatedAt": 1769731200000,
    "rtcts": 1769731200000,
    "rtuts": 1769731200000,
}
"""Namespace of a row, without the members that depend on its feature; of the usual length."""
MARK = f'"{NAMESPACE}":'.encode() + msgspec.json.encode(VALUES)[:-1] + f',"uuid":"{UUID}'.encode()
AFTER_I = b'",'
"""JSON of the namespace after the number of a row; `MARK` is the JSON before it."""
_TABLE = (
    "CREATE TABLE {t} (i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL)"
)


async def clear(server: DatabaseServer) -> None:
    """Remove the result of the previous variant, and run a checkpoint."""
    connection = await server.connect()
    names = [RAW + leaf for leaf in LEAVES]
    await connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")
    async with connection.transaction():
        await connection.execute("SELECT naksha_collection_destroy($1)", COLLECTION)
    for name in names:
        await connection.execute(_TABLE.format(t=name))
    await connection.execute("CHECKPOINT")
    await connection.close()


async def copied(server: DatabaseServer, rows: Iterator[Data], lanes_count: int = LANES) -> None:
    """Copy rows while the next ones are generated."""
    lanes = await Lanes.open(server, lanes_count)
    copying: asyncio.Future[None] | None = None
    while (data := await asyncio.to_thread(next, rows, None)) is not None:
        if copying is not None:
            await copying
        copying = asyncio.ensure_future(lanes.copy(RAW, ["i", "geo", "jsondata"], data))
    if copying is not None:
        await copying
    await lanes.close()


async def indexed(server: DatabaseServer) -> None:
    """Create the indexes of the tables."""
    lanes = await Lanes.open(server, LANES)

    async def index(connection: Direct, leaf: int) -> None:
        await connection.execute(RAW_INDICES, RAW + LEAVES[leaf])

    await lanes.each(index)
    await lanes.close()
