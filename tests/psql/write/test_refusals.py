"""Refused operations of plain SQL, and the clarity of their errors."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from naksha.model.errors import InvalidArgument
from naksha.model.state import XYZ
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.read.statements import leaf_of
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.support import Connect, begin, check_log, insert, publish, until_blocked
from tests.psql.write.shell import left_behind, psql

LEAF = leaf_of("a")
NEIGHBOUR = next(f"n{n}" for n in range(1000) if leaf_of(f"n{n}") == LEAF)
"""Another id of the same leaf."""


@pytest.fixture
async def shell(bare: str, connect: Connect) -> Direct:
    """A session on a storage with a live feature `a`, a tombstone `b` and a history."""
    connection = await connect()
    await begin(connection)
    await insert(connection, "roads", "a", "b")
    await connection.execute("COMMIT")
    await begin(connection)
    await connection.execute("DELETE FROM roads WHERE jsondata->>'id' = 'b'")
    await connection.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{n}', '1')")
    await connection.execute("COMMIT")
    await publish(connection)
    return connection


async def refused(shell: Direct, statement: str, *values: object) -> asyncpg.PostgresError:
    """The error of a statement, in a transaction of its own that leaves nothing behind."""
    before = await left_behind(shell, "roads")
    await begin(shell)
    with pytest.raises(asyncpg.PostgresError) as error:
        await shell.execute(statement, *values)
    await shell.execute("ROLLBACK")
    assert await left_behind(shell, "roads") == before
    return error.value


async def test_ids_and_geometries_that_cannot_be_kept_are_refused_by_name(shell: Direct) -> None:
    def row(jsondata: str, geo: str = "NULL") -> str:
        return f"INSERT INTO roads (geo, jsondata) VALUES ({geo}, '{jsondata}')"

    point = "ST_SetSRID(ST_MakePoint({}), 4326)"
    for statement, about in [
        (row("{}"), "id"),
        (row('{"id": null}'), "id"),
        (row('{"id": ""}'), "id"),
        (row('{"id": 5}'), "id"),
        (row('{"id": {"a": 1}}'), "id"),
        (row("[]"), "id"),
        (row('"a"'), "id"),
        (row("null"), "id"),
        (row('{"id": "' + "x" * 600 + '"}'), "id"),
        (row('{"id": "g"}', point.format("181, 0, 0")), "longitude"),
        (row('{"id": "g"}', point.format("0, 91, 0")), "latitude"),
        (row('{"id": "g"}', point.format("'nan', 0, 0")), "Coordinates"),
        (row('{"id": "g"}', point.format("0, 0, 'infinity'")), "Coordinates"),
        (row('{"id": "g"}', "'SRID=4326;POINT Z EMPTY'"), ""),
    ]:
        error = await refused(shell, statement)
        assert error.sqlstate == "N0006", statement
        assert about in str(error)
        assert '"field"' in str(error.detail)
    assert (await refused(shell, "INSERT INTO roads (geo) VALUES (NULL)")).sqlstate in (
        "N0006",
        "23502",
    )
    for geometry in (point.format("1, 2"), "ST_SetSRID(ST_MakePoint(1, 2, 3), 3857)"):
        error = await refused(shell, row('{"id": "g"}', geometry))
        assert error.sqlstate == "22023"


WITH_UUID = "jsonb_set(jsondata, '{properties}', $1::jsonb)"


def read_as(uuid: str, **properties: object) -> str:
    """Properties of a feature as a client has read them, with the id of the state."""
    return json.dumps(properties | {"@ns:com:here:xyz": {"uuid": uuid}})


async def both_forms(shell: Direct, source: str) -> list[str]:
    """The id of the feature's state in a table: as GUID, padded, and as 128 bits."""
    row = await shell.fetchrow(
        "SELECT naksha_xyz(jsondata)->>'uuid' AS guid, naksha_feature_uuid(c.number, t.i, "
        "naksha_xyz_txn(jsondata), s.number)::text AS uuid "
        f"FROM {source} t, naksha_collection c, naksha_storage s "
        "WHERE c.id = 'roads' AND jsondata->>'id' = 'a'"
    )
    assert row is not None
    *before, month, day, i = row["guid"].split(":")
    padded = ":".join([*before, month.zfill(2), day.zfill(2), i])
    return [row["guid"], padded, row["uuid"], row["uuid"].upper()]


