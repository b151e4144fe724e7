"""Comparison of the data that a database stores twice; see `Storage.mismatches`."""

from __future__ import annotations

from naksha.model.transaction import MAIN
from naksha.psql.connection.driver import Connection
from naksha.psql.sql import ident, queries, sql
from naksha.spi.storage import Mismatch


async def mismatches(connection: Connection, collection: str, limit: int) -> list[Mismatch]:
    """Return the mismatches of a collection, including its tables on branches."""
    found: list[Mismatch] = []
    for name, overlay in await connection.fetch(queries()["check_tables"], collection):
        for suffix in ("", "_del", "_hst"):
            for check in ("check_numbers", "check_geometries", "check_documents"):
                text = sql(check, table=ident(name + suffix))
                found += [Mismatch(overlay, *row) for row in await connection.fetch(text, limit)]
    escaped = [queries()["check_triggers"], sql("check_logged", table=ident(collection))]
    for text in escaped:
        rows = await connection.fetch(text, limit, collection)
        found += [Mismatch(MAIN, *row) for row in rows]
    rows = await connection.fetch(queries()["check_log"], limit, collection)
    rows += await connection.fetch(queries()["check_versions"], limit)
    found += [Mismatch(MAIN, id_, txn, text, is_of_log=True) for id_, txn, text in rows]
    return found[:limit]
