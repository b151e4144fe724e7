"""Names of older documents: wrappers in the storage's schema and, on request, in xyz_config."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import asyncpg
import pytest

from naksha.model.identity.uuids import Uuid
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.schema import install as installer
from naksha.psql.schema.install import install
from naksha.psql.sql import schema_files
from tests.psql.support import until_blocked

INSERT = (
    "INSERT INTO naksha.roads (jsondata, geo)"
    " VALUES (jsonb_build_object('id', $1::text), ST_MakePoint(1, 2, 3)::geometry(PointZ, 4326))"
)


@pytest.fixture
async def storage(database: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(database, "old", number=42)
    yield opened
    await opened.close()


@pytest.fixture
async def connection(storage: PsqlStorage, database: str) -> AsyncIterator[Direct]:
    opened = await asyncpg.connect(database)
    async with opened.transaction():
        await opened.execute("SELECT naksha.naksha_tx_set_app_id('setup')")
        await opened.execute("SELECT naksha.naksha_collection_create('roads')")
    await opened.execute("SELECT naksha.naksha_install_legacy()")
    yield opened
    await opened.close()


async def insert(connection: Direct, id: str) -> None:
    await connection.execute(INSERT.replace("ST_MakePoint(1, 2, 3)", "NULL"), id)


async def author_of(connection: Direct, id: str) -> tuple[str, str]:
    row = await connection.fetchrow(
        "SELECT x->>'appId', x->>'author' FROM naksha.roads,"
        " LATERAL (SELECT naksha.naksha_xyz(jsondata)) AS v(x) WHERE jsondata->>'id' = $1",
        id,
    )
    assert row is not None
    return row[0], row[1]


@pytest.mark.parametrize("schema", ["naksha", "xyz_config"])
@pytest.mark.parametrize("author_first", [False, True])
async def test_application_and_author_are_set_in_any_order(
    connection: Direct, schema: str, author_first: bool
) -> None:
    calls = [
        f"SELECT {schema}.naksha_tx_set_app_id('app')",
        f"SELECT {schema}.naksha_tx_set_author('me')",
    ]
    async with connection.transaction():
        for call in reversed(calls) if author_first else calls:
            await connection.execute(call)
        await insert(connection, "a")
    assert await author_of(connection, "a") == ("app", "me")
    async with connection.transaction():
        await connection.execute(calls[0])
        await insert(connection, "b")
    assert await author_of(connection, "b") == ("app", "app"), "the author was of the other one"


async def test_an_author_without_an_application_is_refused(connection: Direct) -> None:
    with pytest.raises(asyncpg.PostgresError, match="No application id is set"):
        async with connection.transaction():
            await connection.execute("SELECT xyz_config.naksha_tx_set_author('me')")
            await insert(connection, "a")
    with pytest.raises(asyncpg.PostgresError, match="must not be empty"):
        await connection.execute("SELECT xyz_config.naksha_tx_set_app_id(NULL)")


async def test_an_author_can_be_taken_back(connection: Direct) -> None:
    async with connection.transaction():
        await connection.execute("SELECT naksha.naksha_tx_start('app', 'me')")
        await connection.execute("SELECT xyz_config.naksha_tx_set_author(NULL)")
        await connection.execute("SELECT xyz_config.naksha_tx_set_app_id('other')")
        await insert(connection, "a")
    assert await author_of(connection, "a") == ("other", "other")


async def test_the_unique_id_is_the_transaction_number(connection: Direct) -> None:
    async with connection.transaction():
        await connection.execute("SELECT naksha.naksha_tx_start('app')")
        numbers = await connection.fetchrow(
            "SELECT naksha.naksha_uid(), xyz_config.naksha_uid(), naksha.naksha_txn(),"
            " naksha.naksha_uid('roads'), xyz_config.naksha_uid('roads')"
        )
    assert numbers is not None
    assert len(set(numbers)) == 1


async def test_the_number_for_a_collection_is_drawn_behind_its_gate(
    connection: Direct, database: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match="The collection 'nowhere' does not exist"):
        async with connection.transaction():
            await connection.execute("SELECT naksha.naksha_tx_start('app')")
            await connection.execute("SELECT naksha.naksha_uid('nowhere')")
    admin = await asyncpg.connect(database)

    async def change() -> None:
        async with admin.transaction():
            await admin.execute("SELECT naksha.naksha_tx_start('admin')")
            await admin.execute(
                "SELECT naksha.naksha_collection_change('roads', '{\"maxAge\": 9}')"
            )

    async with connection.transaction():
        await connection.execute("SELECT naksha.naksha_tx_start('app')")
        await connection.execute("SELECT naksha.naksha_uid('roads')")
        changing = asyncio.create_task(change())
        await until_blocked(connection, admin)
    await changing
    await admin.close()


@pytest.mark.parametrize("schema", ["naksha", "xyz_config"])
async def test_history_is_switched_by_schema_and_table(
    storage: PsqlStorage, connection: Direct, schema: str
) -> None:
    for arguments in ("'naksha', 'roads'", "'roads'"):
        for enabled in (False, True):
            verb = "enable" if enabled else "disable"
            async with connection.transaction():
                await connection.execute("SELECT naksha.naksha_tx_start('app')")
                await connection.execute(
                    f"SELECT {schema}.naksha_space_{verb}_history({arguments})"
                )
            assert (await storage.collection("roads")).history_enabled is enabled
    with pytest.raises(asyncpg.PostgresError, match="not the schema of this storage"):
        async with connection.transaction():
            await connection.execute("SELECT naksha.naksha_tx_start('app')")
            await connection.execute(f"SELECT {schema}.naksha_space_enable_history('x', 'roads')")


async def test_the_log_in_the_columns_of_old(storage: PsqlStorage, connection: Direct) -> None:
    async with connection.transaction():
        await connection.execute("SELECT naksha.naksha_tx_start('app', 'me')")
        await connection.execute("SELECT naksha.naksha_collection_create('ways')")
        await connection.execute(INSERT.replace("roads", "ways"), "a")
        await connection.execute(
            "SELECT naksha.naksha_tx_message('why', 'because', '{\"ticket\": 1}')"
        )
    await storage.resolve(AtSeq(2))
    columns = await connection.fetch(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
        " WHERE attrelid = 'xyz_config.transactions'::regclass ORDER BY attnum"
    )
    assert [tuple(column) for column in columns] == [
        ("i", "bigint"),
        ("txid", "bigint"),
        ("txi", "bigint"),
        ("txts", "timestamp with time zone"),
        ("txdb", "bigint"),
        ("txn", "uuid"),
        ("schema", "text"),
        ("table", "text"),
        ("commit_msg", "text"),
        ("commit_json", "jsonb"),
        ("space", "text"),
        ("id", "bigint"),
        ("ts", "timestamp with time zone"),
    ]
    first, second = await storage.transactions()
    rows = await connection.fetch("SELECT * FROM xyz_config.transactions ORDER BY id, i")
    assert [(r["id"], r["schema"], r["table"], r["space"]) for r in rows] == [
        (1, "naksha", "roads", "roads"),
        (2, "naksha", "ways", "ways"),
        (2, "COMMIT_MSG", "why", None),
    ]
    assert [r["txn"] for r in rows] == [
        Uuid.of_txn(t, 42).to_uuid() for t in (first.txn, second.txn, second.txn)
    ]
    assert (rows[2]["commit_msg"], rows[2]["commit_json"]) == ("because", '{"ticket": 1}')
    for row in rows:
        assert row["txdb"] == 42
        assert row["txi"] == Uuid.of_uuid(row["txn"]).object_id
        assert isinstance(row["ts"], datetime)
        assert row["ts"] >= row["txts"]
        assert row["txid"] > 0


async def test_two_storages_do_not_fight_over_the_shared_schema(
    connection: Direct, database: str
) -> None:
    other = await PsqlStorage.open(database, "other", schema="second")
    try:
        assert await connection.fetchval("SELECT second.naksha_legacy_owner()") == "naksha"
        with pytest.raises(
            asyncpg.PostgresError, match="belongs to the storage in naksha"
        ) as error:
            await connection.execute("SELECT second.naksha_install_legacy()")
        assert error.value.sqlstate == "N0007"
        await connection.execute("SELECT second.naksha_uninstall_legacy()")
        assert await connection.fetchval("SELECT count(*) FROM xyz_config.transactions") == 1
        await connection.execute("SELECT second.naksha_install_legacy(take_over => true)")
        assert await connection.fetchval("SELECT count(*) FROM xyz_config.transactions") == 0
        await connection.execute("SELECT second.naksha_install_legacy()")
        await connection.execute("SELECT second.naksha_uninstall_legacy()")
        assert await connection.fetchval("SELECT to_regnamespace('xyz_config')") is None
    finally:
        await other.close()


async def test_nothing_is_made_unless_asked_and_a_real_one_is_left_alone(database: str) -> None:
    storage = await PsqlStorage.open(database, "quiet")
    connection = await asyncpg.connect(database)
    try:
        assert await connection.fetchval("SELECT to_regnamespace('xyz_config')") is None
        await connection.execute("CREATE SCHEMA xyz_config CREATE TABLE transactions (i int)")
        for call in ("naksha_install_legacy()", "naksha_install_legacy(true)"):
            with pytest.raises(asyncpg.PostgresError, match="belongs to XYZ-Hub"):
                await connection.execute(f"SELECT naksha.{call}")
        await connection.execute("SELECT naksha.naksha_uninstall_legacy()")
        assert await connection.fetchval("SELECT count(*) FROM xyz_config.transactions") == 0
    finally:
        await connection.close()
        await storage.close()


COLUMNS = """SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
 WHERE attrelid = $1::text::regclass AND attnum > 0"""


async def reinstall(dsn: str, monkeypatch: pytest.MonkeyPatch, **replaced: str) -> None:
    """Run the schema files once more, with something in them replaced."""
    files = []
    for name, text in schema_files():
        for old, new in replaced.items():
            text = text.replace(old, new)
        files.append((name, text))
    monkeypatch.setattr(installer, "schema_files", lambda: files)
    opened = await asyncpg.connect(dsn)
    try:
        await install(opened, "naksha", "old", 42)
    finally:
        await opened.close()


async def test_the_views_follow_when_their_columns_change(
    connection: Direct, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = ("naksha.naksha_legacy_transactions", "xyz_config.transactions")
    before = await connection.fetchval(COLUMNS, views[0])
    await connection.execute("CREATE ROLE clerk")
    try:
        await connection.execute("GRANT SELECT ON xyz_config.transactions TO clerk, PUBLIC")
        renamed = {"commit_msg": "message"}
        more = {"seq_ts END AS ts\n": "seq_ts END AS ts, t.author AS extra\n"}
        for replaced, wanted in (
            (renamed, before.replace("commit_msg", "message")),
            (more, before + " extra"),
            ({}, before),
        ):
            await reinstall(database, monkeypatch, **replaced)
            for view in views:
                assert await connection.fetchval(COLUMNS, view) == wanted
                await connection.fetch(f"SELECT * FROM {view}")
        grants = await connection.fetchval(
            "SELECT array_agg(grantee::text ORDER BY 1) FROM information_schema.role_table_grants"
            " WHERE table_schema = 'xyz_config' AND privilege_type = 'SELECT'"
        )
        assert {"PUBLIC", "clerk"} < set(grants)
        assert await connection.fetchval("SELECT naksha.naksha_legacy_owner()") == "naksha"
    finally:
        await connection.execute("DROP OWNED BY clerk; DROP ROLE clerk")


async def test_a_foreign_view_is_never_dropped(
    connection: Direct, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.execute("CREATE VIEW public.mine AS SELECT * FROM xyz_config.transactions")
    with pytest.raises(asyncpg.DependentObjectsStillExistError) as error:
        await reinstall(database, monkeypatch, commit_msg="message")
    assert "view mine" in str(error.value.detail)
    assert "commit_msg" in await connection.fetchval(COLUMNS, "public.mine")
    # What only adds a column needs no drop.
    more = {"seq_ts END AS ts\n": "seq_ts END AS ts, t.author AS extra\n"}
    await reinstall(database, monkeypatch, **more)
    assert "extra" in await connection.fetchval(COLUMNS, "xyz_config.transactions")
    await connection.fetch("SELECT * FROM public.mine")


async def test_setting_up_again_locks_no_reader_of_the_views_out(
    connection: Direct, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connection.transaction():
        await connection.fetch("SELECT * FROM xyz_config.transactions")
        await asyncio.wait_for(
            reinstall(database, monkeypatch, **{"CREATE OR REPLACE": "CREATE  OR REPLACE"}), 30
        )
