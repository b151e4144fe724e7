"""Roles that do not own the schema: readers and writers, also of tables created later."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import naksha
from naksha.model.collection import CollectionInfo
from naksha.model.errors import NotFound, NotSupported, ReadOnly
from naksha.model.query import Bbox, Query
from naksha.model.version import HEAD, AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.schema import install as installer
from naksha.spi.storage import BranchLayer
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.branch_case import new_overlay
from naksha.testing.storage.bulk.suite_staging import written
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    MovableClock,
    fresh_name,
    ids_of,
    new_collection,
    point,
    published,
)
from tests.psql.support import Connect, connect_to, insert, until

_numbers = itertools.count()
DAY_MS = 24 * 3_600_000


def as_role(dsn: str, role: str) -> str:
    """The same database for another role."""
    scheme, rest = dsn.split("//")
    return f"{scheme}//{role}@{rest.split('@', 1)[1]}"


@pytest.fixture
def role(postgres_cluster: PostgresCluster) -> str:
    """A new role that may log in and has no rights."""
    name = f"nobody_{next(_numbers)}"
    postgres_cluster.execute(f"CREATE ROLE {name} LOGIN")
    return name


@pytest.fixture
async def owner(bare: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(bare, "test")
    yield opened
    await opened.close()


async def grant(dsn: str, role: str, kind: str) -> None:
    connection = await connect_to(dsn)
    await connection.execute("SELECT naksha_grant($1, $2)", role, kind)
    await connection.close()


class TestWriter:
    async def test_it_writes_also_after_midnight_and_to_new_collections(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await grant(bare, role, "writer")
        now = datetime.now(UTC) + timedelta(days=30)
        clock = MovableClock(int(now.timestamp() * 1000))
        writer = await PsqlStorage.open(as_role(bare, role), "test", clock=clock)
        roads, made_later = Handle(writer, "roads"), await new_collection(owner, id="later")
        for day in range(3):
            clock.time_ms += DAY_MS
            await roads.upsert(point("x", n=day))
            await Handle(writer, "later").upsert(point("y", n=day))
            await owner.maintain(clock.time_ms)
        version = await published(writer)
        assert (await roads.get("x")).xyz["version"] == 3
        assert ids_of(await made_later.live()) == ["y"]
        own = await new_collection(writer, id="own")
        await own.create(point("z"))
        await own.delete("z")
        assert (await published(writer)).seq_number > version.seq_number
        assert len(await Handle(owner, "own").all()) > 0
        await writer.close()

    async def test_it_writes_plain_sql(
        self, bare: str, owner: PsqlStorage, role: str, connect: Connect
    ) -> None:
        await grant(bare, role, "writer")
        await new_collection(owner, id="later")
        connection = await connect_to(as_role(bare, role))
        for name in ("roads", "later"):
            async with connection.transaction():
                await connection.execute("SELECT naksha_tx_start('shell')")
                await insert(connection, name, "a")
            async with connection.transaction():
                await connection.execute("SELECT naksha_tx_start('shell')")
                await connection.execute(f"UPDATE {name} SET jsondata = jsondata || '{{\"n\": 1}}'")
        await connection.close()
        await published(owner)
        for name in ("roads", "later"):
            assert len(await Handle(owner, name).all()) == 2

    async def test_it_branches_and_loads_in_bulk(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await Handle(owner, "roads").create(point("a", n=1))
        version = await published(owner)
        await grant(bare, role, "writer")
        writer = await PsqlStorage.open(as_role(bare, role), "test")
        overlay = await new_overlay(writer)
        branch = writer.on_branch([BranchLayer(overlay, None), BranchLayer(0, version.txn)])
        async with branch.write(APP) as session:
            await session.upsert("roads", [point("a", n=2)])
        (state,) = (await branch.page("roads", Query())).states
        assert state.feature["properties"]["n"] == 2
        info = CollectionInfo(id=fresh_name("bulk"), partitions=16)
        await written(writer, info, [point("f"), point("g")])
        assert ids_of(await Handle(owner, info.id).live()) == ["f", "g"]
        await written(writer, "roads", [point("staged")])
        assert ids_of(await Handle(owner, "roads").live()) == ["a", "staged"]
        last = await published(writer)
        connection = await connect_to(as_role(bare, role))
        assert await connection.fetchval("SELECT naksha_fold_cells()") == last.seq_number
        await connection.close()
        assert await writer.last_cell_change("roads", Bbox(-180, -90, 180, 90)) == last.txn
        await writer.close()

    async def test_an_upgrade_is_left_to_the_owner(
        self, bare: str, owner: PsqlStorage, role: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await grant(bare, role, "writer")
        monkeypatch.setattr(installer, "SCHEMA_VERSION", installer.SCHEMA_VERSION + 1)
        with pytest.raises(NotSupported, match="owner"):
            await PsqlStorage.open(as_role(bare, role), "test")

    async def test_maintenance_is_left_to_the_owner(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await grant(bare, role, "writer")
        writer = await PsqlStorage.open(as_role(bare, role), "test", maintain_every_s=0.01)
        with pytest.raises(NotSupported, match="owns the schema"):
            await writer.maintain()
        await writer.close()


class TestReader:
    async def test_it_reads_also_what_is_made_later_and_writes_nothing(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await Handle(owner, "roads").create(point("a", n=1))
        await grant(bare, role, "reader")
        first = await published(owner)
        with naksha.connect(as_role(bare, role), read_only=True) as database:
            assert database.collection("roads").get("a") is not None
        reader = await PsqlStorage.open(as_role(bare, role), read_only=True)
        later = await new_collection(owner, id="later")
        await later.create(point("b"))
        await Handle(owner, "roads").update(point("a", n=2))
        last = await published(owner)
        await owner.maintain()
        assert ids_of(await Handle(reader, "later").live()) == ["b"]
        for version, n in ((first, 1), (last, 2)):
            (state,) = await Handle(reader, "roads").live(AtSeq(version.seq_number))
            assert state.feature["properties"]["n"] == n
        assert (await reader.resolve(HEAD)).seq_number == last.seq_number
        assert len(await reader.transactions()) == last.seq_number
        log = await reader.cell_log(first.txn)
        assert (log.txn, log.is_settled) == (last.txn, True)
        assert [change.collection for change in log.changes or ()] == ["later", "later", "roads"]
        assert await reader.last_cell_change("later", Bbox(-180, -90, 180, 90)) > first.txn
        assert await reader.wait_beyond(first.seq_number, 5) >= last.seq_number
        with pytest.raises(ReadOnly):
            await Handle(reader, "roads").create(point("c"))
        with pytest.raises(ReadOnly):
            await reader.pin("p", first)
        with pytest.raises((ReadOnly, NotSupported)):
            await reader.maintain()
        await reader.close()

    async def test_it_learns_of_new_versions(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await grant(bare, role, "reader")
        reader = await PsqlStorage.open(as_role(bare, role), read_only=True)
        before = await published(owner)
        await Handle(owner, "roads").create(point("a"))
        after = await published(owner)
        assert await reader.wait_beyond(before.seq_number, 10) == after.seq_number
        await reader.close()

    async def test_without_read_only_the_reason_is_given(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await grant(bare, role, "reader")
        with pytest.raises(ReadOnly, match="read_only"):
            await PsqlStorage.open(as_role(bare, role), "test")

    async def test_missing_roles_are_not_created(self, database: str) -> None:
        with pytest.raises(NotFound):
            await PsqlStorage.open(database, read_only=True)


async def test_rights_can_be_taken_back(bare: str, owner: PsqlStorage, role: str) -> None:
    await grant(bare, role, "writer")
    await grant(bare, role, "reader")  # the last one counts
    connection = await connect_to(as_role(bare, role))
    assert await connection.fetchval("SELECT count(*) FROM roads") == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("SELECT nextval('naksha_tx_object_id_seq')")
    other = await connect_to(bare)
    await other.execute("SELECT naksha_revoke($1)", role)
    with pytest.raises(asyncpg.PostgresError):
        await connection.fetchval("SELECT count(*) FROM roads")
    await connection.close()
    await other.execute(f"DROP ROLE {role}")  # nothing of it is left
    await other.close()


async def test_only_known_kinds_and_roles(connect: Connect, role: str) -> None:
    connection = await connect()
    with pytest.raises(asyncpg.PostgresError, match="reader or writer"):
        await connection.execute("SELECT naksha_grant($1, 'admin')", role)
    with pytest.raises(asyncpg.UndefinedObjectError):
        await connection.execute("SELECT naksha_grant('there is none', 'reader')")


async def test_a_hot_standby_is_opened_read_only(postgres_cluster: PostgresCluster) -> None:
    settings = {"fsync": False, "full_page_writes": False}
    with PostgresCluster(settings) as primary, PostgresCluster(standby_of=primary) as standby:
        primary.create_database("maps")
        primary.execute("CREATE EXTENSION postgis SCHEMA public", "maps")
        storage = await PsqlStorage.open(primary.dsn("maps"), "test")
        roads = await new_collection(storage, id="roads")
        await roads.create(point("a"))
        version = await published(storage)
        watcher = await asyncpg.connect(standby.dsn("maps"))

        async def replayed() -> bool:
            query = "SELECT to_regclass('naksha.naksha_version') IS NOT NULL"
            return bool(await watcher.fetchval(query)) and bool(
                await watcher.fetchval(
                    "SELECT EXISTS (SELECT FROM naksha.naksha_version WHERE txn = $1)", version.txn
                )
            )

        await until(replayed)
        await watcher.close()
        with pytest.raises(ReadOnly, match="read_only"):
            await PsqlStorage.open(standby.dsn("maps"), "test")
        reader = await PsqlStorage.open(standby.dsn("maps"), "test", read_only=True)
        assert ids_of(await Handle(reader, "roads").live()) == ["a"]
        assert (await reader.resolve(HEAD)).txn == version.txn
        with pytest.raises(ReadOnly):
            await Handle(reader, "roads").create(point("b"))
        await roads.create(point("b"))
        after = await published(storage)
        assert await reader.wait_beyond(version.seq_number, 20) == after.seq_number
        assert ids_of(await Handle(reader, "roads").live()) == ["a", "b"]
        await reader.close()
        await storage.close()


async def test_security_definer_functions_have_a_fixed_search_path_and_are_for_writers(
    bare: str, connect: Connect, role: str
) -> None:
    connection = await connect()
    definers = await connection.fetch(
        "SELECT oid::regprocedure::text AS name, proconfig FROM pg_proc"
        " WHERE pronamespace = 'naksha'::regnamespace AND prosecdef"
    )
    assert len(definers) > 10
    for function in definers:
        assert any(each.startswith("search_path=") for each in function["proconfig"])
    await grant(bare, role, "reader")
    for kind, expected in (("reader", False), ("writer", True)):
        await grant(bare, role, kind)
        for function in definers:
            query = "SELECT has_function_privilege($1, $2, 'EXECUTE')"
            assert await connection.fetchval(query, role, function["name"]) is expected


class TestDefiners:
    """Functions that run with the rights of the owner give a writer no rights of the owner."""

    @pytest.fixture
    async def shell(self, bare: str, owner: PsqlStorage, role: str) -> AsyncIterator[Direct]:
        """A session of a writer."""
        await grant(bare, role, "writer")
        connection = await connect_to(as_role(bare, role))
        yield connection
        connection.terminate()

    async def test_a_leaf_with_features_is_not_replaced(
        self, owner: PsqlStorage, shell: Direct
    ) -> None:
        roads = Handle(owner, "roads")
        await roads.create(*(point(f"f{n}") for n in range(64)))
        job = await shell.fetchval("SELECT naksha_stage_open()")
        for leaf in "0123456789abcdef":
            await shell.execute("SELECT naksha_stage_create_leaf($1, $2)", job, leaf)
        with pytest.raises(asyncpg.PostgresError):
            await shell.execute("SELECT naksha_bulk_attach('roads', $1, '0')", job)
        with pytest.raises(asyncpg.PostgresError, match="has features"):
            async with shell.transaction():
                await shell.execute("SELECT naksha_tx_start('w')")
                await shell.execute("SELECT naksha_bulk_finish('roads', $1, 1, 0, NULL)", job)
        assert len(await roads.live()) == 64

    @pytest.mark.parametrize(
        "call",
        [
            "naksha_stage_create_leaf({}, '0')",
            "naksha_staged_index({}, '0', false)",
            "naksha_stage_drop({})",
            "naksha_bulk_finish('places', {}, 1, 0, NULL)",
        ],
    )
    async def test_the_load_of_another_role_is_left_alone(
        self, shell: Direct, connect: Connect, call: str
    ) -> None:
        other = await connect()
        theirs = await other.fetchval("SELECT naksha_stage_open()")
        await other.execute("SELECT naksha_stage_create_leaf($1, '0')", theirs)
        for job in (theirs, 99):
            with pytest.raises(asyncpg.PostgresError, match="No open session of role"):
                async with shell.transaction():
                    await shell.execute("SELECT naksha_tx_start('w')")
                    await shell.execute("SELECT " + call.format(job))
        assert await other.fetchval(f"SELECT count(*) FROM naksha_stage_{theirs}_p0") == 0

    @pytest.mark.parametrize("leaf", ["10", "", "x", "0\n"])
    async def test_a_leaf_is_one_digit(self, shell: Direct, leaf: str) -> None:
        job = await shell.fetchval("SELECT naksha_stage_open()")
        with pytest.raises(asyncpg.PostgresError, match="is not a leaf"):
            await shell.execute("SELECT naksha_stage_create_leaf($1, $2)", job, leaf)

    @pytest.mark.parametrize("schema", ["public", "naksha"])
    async def test_foreign_tables_are_not_swept(
        self, shell: Direct, connect: Connect, schema: str
    ) -> None:
        admin = await connect()
        await admin.execute(f"CREATE TABLE {schema}.payroll (leaf int2)")
        await shell.execute("SET naksha.depth = '0'")
        await shell.execute(
            "INSERT INTO naksha_staged (name, job, collection, points_only, until)"
            " VALUES ('payroll', 'x', 'roads', false, '-infinity')"
        )
        with pytest.raises(asyncpg.PostgresError, match="holds no staged features"):
            await shell.execute("SELECT naksha_staged_close('payroll', '{}', false, now())")
        await shell.execute("SELECT naksha_sweep_staged(now())")
        assert await admin.fetchval(f"SELECT count(*) FROM {schema}.payroll") == 0
        assert await admin.fetchval("SELECT count(*) FROM naksha_staged") == 0

    @pytest.mark.parametrize(
        "call",
        [
            "naksha_create_tables('geometry', 7, false)",
            "naksha_create_tables('payroll', 7, false)",
            "naksha_create_overlay_tables('payroll', false)",
            "naksha_create_overlay_tables('naksha_o1_1', false)",
            "naksha_create_side_tables('payroll', false)",
            "naksha_write_comment('payroll')",
            "naksha_ensure_day('payroll', naksha_day_txn('2031-01-01'))",
            "naksha_ensure_day('parted_hst', naksha_day_txn('2031-01-01'))",
        ],
    )
    async def test_only_tables_of_the_storage_are_made_and_described(
        self, shell: Direct, connect: Connect, call: str
    ) -> None:
        admin = await connect()
        await admin.execute(
            "CREATE TABLE public.payroll (a int); COMMENT ON TABLE public.payroll IS 'ours';"
            "CREATE TABLE public.parted_hst (i int8, jsondata jsonb, geo geometry)"
            " PARTITION BY RANGE (i)"
        )
        await shell.execute("SET naksha.depth = '0'")
        await shell.execute(
            "INSERT INTO naksha_collection (id, number, txn) VALUES"
            " ('payroll', 7, 1), ('parted', 8, 1)"
        )
        tables = "SELECT count(*) FROM pg_class"
        before = await admin.fetchval(tables)
        with pytest.raises(asyncpg.PostgresError):
            await shell.execute("SELECT " + call)
        assert await admin.fetchval(tables) == before
        query = "SELECT obj_description('public.payroll'::regclass)"
        assert await admin.fetchval(query) == "ours"

    @pytest.mark.parametrize("name", ["roads", "roads_del", "naksha_version"])
    async def test_days_are_made_for_histories_only(self, shell: Direct, name: str) -> None:
        with pytest.raises(asyncpg.PostgresError, match="neither the log nor the history"):
            await shell.execute("SELECT naksha_ensure_day($1, naksha_day_txn('2031-01-01'))", name)

    async def test_temporary_objects_do_not_run_as_the_owner(
        self, shell: Direct, connect: Connect
    ) -> None:
        admin = await connect()
        await admin.execute("CREATE TABLE public.ran_as (name text)")
        await admin.execute("GRANT INSERT ON public.ran_as TO PUBLIC")
        job = await shell.fetchval("SELECT naksha_stage_open()")
        await shell.execute(
            "CREATE FUNCTION pg_temp.spy() RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO public.ran_as VALUES (current_user); RETURN NULL; END $$;"
            f"CREATE VIEW pg_temp.naksha_stage_{job}_p0 AS SELECT 1::int8 AS i,"
            " pg_temp.spy()::text::geometry AS geo, '{}'::jsonb AS jsondata"
        )
        with pytest.raises(asyncpg.UndefinedTableError):
            await shell.execute(f"SELECT naksha_staged_index({job}, '0', false)")
        assert await admin.fetchval("SELECT count(*) FROM public.ran_as") == 0

    async def test_a_writer_must_not_create_where_postgis_is(
        self, bare: str, owner: PsqlStorage, role: str, connect: Connect
    ) -> None:
        admin = await connect()
        await admin.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
        with pytest.raises(asyncpg.PostgresError, match="REVOKE CREATE") as caught:
            await grant(bare, role, "writer")
        assert caught.value.sqlstate == "N0009"
        await grant(bare, role, "reader")

    async def test_a_writer_fills_new_collections_from_staged_parts(
        self, bare: str, owner: PsqlStorage, role: str
    ) -> None:
        await grant(bare, role, "writer")
        writer = await PsqlStorage.open(as_role(bare, role), "test")
        await written(writer, "places", [point("staged")])
        await writer.close()
        assert ids_of(await Handle(owner, "places").live()) == ["staged"]
