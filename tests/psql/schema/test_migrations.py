"""Installation and upgrade of the schema: equal results, on a live database, by many at once."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.errors import InvalidArgument, NotSupported
from naksha.model.query import Query
from naksha.model.transaction import MAIN, LogFilter, Transaction
from naksha.model.version import HEAD, AtSeq, Version
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.schema import install as installer
from naksha.psql.schema.install import install
from naksha.psql.schema.online import LOCK_MS_MAX
from naksha.psql.sql import schema_files
from naksha.spi.storage import BranchLayer
from naksha.testing.fixtures import DatabaseFactory
from tests.psql.aging import place
from tests.psql.support import by_force, connect_to, until, until_blocked

FAR_MS = 4_102_444_800_000
OLD_STEPS = [("0001_pre_colour", "ALTER TABLE naksha_pin ADD COLUMN colour text")]
NEW_STEPS = [
    *OLD_STEPS,
    ("0002_pre_shade", "ALTER TABLE naksha_pin ADD COLUMN shade text"),
    ("0003_post_colour", "ALTER TABLE naksha_pin DROP COLUMN colour"),
]

CATALOG = """
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
 WHERE p.pronamespace = 'naksha'::regnamespace AND p.prokind = 'f'
UNION ALL
SELECT 'column', a.attrelid::regclass || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || a.attnotnull
       || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relnamespace = 'naksha'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
 WHERE c.relnamespace = 'naksha'::regnamespace
UNION ALL
SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = 'naksha'::regnamespace AND t.tgparentid = 0
UNION ALL
SELECT 'constraint', k.conrelid::regclass || '.' || k.conname, pg_get_constraintdef(k.oid)
  FROM pg_constraint k WHERE k.connamespace = 'naksha'::regnamespace
UNION ALL
SELECT 'view', c.relname, pg_get_viewdef(c.oid) FROM pg_class c
 WHERE c.relnamespace = 'naksha'::regnamespace AND c.relkind = 'v'
"""
STRONG_LOCKS = """
SELECT l.relation::regclass::text, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
 WHERE l.pid = $1 AND c.relnamespace = 'naksha'::regnamespace AND c.relkind IN ('r', 'p', 'i')
   AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""


