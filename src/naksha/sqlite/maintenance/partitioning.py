"""Compute and store optimal partitionings; see `naksha.spi.partitioning`."""

from __future__ import annotations

import sqlite3

from naksha.model.version import HEAD, AtTxn
from naksha.spi.partitioning import (
    FEATURE_ID,
    NOWHERE,
    SAMPLE_FEATURES_MAX,
    Partitioning,
    decode_partitioning,
    features_max,
    partition,
)
from naksha.sqlite.connection.readers import ReadSnapshot
from naksha.sqlite.read import versions
from naksha.sqlite.read.rows import CollectionRow, collection_of
from naksha.sqlite.sql import queries


def kept(connection: sqlite3.Connection, name: str) -> dict[str, int] | None:
    """Return the stored partitioning, unless the collection was written to since."""
    c = collection_of(connection, name)
    row = connection.execute(queries()["meta_get"], (c.t, FEATURE_ID)).fetchone()
    found = decode_partitioning(None if row is None else row[0])
    if found is None:
        return None
    written = connection.execute(queries()["last_write"], (name, 0)).fetchone()[0]
    return None if int(found.txn) < max(written, c.txn) else found.by_qrid


async def compute(snapshot: ReadSnapshot, name: str) -> tuple[Partitioning | None, dict[str, int]]:
    """Compute the partitioning of the last published version.

    Returns (None, {}) before the first version.
    """
    c = await snapshot.read(lambda connection: collection_of(connection, name))
    version = await snapshot.read(lambda connection: versions.resolve(connection, HEAD, c))
    if version.seq_number == 0:
        return None, {}
    size = await snapshot.read(lambda connection: byte_size(connection, c))
    most = features_max(size)

    async def count(prefix: str, limit: int | None) -> int:
        # Quad key digits are 0 to 3, so prefix + "4" is above all keys with the prefix.
        values = (c.t, prefix, prefix + "4", version.txn, -1 if limit is None else limit)
        return await snapshot.read(
            lambda connection: connection.execute(queries()["partition_cell"], values).fetchone()[0]
        )

    found = await partition(count, most)
    nowhere = await snapshot.read(
        lambda connection: connection.execute(
            queries()["partition_nowhere"], (c.t, version.txn)
        ).fetchone()[0]
    )
    if nowhere:
        found = {NOWHERE: nowhere, **found}
    return Partitioning.of(found, version, most, size), found


def keep(connection: sqlite3.Connection, name: str, found: Partitioning) -> None:
    """Store a partitioning in the collection's meta table, unless a later one is there."""
    c = collection_of(connection, name)
    versions.resolve(connection, AtTxn(int(found.txn)), c)
    row = connection.execute(queries()["meta_get"], (c.t, FEATURE_ID)).fetchone()
    known = decode_partitioning(None if row is None else row[0])
    if known is None or int(known.txn) <= int(found.txn):
        connection.execute(queries()["meta_put"], (c.t, FEATURE_ID, found.encoded()))


def byte_size(connection: sqlite3.Connection, c: CollectionRow) -> int:
    """Return the size of the largest known feature, estimated from a sample if unknown."""
    if c.byte_size > 0:
        return c.byte_size
    row = connection.execute(queries()["feature_sizes"], (c.t, SAMPLE_FEATURES_MAX))
    return row.fetchone()[0] or 0
