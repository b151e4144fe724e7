"""Baseline of loads: copy the same rows into 16 plain tables and create the same indexes.

Nothing is validated, and there is neither a log nor a collection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import shapely

from naksha.model.features import NAMESPACE
from naksha.psql.bulk.lanes import LANES, SETTINGS, Lanes
from naksha.psql.bulk.splits import LEAVES
from naksha.psql.bulk.staged_rows import LEAF_COUNT
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
_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
# The number of fields, an int8 with its length, and the length of the next field.
_row = struct.Struct(">hiqi").pack
# A jsonb begins with its version.
_jsonb = struct.Struct(">iB").pack
_NULL = -1
Piece = tuple[bytes | None, bytes, bytes]
"""WKB of a feature, and its JSON before and after the place of the namespace."""
Data = list[bytes]
"""For each leaf the data to copy, empty if there is none."""
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
    connections = [await server.connect(**SETTINGS) for _ in range(lanes_count)]
    copying: asyncio.Future[Any] | None = None
    while (data := await asyncio.to_thread(next, rows, None)) is not None:
        if copying is not None:
            await copying
        works = [_copy(each, data, n, lanes_count) for n, each in enumerate(connections)]
        copying = asyncio.gather(*works)
    if copying is not None:
        await copying
    for connection in connections:
        await connection.close()


async def _copy(connection: Direct, data: Data, number: int, step: int) -> None:
    """Copy the data of every `step`-th leaf, in one transaction."""
    async with connection.transaction():
        for leaf in range(number, LEAF_COUNT, step):
            if data[leaf]:
                await connection.copy_to_table(
                    RAW + LEAVES[leaf],
                    source=BytesIO(data[leaf]),
                    columns=["i", "geo", "jsondata"],
                    format="binary",
                )


async def indexed(server: DatabaseServer) -> None:
    """Create the indexes of the tables."""
    lanes = await Lanes.open(server, LANES)

    async def index(connection: Direct, leaf: int) -> None:
        await connection.execute(RAW_INDICES, RAW + LEAVES[leaf])

    await lanes.each(index)
    await lanes.close()


def leaf_data(pieces: Sequence[Piece], leaves: Sequence[int], first_i: int) -> Data:
    """Encode complete rows (i, geo, jsondata) for binary COPY."""
    parts: list[list[bytes]] = [[] for _ in range(LEAF_COUNT)]
    geometries = _geometries([piece[0] for piece in pieces])
    common = 1 + len(MARK) + len(AFTER_I)
    for i, (leaf, geo, (_, head, tail)) in enumerate(
        zip(leaves, geometries, pieces, strict=True), first_i
    ):
        start = _row(3, 8, i, _NULL if geo is None else len(geo))
        digits = b"%d" % i
        json = _jsonb(common + len(head) + len(digits) + len(tail), 1)
        parts[leaf] += (start, geo or b"", json, head, MARK, digits, AFTER_I, tail)
    return _joined(parts)


def _joined(parts: list[list[bytes]]) -> Data:
    return [b"".join((_START, *rows, _END)) if rows else b"" for rows in parts]


def _geometries(wkbs: list[bytes | None]) -> list[bytes | None]:
    """Convert geometries to three dimensions, as the column requires.

    They have no reference system; PostGIS assigns that of the column.
    """
    shapes = shapely.force_3d(shapely.from_wkb(np.array(wkbs, dtype=object)))
    found: list[bytes | None] = shapely.to_wkb(shapes, byte_order=1).tolist()
    return found
