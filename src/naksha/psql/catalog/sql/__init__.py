"""SQL of the catalog in PostgreSQL; see `naksha.spi.support.sql_files`.

All tables are in one schema, whose name is a slot of every statement.
"""

from __future__ import annotations

from typing import Final

from naksha.spi.support.sql_files import SqlFiles, ident

FILES: Final = SqlFiles(__package__)


def statements(schema: str) -> dict[str, str]:
    """Return all named queries, filled with the name of the schema."""
    return {name: FILES.fill(name, {"schema": ident(schema)}) for name in FILES.queries}


def schema_scripts(schema: str) -> list[str]:
    """Return the scripts that create the tables, in execution order."""
    return [text.replace("{{schema}}", ident(schema)) for _, text in FILES.schema]
