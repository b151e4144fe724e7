"""Bulk loads of PostgreSQL: equal to a normal insert in every catalog row, or without a trace."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import (
    CollectionNotFound,
    Conflict,
    NotSupported,
)
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.psql.bulk import staged_rows
from naksha.psql.connection.driver import Direct
from naksha.testing.storage.suite_support import Handle, new_collection, point, published
from tests.psql.support import Connect, begin, until

PROGRAM = Path(__file__).with_name("bulk_process.py")
FORMS = pytest.mark.parametrize("exclusive", [False, True], ids=["staged", "exclusive"])


async def load(
    storage: PsqlStorage, collection: str, *parts: list[Any], exclusive: bool, **settings: Any
) -> int:
    info = CollectionInfo(id=collection, **settings)
    writer = await storage.bulk_writer(info, "app", exclusive=exclusive)
    try:
        for part in parts:
            await writer.add(part)
        return await writer.commit()
    finally:
        await writer.abort()


async def staging_tables(connection: Direct) -> int:
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname ~ '^naksha_stage_[0-9]' AND relkind = 'r'"
    )
    return count


# ---- Like a normal insert ------------------------------------------------------------------------

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


@FORMS
@pytest.mark.parametrize("points_only", [False, True])
async def test_tables_are_those_of_a_normal_collection(
    storage: PsqlStorage, connect: Connect, exclusive: bool, points_only: bool
) -> None:
    features = [point(f"f{n}") for n in range(100)]
    normal = await new_collection(storage, id="normal", points_only=points_only, partitions=16)
    await normal.create(*features)
    await load(storage, "bulk", features, exclusive=exclusive, points_only=points_only)
    await new_collection(storage, id="empty", points_only=points_only)
    await load(storage, "empty", features, exclusive=exclusive)
    connection = await connect()
    wanted = await catalog_of(connection, "normal")
    assert len(wanted) > 300
    assert await catalog_of(connection, "bulk") == wanted
    assert await catalog_of(connection, "empty") == wanted
    assert await staging_tables(connection) == 0


@FORMS
async def test_plain_sql_and_guards_work_afterwards(
    storage: PsqlStorage, connect: Connect, exclusive: bool
) -> None:
    await load(storage, "bulk", [point(f"f{n}") for n in range(50)], exclusive=exclusive)
    connection = await connect()
    await begin(connection)
    leaf = "bulk_p" + staging_leaf("f1")
    await connection.execute(f"DELETE FROM {leaf} WHERE jsondata->>'id' = 'f1'")
    await connection.execute("""INSERT INTO bulk (jsondata) VALUES ('{"id": "new"}')""")
    await connection.execute("COMMIT")
    handle = Handle(storage, "bulk")
    assert [state.id for state in await handle.deleted()] == ["f1"]
    new = await handle.get("new")
    assert int(new.uuid.rpartition(":")[2]) > 50
    with pytest.raises(Exception, match="not allowed"):
        await connection.execute(f"TRUNCATE {leaf}")


def staging_leaf(feature_id: str) -> str:
    return f"{staged_rows.leaves_of([feature_id])[0]:x}"


@pytest.mark.usefixtures("sixteen")
async def test_attaching_scans_nothing(connect: Connect) -> None:
    connection = await connect()
    said: list[str] = []
    connection.add_log_listener(lambda _, message: said.append(str(message)))
    job = await connection.fetchval("SELECT naksha_stage_open()")
    for leaf in "0f":
        await connection.execute("SELECT naksha_stage_create_leaf($1, $2)", job, leaf)
        await connection.execute(f"DROP TABLE roads_p{leaf}")
        await connection.execute("SET client_min_messages = debug1")
        values = "'0', NULL" if leaf == "0" else f"'{leaf}'"
        table = f"naksha_stage_{job}_p{leaf}"
        await connection.execute(
            f"ALTER TABLE roads ATTACH PARTITION {table} FOR VALUES IN ({values})"
        )
        await connection.execute("RESET client_min_messages")
    assert len([text for text in said if "is implied by existing constraints" in text]) == 2


# ---- What came twice, and what is refused --------------------------------------------------------


@FORMS
async def test_the_last_one_counts_across_chunks(
    storage: PsqlStorage, exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_rows, "CHUNK_FEATURES", 30)
    parts = [[point(f"f{n}", part=part) for n in range(0, 100, part)] for part in (1, 2, 5)]
    txn = await load(storage, "bulk", *parts, exclusive=exclusive)
    live = await Handle(storage, "bulk").live()
    assert len(live) == 100
    for state in live:
        number = int(state.id[1:])
        part = max(part for part in (1, 2, 5) if number % part == 0)
        assert state.feature["properties"]["part"] == part
    (signal,) = [s for s in (await storage.transaction(txn)).signals if s.created]
    assert signal.created == 100


@FORMS
async def test_a_collection_with_tombstones_is_refused(
    storage: PsqlStorage, exclusive: bool
) -> None:
    handle = Handle(storage, "places")
    await handle.create(point("x"))
    await handle.delete("x")
    with pytest.raises(NotSupported, match="purge"):
        await load(storage, "places", [point("y")], exclusive=exclusive)
    await handle.purge("x")
    await load(storage, "places", [point("x")], exclusive=exclusive)
    assert (await handle.get("x")).xyz["version"] == 1


async def test_a_load_that_comes_too_late_leaves_nothing(
    storage: PsqlStorage, connect: Connect
) -> None:
    writer = await storage.bulk_writer(CollectionInfo(id="places"), "app")
    await writer.add([point("x")])
    await Handle(storage, "places").create(point("y"))
    with pytest.raises(Conflict):
        await writer.commit()
    assert [state.id for state in await Handle(storage, "places").live()] == ["y"]
    assert await staging_tables(await connect()) == 0


async def test_a_load_cancelled_in_the_middle_never_was(
    storage: PsqlStorage, connect: Connect
) -> None:
    writer = await storage.bulk_writer(CollectionInfo(id="bulk"), "app")
    await writer.add([point(f"f{n}") for n in range(5000)])
    committing = asyncio.create_task(writer.commit())
    await asyncio.sleep(0.1)
    committing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await committing
    if committing.cancelled():
        with pytest.raises(CollectionNotFound):
            await storage.collection("bulk")
    assert await staging_tables(await connect()) == 0


# ---- Kills and sweeps ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def loading(dsn: str, form: str, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has added its features and waits."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), dsn, form, str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"added\n"
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_swept(storage: PsqlStorage, connection: Direct) -> None:
    """A backend in the middle of its work finds out late that its client is gone."""

    async def nothing_is_left() -> bool:
        await storage.maintain()
        return await staging_tables(connection) == 0

    await until(nothing_is_left)


async def is_waited_for(connection: Direct, table: str) -> bool:
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted)", table
    )
    return found


@pytest.mark.parametrize("form", ["staged", "exclusive"])
@pytest.mark.parametrize("committing", [False, True])
async def test_a_killed_load_never_was(
    storage: PsqlStorage, bare: str, connect: Connect, form: str, committing: bool
) -> None:
    """Also when all that is left to do is the commit: the last leaf is held until the kill."""
    connection, holder = await connect(), await connect()
    async with loading(bare, form, 20_000) as process:
        assert await staging_tables(connection) == 16
        assert await connection.fetchval("SELECT naksha_sweep_staging()") == 0
        if committing:
            assert process.stdin is not None
            last = await connection.fetchval(
                r"SELECT relname FROM pg_class WHERE relname ~ '^naksha_stage_\d+_[sp]f$'"
            )
            await holder.execute("BEGIN")
            await holder.execute(f"LOCK TABLE {last} IN ACCESS SHARE MODE")
            process.stdin.write(b"go\n")
            await until(lambda: is_waited_for(connection, last))
        process.kill()
        await process.wait()
    if committing:
        await holder.execute("COMMIT")
    with pytest.raises(CollectionNotFound):
        await storage.collection("loaded")
    await Handle(storage, "places").create(point("x"))
    await until_swept(storage, connection)
    await published(storage)
    await load(storage, "loaded", [point("y")], exclusive=form == "exclusive")
    assert await storage.count("loaded", Query()) == 1


async def test_the_tables_of_a_living_load_are_left_alone(
    storage: PsqlStorage, connect: Connect
) -> None:
    connection = await connect()
    writer = await storage.bulk_writer(CollectionInfo(id="bulk"), "app")
    other = await storage.bulk_writer(CollectionInfo(id="other"), "app")
    await other.abort()
    assert await connection.fetchval("SELECT naksha_sweep_staging()") == 0
    await writer.add([point("x")])
    await writer.commit()
    assert await storage.count("bulk", Query()) == 1
