"""User triggers: versioning of their plain SQL, whether fired by the library or by plain SQL."""

from __future__ import annotations

import json
import re
from typing import Any

import asyncpg
import pytest

from naksha.model.errors import NakshaError
from naksha.model.query import Query
from naksha.model.version import HEAD, AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from tests.psql.aging import place
from tests.psql.schema.test_migrations import catalog
from tests.psql.support import Connect, begin, by_force, check_log, insert, publish

COUNT = """
UPDATE naksha.places SET jsondata = jsonb_set(jsondata, '{properties,n}',
       to_jsonb((jsondata->'properties'->>'n')::int + 1)) WHERE jsondata->>'id' = 'counter'
"""
"""A user's trigger, which counts the writes to `roads` in a feature of `places`."""


async def add_trigger(
    shell: Direct, body: str, table: str = "roads", when: str = "AFTER", scope: str = "ROW"
) -> None:
    """A trigger of a user that runs `body` on every write to a table."""
    await shell.execute(
        "CREATE FUNCTION public.react() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF to_jsonb(NEW)->>'id' <> 'roads' THEN RETURN NEW; END IF;"
        f" {body}; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$"
    )
    # The sequencer updates the log, without an application.
    events = "INSERT" if table == "naksha_tx" else "INSERT OR UPDATE OR DELETE"
    await shell.execute(
        f"CREATE TRIGGER aaa_react {when} {events} ON {table}"
        f" FOR EACH {scope} EXECUTE FUNCTION public.react()"
    )


@pytest.fixture
async def shell(connect: Connect) -> Direct:
    """A connection for plain SQL; `places` has one feature, a counter that stands at 0."""
    connection = await connect()
    await begin(connection)
    await insert(connection, "places", "counter", n=0)
    await connection.execute("COMMIT")
    await publish(connection)
    return connection


async def by_library(storage: PsqlStorage, shell: Direct) -> None:
    await storage.run(lambda s: s.upsert("roads", [place("r", 1)]), "app")
    await storage.run(lambda s: s.upsert("roads", [place("r", 2)]), "app")
    await storage.run(lambda s: s.delete("roads", ["r"]), "app")


async def by_plain_sql(storage: PsqlStorage, shell: Direct) -> None:
    for statement in (
        'INSERT INTO roads (jsondata) VALUES (\'{"id": "r"}\')',
        "UPDATE roads SET jsondata = jsonb_set(jsondata, '{properties,n}', '2')",
        "DELETE FROM roads",
    ):
        await begin(shell)
        await shell.execute(statement)
        await shell.execute("COMMIT")


async def counted(storage: PsqlStorage, version: Any = HEAD) -> list[tuple[int, int]]:
    """The counter and its version."""
    states = [s async for s in storage.states("places", Query(ids=("counter",)), version)]
    return [(s.feature["properties"]["n"], s.xyz["version"]) for s in states]


@pytest.mark.parametrize("writer", [by_library, by_plain_sql])
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize("table", ["roads", "roads_del", "naksha_tx"])
async def test_writes_of_a_users_trigger_are_versioned(
    storage: PsqlStorage, shell: Direct, writer: Any, when: str, table: str
) -> None:
    await add_trigger(shell, COUNT, table, when)
    before = await storage.resolve(HEAD)
    await writer(storage, shell)
    head = await storage.resolve(HEAD)
    [(n, version)] = await counted(storage)
    assert n > 0
    assert version > 1, "each transaction makes a state"
    assert await counted(storage, AtSeq(before.seq_number)) == [(0, 1)]
    assert await counted(storage, AtSeq(head.seq_number)) == [(n, version)]
    history = await shell.fetchval("SELECT count(*) FROM places_hst")
    assert history >= version - 1
    logged = await shell.fetchval("SELECT sum(updated) FROM naksha_tx WHERE id = 'places'")
    assert logged == version - 1
    await check_log(shell)


@pytest.mark.usefixtures("sixteen")
@pytest.mark.parametrize("writer", [by_library, by_plain_sql])
@pytest.mark.parametrize("scope", ["STATEMENT", "ROW"])
async def test_triggers_of_statements_and_leaves_are_versioned_too(
    storage: PsqlStorage, shell: Direct, writer: Any, scope: str
) -> None:
    leaf = await shell.fetchval("SELECT 'roads_p' || naksha_leaf('r')")
    # PostgreSQL fires the statement triggers of the table that a statement names.
    table = leaf if writer is by_library or scope == "ROW" else "roads"
    await add_trigger(shell, COUNT, table, "AFTER", scope)
    await writer(storage, shell)
    [(n, version)] = await counted(storage)
    assert version == 4
    # The library inserts and updates in one statement, which fires the triggers of both.
    assert n == 5 if (scope, writer) == ("STATEMENT", by_library) else n == 3
    assert await shell.fetchval("SELECT count(*) FROM places_hst") == n


