"""A database with an installed storage schema, which is faster to copy than to create."""

from __future__ import annotations

import asyncpg

from naksha.psql.schema.install import install
from naksha.testing.fixtures import DatabaseFactory


async def make_installed(
    databases: DatabaseFactory, name: str, storage_id: str, schema: str = "naksha"
) -> str:
    """Makes the template of that name; gives its DSN."""
    dsn = databases.template(name)
    connection = await asyncpg.connect(dsn)
    try:
        await install(connection, schema, storage_id, 7)
    finally:
        await connection.close()
    return dsn
