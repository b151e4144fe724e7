"""Creation of the catalog's tables in a schema of their own.

A schema that is empty or holds a catalog is accepted; any other is refused.
"""

from __future__ import annotations

from typing import Final

from naksha.model.errors import InvalidArgument, NotSupported
from naksha.psql.catalog.pool import CONNECT_S
from naksha.psql.catalog.sql import schema_scripts, statements
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked

SCHEMA_VERSION: Final = 1
_SCHEMA_NAME_BYTES_MAX: Final = 63
"""Longest schema name. PostgreSQL truncates longer ones, so that two of them might collide."""


async def set_up(dsn: str, schema: str) -> dict[str, str]:
    """Create the tables if they are missing, and return the settings for connections."""
    _check_schema_name(schema)
    with translated():
        connection = await connect_checked(dsn, CONNECT_S)
        try:
            async with connection.transaction():
                await _install(connection, schema)
            return await _settings(connection, schema)
        finally:
            await connection.close()


def _check_schema_name(schema: str) -> None:
    """Raise InvalidArgument unless the text can be the name of a schema."""
    size = len(schema.encode("utf-8", "surrogatepass"))
    if not 0 < size <= _SCHEMA_NAME_BYTES_MAX or "\0" in schema or schema.startswith("pg_"):
        raise InvalidArgument(
            f"Invalid schema name {schema[:80]!r}: it must have 1 to {_SCHEMA_NAME_BYTES_MAX} "
            "bytes in UTF-8 and must not begin with pg_",
            field="schema",
        )


async def _install(connection: Connection, schema: str) -> None:
    queries = statements(schema)
    await connection.fetchval(queries["setup_lock"], schema)
    found = await connection.fetchrow(queries["foreign_tables"], schema)
    assert found is not None
    if found["is_ours"]:
        version = await connection.fetchval(queries["version"])
        if version > SCHEMA_VERSION:
            raise NotSupported(
                f"The catalog in schema {schema!r} was written by a newer Naksha (schema version "
                f"{version}, this release supports {SCHEMA_VERSION}); upgrade Naksha",
                field="schema",
            )
        return
    if found["tables"]:
        raise NotSupported(
            f"Schema {schema!r} holds other tables; use a separate schema for the catalog",
            field="schema",
        )
    for script in schema_scripts(schema):
        await connection.execute(script)
    await connection.execute(queries["version_set"], SCHEMA_VERSION)


async def _settings(connection: Connection, schema: str) -> dict[str, str]:
    """Return the settings of every connection.

    Plans do not depend on values. `synchronous_commit` is switched on where the server has it off:
    an acknowledged change must be on disk.
    """
    settings = {
        "application_name": "naksha catalog",
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    }
    if await connection.fetchval(statements(schema)["synchronous_commit"]) == "off":
        settings["synchronous_commit"] = "on"
    return settings