async def test_a_users_trigger_may_write_to_the_same_collection(
    storage: PsqlStorage, shell: Direct
) -> None:
    await add_trigger(
        shell,
        "IF pg_trigger_depth() = 1 THEN INSERT INTO naksha.roads (jsondata)"
        " VALUES (jsonb_build_object('id', 'echo-' || (NEW.jsondata->>'id'))); END IF",
    )
    await storage.run(lambda s: s.create("roads", [place("a", 1), place("b", 2)]), "app")
    states = [s async for s in storage.states("roads", Query())]
    assert sorted(s.id for s in states) == ["a", "b", "echo-a", "echo-b"]
    assert {s.xyz["action"] for s in states} == {"CREATE"}
    assert await shell.fetchval("SELECT sum(created) FROM naksha_tx WHERE id = 'roads'") == 4


async def test_a_users_trigger_may_call_the_library(storage: PsqlStorage, shell: Direct) -> None:
    """The inner call must not change how the outer call continues."""
    await add_trigger(
        shell,
        "PERFORM naksha.naksha_upsert('places', jsonb_build_object('id', NEW.jsondata->>'id'));"
        + COUNT,
    )
    features = [place(f"r{n}", n) for n in range(20)]
    await storage.run(lambda s: s.create("roads", features), "app")
    assert await counted(storage) == [(20, 2)]
    assert await storage.count("places", Query()) == 21
    assert await storage.count("roads", Query()) == 20
    await storage.resolve(HEAD)  # publishes
    await check_log(shell)


@pytest.mark.parametrize("table", ["places_hst", "places_del", "naksha_tx", "naksha_version"])
async def test_guards_hold_against_a_users_trigger(
    storage: PsqlStorage, shell: Direct, table: str
) -> None:
    await add_trigger(shell, f"DELETE FROM naksha.{table}")
    with pytest.raises(NakshaError, match=f"DELETE on table {table} is not allowed"):
        await storage.run(lambda s: s.upsert("roads", [place("r", 1)]), "app")
    await begin(shell)
    with pytest.raises(asyncpg.PostgresError, match="is not allowed"):
        await shell.execute("SELECT naksha_upsert('roads', $1)", json.dumps(place("r", 1)))


async def test_every_function_that_sets_the_mark_sets_all_of_it(connect: Connect) -> None:
    """One without naksha_mark_own is refused by the guards, one without the setting leaves its mark
    to the rest of the transaction."""
    shell = await connect()
    rows = await shell.fetch(
        "SELECT p.proname, 'naksha.managed=on' = ANY(p.proconfig) AS managed,"
        " 'naksha.depth=' = ANY(p.proconfig) AS depth,"
        " position('naksha_mark_own()' IN pg_get_functiondef(p.oid)) > 0 AS marked"
        " FROM pg_proc p WHERE p.pronamespace = 'naksha'::regnamespace AND p.prokind = 'f'"
        " AND p.proname <> 'naksha_mark_own'"
    )
    marked = {row["proname"] for row in rows if row["marked"]}
    assert len(marked) > 40
    assert marked == {row["proname"] for row in rows if row["managed"]}
    assert marked == {row["proname"] for row in rows if row["depth"]}


OUTDATED = "current_setting('naksha.managed', true) IS DISTINCT FROM 'on'"


async def make_outdated(shell: Direct) -> int:
    """Give all tables the triggers of an older version; returns their number."""
    await by_force(shell, "DELETE FROM naksha_migration WHERE name LIKE '%online_triggers'")
    definitions = await shell.fetch(
        "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class k ON k.oid = t.tgrelid"
        " WHERE k.relnamespace = 'naksha'::regnamespace AND t.tgparentid = 0"
        " AND pg_get_triggerdef(t.oid) LIKE '%naksha.depth%'"
    )
    for (definition,) in definitions:
        await shell.execute(
            "CREATE OR REPLACE "
            + re.sub(r"WHEN \(\(.*\)\) EXECUTE", f"WHEN ({OUTDATED}) EXECUTE", definition[7:])
        )
    return len(definitions)


@pytest.mark.usefixtures("sixteen")
async def test_an_older_storage_gets_new_triggers_when_it_is_opened(
    bare: str, shell: Direct
) -> None:
    before = await catalog(bare)
    assert await make_outdated(shell) > 50
    assert await catalog(bare) != before
    await add_trigger(shell, COUNT)
    # A process of the older version that is still at work uses the functions, with old triggers.
    await begin(shell)
    await shell.execute("SELECT naksha_upsert('roads', $1)", json.dumps(place("old", 1)))
    await shell.execute("COMMIT")
    await shell.execute("DROP TRIGGER aaa_react ON roads; DROP FUNCTION public.react")
    storage = await PsqlStorage.open(bare, "test")
    try:
        assert {row for row in before if row[0] == "trigger"} <= await catalog(bare)
        assert await shell.fetch("SELECT * FROM naksha_tables_to_mend()") == []
        await add_trigger(shell, COUNT)
        await by_library(storage, shell)
        [(n, version)] = await counted(storage)
        assert (n, version) == (4, 4)
    finally:
        await storage.close()


async def test_maintenance_renews_the_triggers_of_a_table_that_was_busy(
    storage: PsqlStorage, shell: Direct
) -> None:
    await make_outdated(shell)
    await storage.maintain()
    assert await shell.fetch("SELECT * FROM naksha_tables_to_mend()") == []
    await add_trigger(shell, COUNT)
    await by_library(storage, shell)
    assert await counted(storage) == [(3, 4)]
