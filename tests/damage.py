"""Damage to stored features that bypasses all triggers, as by an older release or a disk."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import asyncpg

DATABASE: Final = {
    "geometry": "geo = 'SRID=4326;CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0)'",
    "number": "jsondata = jsonb_set(jsondata, '{properties,big}', '1e5000')",
    "depth": "jsondata = jsonb_set(jsondata, '{properties,deep}',"
    " (repeat('[', 3000) || repeat(']', 3000))::jsonb)",
}
FILE: Final = {
    "geometry": """geometry = '{"type":"Point","coordinates":[8.5,'""",
    "number": "jsondata = json_set(jsondata, '$.properties.big', json('1e999'))",
    "depth": "jsondata = json_set(jsondata, '$.properties.deep',"
    " json(replace(hex(zeroblob(975)), '00', '[') || replace(hex(zeroblob(975)), '00', ']')))",
    "text": "jsondata = replace(jsondata, 'good', CAST(x'6f6bff' AS TEXT))",
    "coordinates": """geometry = '{"type":"Point","coordinates":[1e999,50.25]}'""",
    "middle": """geometry = '{"type":"Point","coordinates":[8.5,,50.25]}'""",
    "id": "id = CAST(x'62ff64' AS TEXT)",
    "bytes": "geo = x'0102'",
    "curve": "geo = x'010800000000000000'",
    "finite": "geo = x'0101000000000000000000f87f0000000000204940'",
}
"""The values to write, by the kind of damage."""


async def damage(location: str | Path, collection: str, id: str, kind: str) -> None:
    """Damage the current state of a feature in a database or a file."""
    if isinstance(location, str) and location.startswith("postgresql:"):
        await _in_database(location, collection, id, kind)
    else:
        _in_file(str(location).removeprefix("file:"), collection, id, kind)


async def _in_database(dsn: str, collection: str, id: str, kind: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"session_replication_role": "replica"})
    try:
        table = await connection.fetchval(
            "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relname = $1 AND c.relkind = 'p'",
            collection,
        )
        done = await connection.execute(
            f"UPDATE {table} SET {DATABASE[kind]} WHERE jsondata->>'id' = $1", id
        )
        assert done == "UPDATE 1"
    finally:
        await connection.close()


def _in_file(path: str, collection: str, id: str, kind: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE naksha_shell SET managed = 1")
        done = connection.execute(
            f"UPDATE naksha_head SET {FILE[kind]} WHERE id = ?1"
            " AND t = (SELECT t FROM naksha_collection WHERE id = ?2)",
            (id, collection),
        )
        assert done.rowcount == 1
        connection.execute("UPDATE naksha_shell SET managed = 0")
        connection.execute("COMMIT")
