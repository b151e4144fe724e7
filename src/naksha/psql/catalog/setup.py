"""Setting the tables of a catalog up in a schema of their own: new or ours, never anything else."""

from __future__ import annotations

from typing import Final

from naksha.model.errors import InvalidArgument, NotSupported
from naksha.psql.catalog.pool import CONNECT_S
from naksha.psql.catalog.sql import schema_scripts, statements
from naksha.psql.connection.driver import Connection
from naksha.psql.connection.errors import translated
from naksha.psql.connection.poolers import connect_checked

SCHEMA_VERSION: Final = 1
SCHEMA_NAME_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names, so that two of them might be one."""


async def set_up(dsn: str, schema: str) -> dict[str, str]:
    """Make the tables if they are not there; gives the settings that connections need."""
    check_schema_name(schema)
    with translated():
        connection = await connect_checked(dsn, CONNECT_S)
        try:
            async with connection.transaction():
                await _install(connection, schema)
            return await _settings(connection, schema)
        finally:
            await connection.close()


def check_schema_name(schema: str) -> None:
    """Raises InvalidArgument for what cannot be the name of a schema."""
    size = len(schema.encode("utf-8", "surrogatepass"))
    if not 0 < size <= SCHEMA_NAME_BYTES_MAX or "\0" in schema or schema.startswith("pg_"):
        raise InvalidArgument(
            f"The name of a schema has 1 to {SCHEMA_NAME_BYTES_MAX} bytes in UTF-8 "
            f"and does not begin with pg_; not {schema[:80]!r}",
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
                f"{version}, this one knows {SCHEMA_VERSION}); upgrade Naksha",
                field="schema",
            )
        return
    if found["tables"]:
        raise NotSupported(
            f"Schema {schema!r} holds something else; give the catalog a schema of its own",
            field="schema",
        )
    for script in schema_scripts(schema):
        await connection.execute(script)
    await connection.execute(queries["version_set"], SCHEMA_VERSION)


async def _settings(connection: Connection, schema: str) -> dict[str, str]:
    """What every connection is set to. Plans do not depend on values; and whatever the server is
    set to, what was acknowledged must be on its disk."""
    settings = {
        "application_name": "naksha catalog",
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    }
    if await connection.fetchval(statements(schema)["synchronous_commit"]) == "off":
        settings["synchronous_commit"] = "on"
    return settings
