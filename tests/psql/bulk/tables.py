"""The tables of a collection as the database catalog has them, and those of loads."""

from __future__ import annotations

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from tests.psql.support import until

CATALOG = """
SELECT regexp_replace(line, '\\m' || $1 || '\\M|' || $1 || '(?=_)', 'NAME', 'g') AS line FROM (
    SELECT 'table ' || relname || ' ' || relkind::text || relpersistence::text || relreplident::text
           || ' ' || coalesce(reloptions::text, '') || coalesce(pg_get_expr(relpartbound, oid), '')
           || ' ' || coalesce(relacl::text, '') AS line
      FROM pg_class WHERE relname ~ ('^' || $1 || '(_|$)') AND relname !~ '_hst_'
    UNION ALL
    SELECT 'column ' || attrelid::regclass || ' ' || attnum || attname || ' ' || attnotnull || ' '
           || attislocal || attinhcount || attstorage::text || attcompression::text
           || format_type(atttypid, atttypmod)
      FROM pg_attribute WHERE attnum > 0
       AND attrelid::regclass::text ~ ('^' || $1 || '_p[0-9a-f]$')
    UNION ALL
    SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename ~ ('^' || $1 || '_p[0-9a-f]$')
    UNION ALL
    SELECT 'trigger ' || tgrelid::regclass || ' ' || pg_get_triggerdef(oid) || tgenabled::text
           || tgisinternal || (tgparentid <> 0)
      FROM pg_trigger WHERE tgrelid::regclass::text ~ ('^' || $1 || '(_|$)')
       AND tgrelid::regclass::text !~ '_hst_'
    UNION ALL
    SELECT 'constraint ' || conrelid::regclass || ' ' || conname || pg_get_constraintdef(oid)
      FROM pg_constraint WHERE conrelid::regclass::text ~ ('^' || $1 || '(_|$)')
       AND conrelid::regclass::text !~ '_hst_'
    UNION ALL
    SELECT 'comment ' || regexp_replace(obj_description(to_regclass($1)), '"number": \\d+', '')
) AS all_lines ORDER BY 1
"""


async def catalog_of(connection: Direct, collection: str) -> list[str]:
    return [row["line"] for row in await connection.fetch(CATALOG, collection)]


async def staging_tables(connection: Direct) -> int:
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname ~ '^naksha_stage_[0-9]' AND relkind = 'r'"
    )
    return count


async def until_swept(storage: PsqlStorage, connection: Direct) -> None:
    """A backend in the middle of its work finds out late that its client is gone."""

    async def nothing_is_left() -> bool:
        await storage.maintain()
        return await staging_tables(connection) == 0

    await until(nothing_is_left)
