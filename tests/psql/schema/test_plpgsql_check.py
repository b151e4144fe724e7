"""Check of every function of the schema by plpgsql_check, and of all bodies and queries by parsing.

PostgreSQL looks into a plpgsql function only when it runs, one branch at a time; this looks into
all of them at once.
"""

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import asyncpg
import pytest

from naksha.psql.connection.driver import Direct
from naksha.psql.schema.install import install, search_path
from naksha.psql.sql import queries, schema_files
from naksha.testing.fixtures import DatabaseFactory

COLLECTION = "checked"
UNSAFE = "text type variable is not sanitized"
DYNAMIC = "cannot determinate a result of dynamic SQL"
UNASSIGNED = "is not assigned yet"
"""Its consequence for a record that dynamic SQL fills."""

ACCEPTED: dict[str, tuple[str, ...]] = {
    # Texts put in unquoted are the schema's own: column expressions, trigger events, statements
    # made by a function that quotes.
    "naksha_create_partition": (UNSAFE,),
    "naksha_create_trigger": (UNSAFE,),
    "naksha_guard": (UNSAFE,),
    "naksha_prepare": (UNSAFE,),
    "naksha_kept_plan": (UNSAFE,),
    "naksha_write_few": (UNSAFE, DYNAMIC),
    "naksha_write_leaf": (UNSAFE, DYNAMIC),
    "naksha_staged_put": (DYNAMIC,),
    "naksha_staged_delete": (DYNAMIC,),
    "naksha_adopt": (UNSAFE, DYNAMIC),
    "naksha_adopt_check": (UNSAFE, DYNAMIC),
    "naksha_install_legacy": (UNSAFE,),
    "naksha_put_views": (UNSAFE,),
    "naksha_mend_triggers": (UNSAFE,),
    "naksha_merge_build": (UNSAFE,),
    "naksha_refresh_statistics": (UNSAFE, DYNAMIC, UNASSIGNED),
}
"""Accepted findings: parts of the messages, by function."""
ACCEPTED_EVERYWHERE = (
    # One cast of a number per call.
    "target type is different type than source type",
    # Always right: it must see what the statement before did, and dynamic SQL may write.
    "routine is marked as VOLATILE",
)
NO_PATH_NEEDED = {"naksha_raise", "naksha_period", "naksha_without_end"}
"""Functions that name nothing which could be found somewhere else."""


class Trigger(NamedTuple):
    """The context of a trigger function: its table and the transition tables."""

    table: int = 0
    old_rows: str | None = None
    new_rows: str | None = None


@pytest.fixture(scope="module")
async def connection(database_factory: DatabaseFactory) -> AsyncIterator[Direct]:
    with database_factory.fresh() as dsn:
        opened = await asyncpg.connect(dsn)
        await install(opened, "naksha", "checked", 7)
        await opened.execute(f"SET search_path = {await search_path(opened, 'naksha')}")
        async with opened.transaction():
            await opened.execute("SELECT naksha_tx_start('app')")
            await opened.execute("SELECT naksha_collection_create($1)", COLLECTION)
        if not await opened.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'plpgsql_check'"):
            pytest.skip("plpgsql_check is not installed")
        yield opened
        await opened.close()


async def functions(connection: Direct, language: str) -> list[tuple[str, str]]:
    """(signature, name) of the schema's functions in a language."""
    rows = await connection.fetch(
        "SELECT p.oid::regprocedure::text AS signature, p.proname FROM pg_proc p"
        " JOIN pg_language l ON l.oid = p.prolang"
        " WHERE p.pronamespace = 'naksha'::regnamespace AND l.lanname = $1 ORDER BY 1",
        language,
    )
    return [(row["signature"], row["proname"]) for row in rows]