async def catalog(dsn: str) -> set[tuple[str, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return {tuple(row) for row in await connection.fetch(CATALOG)}
    finally:
        await connection.close()


async def set_up(dsn: str, steps: list[tuple[str, str]]) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await install(connection, "naksha", "test", 7, steps)
    finally:
        await connection.close()


async def steps_done(dsn: str) -> list[tuple[Any, ...]]:
    connection = await connect_to(dsn)
    rows = await connection.fetch(
        "SELECT name, at FROM naksha_migration WHERE name !~ '^(schema|version):' ORDER BY name"
    )
    await connection.close()
    return [tuple(row) for row in rows]


@pytest.fixture
def changed_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage was set up by other schema files, so that they run again."""
    real = schema_files()
    newer = [
        *real,
        ("999_newer.sql", "CREATE OR REPLACE FUNCTION naksha_newer() RETURNS int RETURN 1"),
    ]
    monkeypatch.setattr(installer, "schema_files", lambda: newer)


async def test_running_the_files_again_changes_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_up(database, [])
    before = await catalog(database)
    assert len(before) > 200
    monkeypatch.setattr(installer, "_fingerprint", lambda: "other")
    await set_up(database, [])
    assert await catalog(database) == before


async def test_upgraded_is_as_fresh(database_factory: DatabaseFactory) -> None:
    # What a release does: the files hold the result, the steps lead there.
    fresh_only = "ALTER TABLE naksha_pin ADD COLUMN shade text"
    with database_factory.fresh() as fresh, database_factory.fresh() as upgraded:
        await set_up(fresh, NEW_STEPS)
        connection = await connect_to(fresh)
        await connection.execute(fresh_only)
        await connection.close()
        await set_up(upgraded, [])
        await set_up(upgraded, OLD_STEPS)
        assert await catalog(upgraded) != await catalog(fresh)
        await set_up(upgraded, NEW_STEPS)
        assert await catalog(upgraded) == await catalog(fresh)
        assert [row[0] for row in await steps_done(fresh)] == [name for name, _ in NEW_STEPS]
        assert [row[0] for row in await steps_done(upgraded)] == [name for name, _ in NEW_STEPS]


async def test_steps_run_once(database: str) -> None:
    await set_up(database, [])
    await set_up(database, NEW_STEPS)
    done = await steps_done(database)
    await set_up(database, NEW_STEPS)
    assert await steps_done(database) == done


async def test_pre_runs_before_the_files_and_post_after(
    database: str, changed_schema: None
) -> None:
    await set_up(database, [])
    connection = await connect_to(database)
    await connection.execute("DROP FUNCTION naksha_newer()")
    await by_force(connection, "DELETE FROM naksha_migration")
    await connection.close()
    probe = "CREATE TABLE {} AS SELECT to_regproc('naksha_newer') IS NOT NULL AS there"
    await set_up(
        database,
        [("0001_post_b", probe.format("seen_post")), ("0002_pre_a", probe.format("seen_pre"))],
    )
    connection = await connect_to(database)
    assert await connection.fetchval("SELECT there FROM seen_post") is True
    assert await connection.fetchval("SELECT there FROM seen_pre") is False
    await connection.close()


async def test_an_interrupted_upgrade_leaves_the_old_and_resumes(database: str) -> None:
    await set_up(database, OLD_STEPS)
    before = await catalog(database)
    broken = [*OLD_STEPS, NEW_STEPS[1], ("0003_post_colour", "SELECT 1 / 0")]
    with pytest.raises(asyncpg.DivisionByZeroError):
        await set_up(database, broken)
    assert await catalog(database) == before
    assert len(await steps_done(database)) == 1
    await set_up(database, NEW_STEPS[:1] + NEW_STEPS[1:2])
    assert [row[0] for row in await steps_done(database)] == ["0001_pre_colour", "0002_pre_shade"]


async def test_a_newer_storage_is_refused(database: str) -> None:
    await set_up(database, NEW_STEPS)
    before = await catalog(database)
    with pytest.raises(NotSupported, match=r"newer Naksha.*0003_post_colour"):
        await set_up(database, OLD_STEPS)
    assert await catalog(database) == before


async def test_another_storages_schema_is_refused(database: str) -> None:
    await set_up(database, [])
    with pytest.raises(InvalidArgument, match="holds storage 'test'"):
        await PsqlStorage.open(database, "other")


class Upgrade:
    """An upgrade that has done all its work and waits before it commits."""

    KEY = 4711

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    async def __aenter__(self) -> Upgrade:
        self.gate = await connect_to(self.dsn)
        await self.gate.execute("SELECT pg_advisory_lock($1)", self.KEY)
        self.connection: Direct = await asyncpg.connect(self.dsn)
        wait = f"SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({self.KEY})"
        steps = [("0009_post_wait", wait)]
        self.task = asyncio.create_task(install(self.connection, "naksha", "test", 7, steps))
        await until_blocked(self.gate, self.connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gate.execute("SELECT pg_advisory_unlock($1)", self.KEY)
        try:
            await self.task
        finally:
            await self.gate.close()
            await self.connection.close()


async def test_writers_and_readers_go_on_during_an_upgrade(bare: str, changed_schema: None) -> None:
    storage = await PsqlStorage.open(bare, "test")
    # The second state of a feature makes the day of the history.
    await storage.run(lambda s: s.upsert("roads", [place("x", 0)]), "app")
    await storage.run(lambda s: s.upsert("roads", [place("x", 1)]), "app")
    connection = await connect_to(bare)
    await by_force(connection, "DELETE FROM naksha_migration")
    await connection.close()
    try:
        async with Upgrade(bare) as upgrade:
            strong = await upgrade.gate.fetch(STRONG_LOCKS, upgrade.connection.get_server_pid())
            assert [tuple(row) for row in strong] == []
            async with asyncio.timeout(10):
                await storage.run(lambda s: s.upsert("roads", [place("x", 2)]), "app")
                await storage.run(lambda s: s.delete("roads", ["x"]), "app")
                version = await storage.resolve(HEAD)
                assert await storage.count("roads", Query(), AtSeq(version.seq_number - 1)) == 1
    finally:
        await storage.close()


async def test_an_upgrade_does_not_wait_for_writers(bare: str, changed_schema: None) -> None:
    """Only for one who makes the tables of a new day: PostgreSQL 15.20 locks the functions that
    their indices and triggers use, until he ends."""
    writer = await connect_to(bare)
    await by_force(writer, "DELETE FROM naksha_migration")
    for speed in (30, 50, 70):
        if speed > 30:
            await writer.execute("COMMIT")
        await writer.execute("BEGIN")
        await writer.execute("SELECT naksha_tx_start('slow')")
        feature = f'{{"id": "x", "properties": {{"speed": {speed}}}}}'
        await writer.execute(f"SELECT naksha_upsert('roads', '{feature}')")
    try:
        async with asyncio.timeout(20):
            await set_up(bare, [])
        await writer.execute("COMMIT")
    finally:
        await writer.close()


PROCESS = """
import asyncio, sys
from naksha.model.query import Query
from naksha.model.version import HEAD, AtSeq
from naksha.psql import PsqlStorage

async def main() -> None:
    storage = await PsqlStorage.open(sys.argv[1], "test", number=7)
    print(storage.id, storage.number)
    await storage.close()

asyncio.run(main())
"""


async def test_many_processes_may_install_at_once(database_factory: DatabaseFactory) -> None:
    with database_factory.fresh() as dsn, database_factory.fresh() as alone:
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROCESS, dsn, stdout=asyncio.subprocess.PIPE
            )
            for _ in range(3)
        ]
        outputs = [(await process.communicate())[0] for process in processes]
        assert outputs == [b"test 7\n"] * 3
        await set_up(alone, installer.migrations())
        assert await catalog(dsn) == await catalog(alone)


OLDER = """
DROP TABLE naksha_kept, naksha_overlay CASCADE;
DROP SEQUENCE naksha_overlay_seq, naksha_hidden_number_seq CASCADE;
DROP FUNCTION naksha_pin_set(text, int8, text, bool), naksha_last_purge(naksha_collection, int8);
CREATE FUNCTION naksha_pin_set(text, int8, text DEFAULT NULL) RETURNS void RETURN NULL;
CREATE FUNCTION naksha_last_purge(text, int8) RETURNS int8 RETURN 0;
DROP INDEX naksha_tx_author_txn, naksha_tx_app_id_txn, naksha_tx_overlay_txn, naksha_tx_messages;
ALTER TABLE naksha_tx DROP COLUMN overlay CASCADE;
ALTER TABLE naksha_pin DROP COLUMN guards;
ALTER TABLE naksha_collection DROP COLUMN created_txn, DROP COLUMN overlay CASCADE,
    DROP COLUMN base CASCADE, DROP COLUMN dropped_at CASCADE, DROP COLUMN partitions CASCADE;
CREATE TABLE naksha_tx_new_2020 (LIKE naksha_tx);
DELETE FROM naksha_migration
"""
"""Takes back what branches brought, as far as they changed what was there before."""


async def make_older(dsn: str) -> tuple[Version, list[Transaction]]:
    """A storage as it was before branches, its last version, and its log."""
    await set_up(dsn, installer.migrations())
    storage = await PsqlStorage.open(dsn, "test")
    info = CollectionInfo(id="roads", partitions=16)
    await storage.run(lambda s: s.create_collection(info), "app", "me")
    await storage.run(lambda s: s.upsert("roads", [place("x", 1)]), "app", "me")
    version = await storage.resolve(HEAD)
    log = await storage.transactions()
    await storage.close()
    connection = await connect_to(dsn)
    await by_force(connection, OLDER)
    await connection.close()
    return version, log


async def test_a_storage_from_before_branches_is_brought_up_to_date(
    database_factory: DatabaseFactory,
) -> None:
    with database_factory.fresh() as fresh, database_factory.fresh() as older:
        await set_up(fresh, installer.migrations())
        version, log = await make_older(older)
        storage = await PsqlStorage.open(older, "test")
        try:
            assert await storage.transactions(0, 10, LogFilter(authors=("me",))) == log
            await storage.pin("base", version, "roads", guards=True)
            overlay = await storage.run(lambda s: s.new_overlay(), "app")
            branch = storage.on_branch([BranchLayer(overlay, None), BranchLayer(MAIN, version.txn)])
            await branch.run(lambda s: s.upsert("roads", [place("x", 2)]), "app")
            assert [state.xyz["version"] async for state in branch.states("roads", Query())] == [2]
            await storage.run(lambda s: s.drop_overlay(overlay), "app")
            await storage.unpin("base")
            await storage.run(lambda s: s.drop_collection("roads"), "app")
            await storage.maintain(version.published_ms + 10**9)
        finally:
            await storage.close()
        day = re.compile(r"naksha_tx_(from_)?\d{4}_\d\d_\d\d")
        assert {row for row in await catalog(older) if not day.search(row[1])} == {
            row for row in await catalog(fresh) if not day.search(row[1])
        }


UNMARKED = """
ALTER TABLE naksha_collection DROP COLUMN dropped_at CASCADE;
DELETE FROM naksha_migration WHERE name = '0008_pre_dropped_at' OR name LIKE 'schema:%'
"""
"""Takes back the mark of dropped collections: what had a time to delete it was dropped."""


async def test_dropped_collections_of_an_older_storage_are_marked(database: str) -> None:
    storage = await PsqlStorage.open(database, "test")
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="kept")), "app")
    await storage.run(lambda s: s.create_collection(CollectionInfo(id="dropped")), "app")
    await storage.run(lambda s: s.drop_collection("dropped", FAR_MS), "app")
    was = await storage.collection("dropped", dropped=True)
    await storage.close()
    connection = await connect_to(database)
    await by_force(connection, UNMARKED)
    await connection.close()
    storage = await PsqlStorage.open(database, "test")
    try:
        assert [info.id for info in await storage.collections()] == ["kept"]
        assert await storage.collection("dropped", dropped=True) == was
        await storage.run(lambda s: s.restore_collection("dropped"), "app")
        assert (await storage.collection("dropped")).delete_at == 0
    finally:
        await storage.close()


UNCOUNTED = """
ALTER TABLE naksha_collection DROP COLUMN partitions CASCADE;
DELETE FROM naksha_migration WHERE name LIKE '001%' OR name LIKE 'schema:%'
"""
"""Takes back the number of partitions: collections had sixteen, their overlays one."""


async def test_collections_of_an_older_storage_have_sixteen_partitions(database: str) -> None:
    storage = await PsqlStorage.open(database, "test")
    info = CollectionInfo(id="roads", partitions=16)
    await storage.run(lambda s: s.create_collection(info), "app")
    await storage.run(lambda s: s.upsert("roads", [place("x", 1), place("y", 1)]), "app")
    base = await storage.resolve(HEAD)
    overlay = await storage.run(lambda s: s.new_overlay(), "app")
    layers = [BranchLayer(overlay, None), BranchLayer(MAIN, base.txn)]
    await storage.on_branch(layers).run(lambda s: s.upsert("roads", [place("x", 2)]), "app")
    await storage.close()
    connection = await connect_to(database)
    await by_force(connection, UNCOUNTED)
    storage = await PsqlStorage.open(database, "test")
    try:
        assert (await storage.collection("roads")).partitions == 16
        branch = storage.on_branch(layers)
        some = [place(f"f{n}", n) for n in range(40)]
        for each in (storage, branch):
            await each.run(lambda s: s.upsert("roads", some), "app")
            assert await each.count("roads", Query()) == 42
        rows = await connection.fetch("SELECT overlay, partitions FROM naksha_collection")
        assert {tuple(row) for row in rows} == {(0, 16), (overlay, 1)}
        await storage.run(lambda s: s.create_collection(CollectionInfo(id="new")), "app")
        assert (await storage.collection("new")).partitions == 1
    finally:
        await connection.close()
        await storage.close()


OLD_WRITE = """
SET LOCAL naksha.depth = '0';
SELECT FROM naksha_collection WHERE id = 'roads';
UPDATE naksha_tx SET app_id = app_id;
UPDATE roads SET i = i
"""
"""Statements that take the locks of a writer of the older version."""
OLD_READ = "SELECT count(*) FROM naksha_tx; SELECT count(*) FROM naksha_collection"


class Pulse:
    """A client that repeats statements and measures the longest duration."""

    def __init__(self, dsn: str, statements: str) -> None:
        self._dsn = dsn
        self._statements = statements
        self.count = 0

    async def __aenter__(self) -> Pulse:
        self._connection = await connect_to(self._dsn)
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._connection.terminate()

    async def has_beaten(self) -> bool:
        return self.count > 2

    async def _beat(self) -> None:
        while True:
            async with self._connection.transaction():
                await self._connection.execute(self._statements)
            self.count += 1


async def test_the_steps_to_branches_run_while_others_read_and_write(database: str) -> None:
    await make_older(database)
    async with Pulse(database, OLD_WRITE) as writer, Pulse(database, OLD_READ) as reader:
        storage = await PsqlStorage.open(database, "test")
        assert await writer.has_beaten()
        assert await reader.has_beaten()
    try:
        await storage.run(lambda s: s.upsert("roads", [place("y", 1)]), "app", "me")
        assert len(await storage.transactions(0, 10, LogFilter(authors=("me",)))) == 3
    finally:
        await storage.close()


async def test_an_upgrade_that_waits_does_not_keep_others_waiting(database: str) -> None:
    await make_older(database)
    slow = await connect_to(database)
    await slow.execute("BEGIN")
    await slow.execute(OLD_WRITE)
    async with Pulse(database, OLD_READ) as reader:
        upgrade = asyncio.create_task(set_up(database, installer.migrations()))
        await asyncio.sleep(10 * LOCK_MS_MAX / 1000)  # several attempts
        seen = reader.count

        async def reads_on() -> bool:
            return reader.count > seen + 5

        await until(reads_on)
        assert not upgrade.done()
        await slow.execute("COMMIT")
        await upgrade
    await slow.close()


async def test_indices_of_the_log_are_built_while_others_write(database: str) -> None:
    """A snapshot from before makes the building of an index wait for as long as it is there."""
    await make_older(database)
    onlooker = await connect_to(database)
    await onlooker.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await onlooker.execute("SELECT FROM pg_class")
    upgrade = asyncio.create_task(set_up(database, installer.migrations()))
    try:
        watcher = await connect_to(database)

        async def builds() -> bool:
            found: bool = await watcher.fetchval(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX"
                " CONCURRENTLY%' AND wait_event_type = 'Lock' AND datname = current_database())"
            )
            return found

        await until(builds)
        async with asyncio.timeout(20):
            async with Pulse(database, OLD_WRITE) as writer:
                await until(writer.has_beaten)
        assert not upgrade.done()
    finally:
        await onlooker.execute("COMMIT")
    await upgrade
    valid = await watcher.fetch(
        "SELECT i.indisvalid FROM pg_index i WHERE i.indrelid = 'naksha_tx'::regclass"
    )
    assert [row[0] for row in valid] == [True] * 9
    await watcher.close()
    await onlooker.close()


async def test_an_index_of_a_killed_build_is_built_again(database: str) -> None:
    await make_older(database)
    online = [step for step in installer.migrations() if "_online_" in step[0]]
    await set_up(database, [step for step in installer.migrations() if step not in online])
    connection = await connect_to(database)
    day = await connection.fetchval(
        "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'naksha_tx'::regclass"
    )
    await connection.execute("CREATE INDEX naksha_tx_author_txn ON ONLY naksha_tx (author, txn)")
    await connection.execute(f"CREATE INDEX {day}_author_txn ON {day} (author, txn)")
    await connection.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::regclass",
        f"{day}_author_txn",
    )
    await connection.execute(f"CREATE INDEX {day}_app_id_txn ON {day} (app_id, txn)")
    await set_up(database, installer.migrations())
    valid = await connection.fetch(
        "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "WHERE c.relname LIKE 'naksha\\_tx%' AND c.relkind IN ('r', 'p')"
    )
    days = await connection.fetchval("SELECT count(*) FROM naksha_partitions('naksha_tx')")
    assert [row[0] for row in valid] == [True] * 9 * (1 + days)
    assert online[0][0] in [row[0] for row in await steps_done(database)]
    await connection.close()


async def test_an_older_release_refuses_a_newer_schema_and_leaves_it_as_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer, "SCHEMA_VERSION", installer.SCHEMA_VERSION + 1)
    await set_up(database, [])
    before = await catalog(database)
    monkeypatch.undo()
    real = schema_files()
    older = [*real, ("999_older.sql", "CREATE FUNCTION naksha_older() RETURNS int RETURN 1")]
    monkeypatch.setattr(installer, "schema_files", lambda: older)
    for read_only in (False, True):
        with pytest.raises(NotSupported, match="newer Naksha") as caught:
            await PsqlStorage.open(database, read_only=read_only)
        assert str(installer.SCHEMA_VERSION + 1) in str(caught.value)
    assert await catalog(database) == before
    monkeypatch.setattr(installer, "SCHEMA_VERSION", installer.SCHEMA_VERSION + 1)
    await set_up(database, [])


async def test_a_schema_without_a_version_gets_one(database: str) -> None:
    """It was set up before schemas had one."""
    await set_up(database, [])
    connection = await connect_to(database)
    await by_force(connection, "DELETE FROM naksha_migration WHERE name LIKE 'version:%'")
    await set_up(database, [])
    query = "SELECT name FROM naksha_migration WHERE name LIKE 'version:%'"
    assert await connection.fetchval(query) == f"version:{installer.SCHEMA_VERSION:05}"
    await connection.close()