@pytest.mark.parametrize("table", ["roads", f"roads_p{LEAF}"])
async def test_concurrent_changes_are_not_overwritten(shell: Direct, table: str) -> None:
    update = f"UPDATE {table} SET jsondata = {WITH_UUID}"
    upsert = "SELECT naksha_upsert('roads', jsonb_build_object('id', 'a', 'properties', $1::jsonb))"
    head = (await both_forms(shell, "roads"))[0]
    for stale in await both_forms(shell, "roads_hst"):
        for statement in (update, upsert):
            error = await refused(shell, statement, read_as(stale))
            assert error.sqlstate == "N0005", statement
            detail = json.loads(str(error.detail))
            assert (detail["feature"], detail["field"]) == ("a", "uuid")
            assert detail["head"]["properties"]["@ns:com:here:xyz"]["uuid"] == head


async def test_the_state_id_of_head_and_those_of_others_do_not_hinder(shell: Direct) -> None:
    old = (await both_forms(shell, "roads_hst"))[0]
    others = [
        "",
        "x",
        old.replace("test:", "other:"),
        old.replace(":roads:", ":roads:x:"),
        old + "x",
    ]
    others.append("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
    for uuid in [*await both_forms(shell, "roads"), *others]:
        for statement in (
            f"UPDATE roads SET jsondata = {WITH_UUID}",
            "SELECT naksha_upsert('roads', jsonb_build_object('id', 'a', 'properties', $1::jsonb))",
        ):
            await begin(shell)
            await shell.execute(statement, read_as(uuid, n=7))
            n = await shell.fetchval("SELECT jsondata->'properties'->>'n' FROM roads")
            await shell.execute("ROLLBACK")
            assert n == "7"


async def test_settings_that_would_do_nothing_are_refused_by_name(shell: Direct) -> None:
    for statement, field in [
        ("naksha_collection_create('more', '{\"maxage\": 5}')", "maxage"),
        ("naksha_collection_create('more', '{\"history\": true, \"tags\": []}')", "tags"),
        ("naksha_collection_create('more', '{\"deleteAt\": -1}')", "deleteAt"),
        ("naksha_collection_change('roads', '{\"pointsOnly\": true}')", "pointsOnly"),
        ("naksha_collection_change('roads', '{\"byteSize\": 1}')", "byteSize"),
    ]:
        error = await refused(shell, f"SELECT {statement}")
        assert error.sqlstate == "N0006", statement
        assert json.loads(str(error.detail))["field"] == field
        assert field == "deleteAt" or "maxAge, " in str(error.hint)


@pytest.mark.parametrize("alias", ['{"history": false}', '{"disableHistory": true}'])
async def test_older_names_of_the_history_setting_are_taken(shell: Direct, alias: str) -> None:
    await begin(shell)
    created = await shell.fetchval("SELECT naksha_collection_create('more', $1)", alias)
    changed = await shell.fetchval("SELECT naksha_collection_change('roads', $1)", alias)
    await shell.execute("COMMIT")
    for info in (created, changed):
        assert json.loads(info)["historyEnabled"] is False


@pytest.mark.parametrize("table", ["spots", f"spots_p{LEAF}"])
async def test_a_collection_of_points_takes_nothing_else(shell: Direct, table: str) -> None:
    await begin(shell)
    await shell.execute("SELECT naksha_collection_create('spots', '{\"pointsOnly\": true}')")
    await shell.execute(
        "INSERT INTO spots (geo, jsondata) VALUES ('SRID=4326;POINT Z (1 2 3)', '{\"id\": \"a\"}')"
    )
    await shell.execute("COMMIT")
    line = "'SRID=4326;LINESTRING Z (1 2 3, 4 5 6)'"
    for statement in (
        f'INSERT INTO {table} (geo, jsondata) VALUES ({line}, \'{{"id": "{NEIGHBOUR}"}}\')',
        f"UPDATE {table} SET geo = {line}",
    ):
        error = await refused(shell, statement)
        assert error.sqlstate == "N0006"
        assert "points only" in str(error)


async def test_an_id_cannot_be_changed_not_even_its_type(shell: Direct) -> None:
    await begin(shell)
    await insert(shell, "roads", "5")
    await shell.execute("COMMIT")
    for new in ('"other"', "5", "null"):
        error = await refused(
            shell,
            "UPDATE roads SET jsondata = jsonb_set(jsondata, '{id}', $1::jsonb) "
            "WHERE jsondata->>'id' = '5'",
            new,
        )
        assert error.sqlstate == "N0006"
        assert "cannot be changed" in str(error)
    error = await refused(shell, "UPDATE roads SET jsondata = '{}'")
    assert error.sqlstate == "N0006"


async def test_a_prefixed_id_is_refused_with_a_way_out(shell: Direct) -> None:
    await begin(shell)
    await shell.execute("SELECT naksha_collection_change('roads', '{\"idPrefix\": \"urn:\"}')")
    await shell.execute("COMMIT")
    error = await refused(shell, 'INSERT INTO roads (jsondata) VALUES (\'{"id": "urn:x"}\')')
    assert error.sqlstate == "N0006"
    assert "naksha_upsert" in str(error.hint)
    await begin(shell)
    await shell.execute("SELECT naksha_upsert('roads', '{\"id\": \"urn:x\"}')")
    await shell.execute("COMMIT")
    assert await shell.fetchval("SELECT count(*) FROM roads WHERE jsondata->>'id' = 'x'") == 1


async def test_on_conflict_is_refused_on_the_parent_and_upsert_does_it(shell: Direct) -> None:
    error = await refused(
        shell,
        'INSERT INTO roads (jsondata) VALUES (\'{"id": "a"}\') '
        "ON CONFLICT ((jsondata->>'id')) DO UPDATE SET jsondata = excluded.jsondata",
    )
    assert error.sqlstate == "42P10"
    await begin(shell)
    for value in (1, 2):
        up = {"id": "up", "properties": {"n": value}}
        await shell.execute("SELECT naksha_upsert('roads', $1::jsonb)", json.dumps(up))
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    (state,) = [each for _, each in found["head"] if each["id"] == "up"]
    assert (state["properties"], state["xyz"]["version"]) == ({"n": 2}, 1)


async def test_upsert_takes_the_lock_as_an_option(shell: Direct) -> None:
    upsert = "SELECT naksha_upsert('roads', $1::jsonb"
    await begin(shell)
    first = await shell.fetchval(f"{upsert})", json.dumps({"id": "up"}))
    await shell.execute("COMMIT")
    await begin(shell)
    await shell.execute(f"{upsert})", json.dumps({"id": "up", "n": 2}))
    await shell.execute("COMMIT")
    stale = json.dumps({"id": "up", "n": 3, "properties": {XYZ: {"uuid": first}}})
    await begin(shell)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await shell.execute(f"{upsert})", stale)
    assert refused.value.sqlstate == "N0005"
    await shell.execute("ROLLBACK")
    await begin(shell)
    await shell.execute(f"{upsert}, lock => false)", stale)
    await shell.execute("COMMIT")
    (state,) = [s for _, s in (await left_behind(shell, "roads"))["head"] if s["id"] == "up"]
    assert state["xyz"]["version"] == 3


@pytest.mark.parametrize("table", ["roads", f"roads_p{LEAF}"])
async def test_features_that_on_conflict_would_skip_are_refused(shell: Direct, table: str) -> None:
    skip = f"INSERT INTO {table} (jsondata) VALUES %s ON CONFLICT DO NOTHING"
    taken, free = '(\'{"id": "a", "z": 2}\')', f'(\'{{"id": "{NEIGHBOUR}"}}\')'
    for rows in (taken, f"{free}, {taken}", f"{free}, {free}"):
        error = await refused(shell, skip % rows)
        assert error.sqlstate == "N0008"
        assert "ON CONFLICT" in str(error)
        assert "naksha_upsert" in str(error.hint)
    error = await refused(shell, f"INSERT INTO {table} (jsondata) VALUES {taken}")
    assert error.sqlstate == "23505"
    await begin(shell)
    await shell.execute(skip % free)
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    assert {each["id"] for _, each in found["head"]} == {"a", NEIGHBOUR}
    assert found["log"][-1][:4] == (1, 0, 0, 0)


async def test_on_conflict_on_a_leaf_is_refused_too(shell: Direct) -> None:
    """PostgreSQL would allow it there."""
    error = await refused(
        shell,
        f'INSERT INTO roads_p{LEAF} (jsondata) VALUES (\'{{"id": "a", "z": 1}}\') '
        "ON CONFLICT ((jsondata->>'id') text_pattern_ops) DO UPDATE "
        "SET jsondata = excluded.jsondata",
    )
    assert error.sqlstate == "N0008"
    assert "naksha_upsert" in str(error.hint)


async def test_a_feature_that_is_committed_meanwhile_is_not_skipped_either(
    shell: Direct, connect: Connect
) -> None:
    other = await connect()
    await begin(other)
    await insert(other, "roads", "n")
    await begin(shell)
    skip = asyncio.create_task(
        shell.execute(
            'INSERT INTO roads (jsondata) VALUES (\'{"id": "n"}\') ON CONFLICT DO NOTHING'
        )
    )
    await until_blocked(other, shell)
    await other.execute("COMMIT")
    with pytest.raises(asyncpg.PostgresError) as error:
        await skip
    assert error.value.sqlstate == "N0008"


async def test_rows_are_counted_statement_by_statement(shell: Direct) -> None:
    """Statements inside of others, and after one that was taken back."""
    await shell.execute(
        "CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF pg_trigger_depth() = 1 THEN INSERT INTO naksha.roads (jsondata)"
        " SELECT jsonb_build_object('id', NEW.jsondata->>'id' || n) FROM generate_series(1, 3) n;"
        " INSERT INTO naksha.places (jsondata) VALUES (NEW.jsondata); END IF; RETURN NEW; END $$"
    )
    for when in ("BEFORE", "AFTER"):
        await shell.execute(
            f"CREATE TRIGGER echo_{when} {when} INSERT ON roads FOR EACH ROW"
            " WHEN (NEW.jsondata->>'when' = TG_WHEN) EXECUTE FUNCTION echo()".replace(
                "TG_WHEN", f"'{when}'"
            )
        )
    await begin(shell)
    for key, when in (("m", "AFTER"), ("k", "BEFORE")):
        row = json.dumps({"id": key, "when": when})
        await shell.execute("INSERT INTO roads (jsondata) VALUES ($1::jsonb)", row)
        await shell.execute("SAVEPOINT s")
        with pytest.raises(asyncpg.UniqueViolationError):
            await insert(shell, "roads", "x", "y", "a")
        await shell.execute("ROLLBACK TO SAVEPOINT s")
    await insert(shell, "roads", "x", "y")
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    ids = {"a", "x", "y", "m", "m1", "m2", "m3", "k", "k1", "k2", "k3"}
    assert {each["id"] for _, each in found["head"]} == ids


async def test_only_the_storage_writes_history_tombstones_and_log(shell: Direct) -> None:
    day = await shell.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM_DD')")
    tables = ["roads_hst", f"roads_hst_{day}", "roads_del", "naksha_tx", f"naksha_tx_{day}"]
    for table in [*tables, "naksha_version"]:
        statements = [
            f"TRUNCATE {table}",
            f"DELETE FROM {table}",
            f"INSERT INTO {table} SELECT * FROM {table}",
            f"UPDATE {table} SET {'txn = txn' if 'naksha' in table else 'i = i'}",
        ]
        for statement in statements:
            error = await refused(shell, statement)
            assert error.sqlstate == "N0008", statement
            assert table in str(error)
            assert "HEAD" in str(error.hint)
    for table in ("roads", f"roads_p{LEAF}", "roads, places", "roads_hst, roads_del"):
        error = await refused(shell, f"TRUNCATE {table}")
        assert error.sqlstate == "N0008", table
    with pytest.raises(asyncpg.PostgresError) as copied:
        await shell.copy_records_to_table("naksha_version", records=[(99, 99, None)])
    assert copied.value.sqlstate == "N0008"
    await check_log(shell)


@pytest.mark.parametrize(
    ("table", "column", "functions"),
    [
        ("naksha_collection", "txn", ["naksha_collection_create", "naksha_collection_drop"]),
        ("naksha_former", "number", ["naksha_collection_drop"]),
        ("naksha_pin", "txn", ["naksha_pin_set", "naksha_pin_remove"]),
        ("naksha_storage", "number", ["naksha_storage_keep_log"]),
        ("naksha_kept", "revision", ["naksha_keep", "naksha_forget"]),
        ("naksha_overlay", "number", ["naksha_overlay_new", "naksha_overlay_drop"]),
        ("naksha_staged", "until", ["naksha_staged_release"]),
        ("naksha_migration", "name", ["naksha_migration_done"]),
        ("roads_meta", "i", ["naksha_meta_put"]),
    ],
)
async def test_the_storages_own_tables_are_written_by_functions(
    shell: Direct, table: str, column: str, functions: list[str]
) -> None:
    for statement in (
        f"INSERT INTO {table} SELECT * FROM {table}",
        f"UPDATE {table} SET {column} = {column}",
        f"DELETE FROM {table}",
        f"TRUNCATE {table}",
    ):
        error = await refused(shell, statement)
        assert error.sqlstate == "N0008", statement
        assert table in str(error)
        for function in functions:
            assert function in str(error.hint)
            assert await shell.fetchval("SELECT count(*) FROM pg_proc WHERE proname = $1", function)


async def test_every_table_of_the_storage_is_guarded(shell: Direct) -> None:
    """HEAD has triggers of its own kind, and only TRUNCATE is refused there."""
    open_tables = await shell.fetch(
        "SELECT relname FROM pg_class c WHERE relnamespace = 'naksha'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_trigger"
        " WHERE tgrelid = c.oid AND tgname = 'naksha_guard' AND tgenabled = 'O')"
    )
    assert open_tables == []


async def test_the_app_id_is_required_in_every_transaction(shell: Direct) -> None:
    writes = [
        'INSERT INTO roads (jsondata) VALUES (\'{"id": "n"}\')',
        "UPDATE roads SET jsondata = jsonb_set(jsondata, '{n}', '2')",
        "DELETE FROM roads",
        "SELECT naksha_upsert('roads', '{\"id\": \"n\"}')",
        "SELECT naksha_tx_message('m', 't')",
        "SELECT naksha_collection_create('more')",
        "SELECT naksha_txn()",
    ]
    for default in ("SELECT 1", "SET naksha.app_id = 'sneaky'", "SET naksha.xid = '3'"):
        await shell.execute(default)
        for write in writes:
            with pytest.raises(asyncpg.PostgresError) as error:
                await shell.execute(write)
            assert error.value.sqlstate == "N0000", (default, write)
            assert "naksha_tx_start" in str(error.value.hint)
    for app_id in (None, ""):
        with pytest.raises(asyncpg.PostgresError) as error:
            await shell.execute("SELECT naksha_tx_start($1::text)", app_id)
        assert error.value.sqlstate == "N0000"


async def test_a_number_set_for_the_session_is_never_taken(shell: Direct) -> None:
    await shell.execute("SELECT set_config(naksha_var('txn'), '2020010100000000001', false)")
    counts = "set_config(naksha_var('changes_1'), '{\"created\": 1000}', false)"
    await shell.execute(f"SELECT {counts}")
    await shell.execute("SET naksha.author = 'sneaky'")
    await shell.execute("SET naksha.now = '2001-01-01'")
    await begin(shell)
    await insert(shell, "roads", "n")
    txn = await shell.fetchval("SELECT naksha_txn()")
    await shell.execute("COMMIT")
    assert txn > 2026 * 10**15
    await publish(shell)
    await check_log(shell, [txn])
    row = await shell.fetchrow("SELECT created, author FROM naksha_tx WHERE txn = $1", txn)
    assert row is not None
    assert tuple(row) == (1, None)


async def test_writers_need_read_committed(shell: Direct) -> None:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        await shell.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(asyncpg.PostgresError) as error:
            await shell.execute("SELECT naksha_tx_start('app')")
        assert error.value.sqlstate == "N0009"
        assert "READ COMMITTED" in str(error.value)
        await shell.execute("ROLLBACK")


async def test_the_transaction_goes_on_after_a_refusal_in_a_savepoint(shell: Direct) -> None:
    await begin(shell)
    await insert(shell, "roads", "kept")
    await shell.execute("SAVEPOINT s")
    with pytest.raises(asyncpg.PostgresError):
        await shell.execute("INSERT INTO roads (jsondata) VALUES ('{}')")
    await shell.execute("ROLLBACK TO SAVEPOINT s")
    await insert(shell, "roads", "also")
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    assert {each["id"] for _, each in found["head"]} == {"a", "kept", "also"}
    assert found["log"][-1][:4] == (2, 0, 0, 0)


async def test_invalid_tags_are_not_stored(shell: Direct) -> None:
    await begin(shell)
    for number, tags in enumerate(["5", '"t"', '{"a": 1}', '["t", 5]', "null", "[null]"]):
        await shell.execute(
            "INSERT INTO roads (jsondata) VALUES (jsonb_build_object('id', $1::text, 'properties', "
            "jsonb_build_object('@ns:com:here:xyz', jsonb_build_object('tags', $2::jsonb))))",
            f"t{number}",
            tags,
        )
    await shell.execute("COMMIT")
    found = await shell.fetch("SELECT DISTINCT naksha_xyz(jsondata)->>'tags' FROM roads")
    assert [tuple(row) for row in found] == [("[]",)]


XYZ_AFTER = {
    # What an update or upsert sends as namespace, and the tags and crid after it.
    '{"n": 1}': (["t"], "c"),
    "null": (["t"], "c"),
    '"crid"': (["t"], "c"),
    '["crid", "tags"]': (["t"], "c"),
    '{"tags": null}': (["t"], "c"),
    '{"tags": []}': ([], "c"),
    '{"tags": ["u"]}': (["u"], "c"),
    '{"crid": null}': (["t"], None),
    '{"crid": ""}': (["t"], None),
    '{"crid": "d", "tags": null}': (["t"], "d"),
}


@pytest.mark.parametrize("xyz", XYZ_AFTER)
async def test_namespace_members_missing_in_an_update_are_kept(shell: Direct, xyz: str) -> None:
    made = {"id": "u", "properties": {"@ns:com:here:xyz": {"tags": ["t"], "crid": "c"}}}
    sent = {"id": "u", "properties": {"@ns:com:here:xyz": json.loads(xyz)}}
    for statement in (
        "UPDATE roads SET jsondata = $1::jsonb WHERE jsondata->>'id' = 'u'",
        "SELECT naksha_upsert('roads', $1::jsonb)",
    ):
        await begin(shell)
        await shell.execute("INSERT INTO roads (jsondata) VALUES ($1::jsonb)", json.dumps(made))
        await shell.execute(statement, json.dumps(sent))
        row = await shell.fetchval(
            "SELECT naksha_xyz(jsondata) FROM roads WHERE jsondata->>'id' = 'u'"
        )
        found = json.loads(row)
        assert (found["tags"], found["crid"]) == XYZ_AFTER[xyz]
        assert found["mrid"] == found["crid"]
        await shell.execute("ROLLBACK")


async def test_clients_cannot_set_the_mark_of_heights(shell: Direct) -> None:
    marks = ("true", "false", "null", "[1]")
    whole = "SELECT convert_from(naksha_feature(geo, jsondata), 'UTF8')::jsonb - 'properties'"
    for mark in marks:
        await begin(shell)
        await shell.execute(
            "SELECT naksha_upsert('places', jsonb_build_object('naksha:3d', $1::jsonb, 'id', 'flat'"
            ', \'geometry\', \'{"type": "Point", "coordinates": [1, 2]}\'::jsonb))',
            mark,
        )
        await shell.execute(
            "INSERT INTO places (geo, jsondata) VALUES (ST_SetSRID(ST_MakePoint(1, 2, 0), 4326),"
            " jsonb_build_object('id', 'high', 'naksha:3d', $1::jsonb)),"
            " (NULL, jsonb_build_object('id', 'nowhere', 'naksha:3d', $1::jsonb))",
            mark,
        )
        for change in ("jsondata", "jsonb_set(jsondata, '{n}', '1')"):
            await shell.execute(
                f"UPDATE places SET jsondata = jsonb_set({change}, '{{naksha:3d}}', $1::jsonb)",
                mark,
            )
        found = [json.loads(row[0]) for row in await shell.fetch(f"{whole} FROM places")]
        await shell.execute("ROLLBACK")
        assert {each["id"]: each["geometry"] for each in found} == {
            "flat": {"type": "Point", "coordinates": [1, 2]},
            "high": {"type": "Point", "coordinates": [1, 2, 0]},
            "nowhere": None,
        }
        assert [sorted(each) for each in found] == [["geometry", "id", "n", "type"]] * 3


async def test_the_shell_shows_message_hint_and_state(
    shell: Direct, bare: str, postgres_cluster: PostgresCluster
) -> None:
    script = "SET search_path = naksha, public;\nTRUNCATE roads;\nDELETE FROM roads;\n"
    said = psql(postgres_cluster, bare, script)
    assert "ERROR:  N0008: TRUNCATE on table roads is not allowed" in said
    assert "HINT:  Write to the HEAD table" in said
    assert "ERROR:  N0000: No application id is set in this transaction" in said
    assert "HINT:  Call naksha_tx_start(app_id, author) first" in said


async def test_a_schema_whose_name_would_be_cut_is_refused(database: str) -> None:
    with pytest.raises(InvalidArgument, match="63 bytes"):
        await PsqlStorage.open(database, schema="x" * 64)