async def triggers(connection: Direct) -> dict[str, Trigger]:
    """One place where each trigger function is used."""
    rows = await connection.fetch(
        "SELECT DISTINCT ON (p.proname) p.proname, t.tgrelid::int8, t.tgoldtable, t.tgnewtable"
        " FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE p.pronamespace = 'naksha'::regnamespace ORDER BY p.proname"
    )
    return {name: Trigger(table, old, new) for name, table, old, new in rows}


async def findings(connection: Direct, signature: str, name: str, trigger: Trigger) -> list[str]:
    """The findings for one function that are not accepted."""
    rows = await connection.fetch(
        """SELECT c.level, c.lineno, c.message, c.query
             FROM plpgsql_check_function_tb($1::text::regprocedure, $2::int8::oid,
                  oldtable := $3, newtable := $4, fatal_errors := false,
                  performance_warnings := true, security_warnings := true,
                  extra_warnings := false) AS c""",
        signature,
        *trigger,
    )
    accepted = ACCEPTED.get(name, ()) + ACCEPTED_EVERYWHERE
    return [
        f"{signature}:{row['lineno']} {row['level']}: {row['message']} {row['query'] or ''}"
        for row in rows
        if not any(part in row["message"] for part in accepted)
    ]


async def test_the_checker_finds_nothing_in_any_function(connection: Direct) -> None:
    used = await triggers(connection)
    assert {"naksha_before_insert", "naksha_after_update"} <= used.keys()
    found = []
    for signature, name in await functions(connection, "plpgsql"):
        found += await findings(connection, signature, name, used.get(name, Trigger()))
    assert not found, "\n" + "\n".join(found)


async def test_the_checker_would_find_a_wrong_name(connection: Direct) -> None:
    """A branch that no test takes is looked into as well."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(
            "CREATE FUNCTION naksha_wrong() RETURNS int LANGUAGE plpgsql AS"
            " $$BEGIN IF false THEN RETURN (SELECT no_such FROM naksha_tx); END IF; RETURN 1; END$$"
        )
        found = await findings(connection, "naksha_wrong()", "naksha_wrong", Trigger())
    finally:
        await transaction.rollback()
    assert any('column "no_such" does not exist' in text for text in found)


async def test_every_body_parses_where_it_stands(connection: Direct) -> None:
    """Each function can be made again from the catalog, its body looked into, as a restore does."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("SET LOCAL check_function_bodies = on")
        for language in ("sql", "plpgsql"):
            found = await functions(connection, language)
            assert found
            for signature, _ in found:
                await connection.execute(
                    await connection.fetchval(
                        "SELECT pg_get_functiondef($1::text::regprocedure)", signature
                    )
                )
    finally:
        await transaction.rollback()


async def test_functions_find_their_schema_whatever_the_caller_has_set(
    connection: Direct,
) -> None:
    rows = await connection.fetch(
        "SELECT p.proname, p.proconfig FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
        " WHERE p.pronamespace = 'naksha'::regnamespace AND l.lanname = 'plpgsql'"
    )
    lost = {
        row["proname"]
        for row in rows
        if not any(text.startswith('search_path="naksha", ') for text in row["proconfig"] or [])
    }
    assert lost == NO_PATH_NEEDED


async def test_every_named_query_without_slots_parses(connection: Direct) -> None:
    statement = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
    whole = {
        name: text for name, text in queries().items() if statement.match(text) and "{{" not in text
    }
    assert len(whole) > 20
    for name, text in whole.items():
        try:
            await connection.prepare(text)
        except asyncpg.PostgresError as error:
            pytest.fail(f"{name}: {error}")


async def test_the_schema_can_be_set_up_twice(connection: Direct) -> None:
    async with connection.transaction():
        for name, text in schema_files():
            try:
                await connection.execute(text)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")


def test_functions_are_replaced_and_tables_made_once() -> None:
    found = [
        f"{name}: {line}"
        for name, text in schema_files()
        for line in text.splitlines()
        if line.startswith("CREATE ")
        and not re.match(r"CREATE (OR REPLACE |.*IF NOT EXISTS )", line)
    ]
    assert not found
