"""Plain SQL writes: exactly the same result as those of the library."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import asyncpg
import pytest

from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.read.statements import leaf_of
from naksha.testing.servers.postgres import PostgresCluster
from tests.psql.support import Connect, begin, check_log, insert, publish, until_blocked
from tests.psql.write.shell import Step, as_sql, by_library, feature, left_behind, psql

SCRIPT: list[tuple[str | None, list[Step]]] = [
    (
        None,
        [
            (
                "insert",
                [
                    feature("a", (1.0, 2.0), "x", "y", n=1),
                    feature("b", (3.0, 4.0), crid="c1", text='it\'s \\ "quoted" ü'),
                    feature("c", None, n=[1, {"deep": None}]),
                    feature("d", (-10.0, 5.0)),
                ],
            )
        ],
    ),
    ("anna", [("update", [feature("a", (1.0, 2.5), "x", n=2), feature("c", (9.0, 9.0))])]),
    (None, [("delete", ["b", "c", "nobody"])]),
    (None, [("insert", [feature("b", (3.5, 4.5), "again")])]),
    (
        "otto",
        [
            ("update", [feature("a", (1.0, 3.0), n=3), feature("b", None)]),
            ("update", [feature("a", (1.5, 3.5), n=4)]),
            ("update", [feature("a", (1.5, 4.5), n=5)]),
        ],
    ),
    (None, [("delete", ["a"]), ("insert", [feature("a", (50.0, 50.0), n=6)])]),
    (
        None,
        [
            ("insert", [feature("e", (0.0, 0.0))]),
            ("update", [feature("e", (0.0, 1.0))]),
            ("delete", ["e", "d"]),
        ],
    ),
    (None, [("insert", [feature("e", (0.5, 0.5))]), ("insert", [feature("c", (7.0, 7.0))])]),
    (None, [("update", [feature("a", (50.0, 50.0), n=6), feature("b", (1.0, 1.0), "now")])]),
    (None, [("delete", ["a", "b"])]),
]


@pytest.mark.usefixtures("sixteen")
@pytest.mark.parametrize("way", ["parent", "leaf", "psql"])
async def test_the_shell_leaves_behind_what_the_library_does(
    storage: PsqlStorage,
    bare: str,
    connect: Connect,
    postgres_cluster: PostgresCluster,
    way: str,
) -> None:
    shell = await connect()
    for author, steps in SCRIPT:
        async with storage.write("app", author) as session:
            for step in steps:
                await by_library(session, "roads", step)
        statements = [s for step in steps for s in as_sql("places", step, leaves=way == "leaf")]
        name = "NULL" if author is None else f"'{author}'"
        script = ["BEGIN", f"SELECT naksha_tx_start('app', {name})", *statements, "COMMIT"]
        if way == "psql":
            path = "SET search_path = naksha, public"
            said = psql(postgres_cluster, bare, ";\n".join([path, *script]) + ";\n")
            assert said.strip() == ""
        else:
            for statement in script:
                await shell.execute(statement)
        expected = await left_behind(shell, "roads")
        assert await left_behind(shell, "places") == expected
    async with storage.write("app") as session:
        await session.message("end", "the last one")
    assert session.txn is not None
    await storage.wait_published(session.txn, 60)
    await check_log(shell)


async def test_copy_into_head_is_an_insert(bare: str, connect: Connect) -> None:
    shell = await connect()
    await begin(shell)
    rows = [f'{{"id": "r{n}", "properties": {{"n": {n}}}}}' for n in range(100)]
    source = io.BytesIO("\n".join(rows).encode())
    await shell.copy_to_table("roads", columns=["jsondata"], source=source)
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    assert len(found["head"]) == 100
    assert {each["xyz"]["action"] for _, each in found["head"]} == {"CREATE"}
    assert [row[:4] for row in found["log"]] == [(100, 0, 0, 0)]


async def test_ten_thousand_rows_at_once(bare: str, connect: Connect) -> None:
    shell = await connect()
    await begin(shell)
    await shell.execute(
        "INSERT INTO roads (geo, jsondata) SELECT ST_SetSRID(ST_MakePoint(n / 100.0, 0, 0), 4326), "
        "jsonb_build_object('id', 'r' || n) FROM generate_series(1, 10000) n"
    )
    await shell.execute("COMMIT")
    await begin(shell)
    await shell.execute(
        "UPDATE roads SET jsondata = jsonb_set(jsondata, '{properties,n}', '1') "
        "WHERE naksha_leaf(jsondata->>'id') = '0'"
    )
    await shell.execute("DELETE FROM roads WHERE naksha_leaf(jsondata->>'id') IN ('0', '1')")
    await shell.execute("COMMIT")
    leaves = [leaf_of(f"r{n}") for n in range(1, 10001)]
    zero, both = leaves.count("0"), leaves.count("0") + leaves.count("1")
    counts = [
        await shell.fetchval(f"SELECT count(*) FROM {table}")
        for table in ("roads", "roads_del", "roads_hst")
    ]
    assert counts == [10000 - both, both, zero + both + both]
    rows = await shell.fetch(
        "SELECT created, updated, deleted FROM naksha_tx "
        "WHERE id = 'roads' AND action = 'MODIFY_FEATURES' ORDER BY txn"
    )
    assert [tuple(row) for row in rows] == [(10000, 0, 0), (0, zero, both)]


async def test_update_from_merge_and_writable_ctes_keep_everything_right(
    bare: str, connect: Connect
) -> None:
    shell = await connect()
    await begin(shell)
    await insert(shell, "roads", "a", "b", "c", "d")
    await insert(shell, "places", "x")
    await shell.execute("COMMIT")
    await begin(shell)
    await shell.execute(
        "UPDATE roads r SET jsondata = jsonb_set(r.jsondata, '{properties,from}', to_jsonb("
        "p.jsondata->>'id')) FROM places p WHERE r.jsondata->>'id' IN ('a', 'b')"
    )
    await shell.execute("COMMIT")
    await begin(shell)
    await shell.execute(
        "MERGE INTO roads r USING (VALUES ('b'), ('c'), ('new')) AS s(id) "
        "ON r.jsondata->>'id' = s.id WHEN MATCHED AND s.id = 'b' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET jsondata = jsonb_set(r.jsondata, '{properties,m}', '1') "
        "WHEN NOT MATCHED THEN INSERT (jsondata) VALUES (jsonb_build_object('id', s.id))"
    )
    await shell.execute("COMMIT")
    await begin(shell)
    await shell.execute(
        "WITH moved AS (DELETE FROM roads WHERE jsondata->>'id' IN ('a', 'd') RETURNING *), "
        "kept AS (UPDATE places SET jsondata = jsonb_set(jsondata, '{properties,k}', '1')) "
        "INSERT INTO places (geo, jsondata) SELECT geo, jsondata FROM moved"
    )
    await shell.execute("COMMIT")
    roads, places = await left_behind(shell, "roads"), await left_behind(shell, "places")
    assert _summary(roads["head"]) == {"c": ("UPDATE", 2, 3, 0), "new": ("CREATE", 1, 3, 0)}
    assert _summary(roads["_del"]) == {
        "a": ("DELETE", 3, 4, 0),
        "b": ("DELETE", 3, 3, 0),
        "d": ("DELETE", 2, 4, 0),
    }
    assert [row[:4] for row in roads["log"]] == [
        (4, 0, 0, 0),
        (0, 2, 0, 0),
        (1, 1, 1, 0),
        (0, 0, 2, 0),
    ]
    assert _summary(places["head"]) == {
        "x": ("UPDATE", 2, 2, 0),
        "a": ("CREATE", 1, 2, 0),
        "d": ("CREATE", 1, 2, 0),
    }
    assert [row[:4] for row in places["log"]] == [(1, 0, 0, 0), (2, 1, 0, 0)]


def _summary(states: list[Any]) -> dict[str, tuple[str, int, int, int]]:
    """(action, version, txn, txn_next) by id; each id only once."""
    found = {
        each["id"]: tuple(each["xyz"][key] for key in ("action", "version", "txn", "txn_next"))
        for _, each in states
    }
    assert len(found) == len(states)
    return found


async def test_delete_and_insert_of_one_feature_in_one_statement_is_refused_or_right(
    bare: str, connect: Connect
) -> None:
    """The insert cannot know the tombstone yet, so it cannot number its state."""
    shell = await connect()
    await begin(shell)
    await insert(shell, "roads", "a")
    await shell.execute("COMMIT")
    await begin(shell)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await shell.execute(
            "WITH gone AS (DELETE FROM roads RETURNING *) "
            "INSERT INTO roads (jsondata) SELECT jsondata FROM gone"
        )
    assert refused.value.sqlstate == "N0008"
    await shell.execute("ROLLBACK")
    assert _summary((await left_behind(shell, "roads"))["head"]) == {"a": ("CREATE", 1, 1, 0)}


async def test_equal_content_writes_nothing(bare: str, connect: Connect) -> None:
    shell = await connect()
    await begin(shell)
    await shell.execute(as_sql("roads", ("insert", [feature("a", (1.0, 2.0), "t", n=1)]))[0])
    await shell.execute("COMMIT")
    before = await left_behind(shell, "roads")
    await begin(shell)
    await shell.execute("UPDATE roads SET jsondata = jsondata, geo = geo, i = 77")
    await shell.execute(as_sql("roads", ("update", [feature("a", (1.0, 2.0), "t", n=1)]))[0])
    await shell.execute("COMMIT")
    assert await left_behind(shell, "roads") == before
    await publish(shell)
    await check_log(shell)


async def test_a_rolled_back_savepoint_takes_its_counts_along(bare: str, connect: Connect) -> None:
    shell = await connect()
    await begin(shell)
    await shell.execute("SAVEPOINT first")
    await insert(shell, "roads", "lost1", "lost2")
    await shell.execute("ROLLBACK TO SAVEPOINT first")
    await insert(shell, "roads", "a")
    await shell.execute("SAVEPOINT second")
    await insert(shell, "roads", "lost1", "lost2")
    await shell.execute("DELETE FROM roads")
    await shell.execute("ROLLBACK TO SAVEPOINT second")
    await insert(shell, "roads", "b")
    await shell.execute("COMMIT")
    found = await left_behind(shell, "roads")
    assert [row[:4] for row in found["log"]] == [(2, 0, 0, 0)]
    assert set(_summary(found["head"])) == {"a", "b"}


@pytest.mark.parametrize("when", ["first", "between", "last"])
async def test_immediate_constraints_change_nothing(bare: str, connect: Connect, when: str) -> None:
    shell = await connect()
    await begin(shell)
    if when == "first":
        await shell.execute("SET CONSTRAINTS ALL IMMEDIATE")
    await insert(shell, "roads", "a", "b")
    if when == "between":
        await shell.execute("SET CONSTRAINTS ALL IMMEDIATE")
    await shell.execute("DELETE FROM roads WHERE jsondata->>'id' = 'a'")
    await insert(shell, "places", "p")
    if when == "last":
        await shell.execute("SET CONSTRAINTS ALL IMMEDIATE")
    await shell.execute("COMMIT")
    roads, places = await left_behind(shell, "roads"), await left_behind(shell, "places")
    assert [row[:4] for row in roads["log"]] == [(2, 0, 1, 0)]
    assert [row[:4] for row in places["log"]] == [(1, 0, 0, 0)]


async def test_a_replication_session_writes_rows_as_they_come(bare: str, connect: Connect) -> None:
    """Triggers stand aside for replication and restores, which bring history and log themselves."""
    shell = await connect()
    await begin(shell)
    await insert(shell, "roads", "a")
    await shell.execute("COMMIT")
    row = await shell.fetchrow("SELECT i, geo, jsondata::text FROM roads")
    assert row is not None
    replica = await connect(session_replication_role="replica")
    await replica.execute("DELETE FROM roads")
    await replica.execute(
        f"INSERT INTO roads_p{leaf_of('a')} VALUES ($1, $2, $3::jsonb)", *tuple(row)
    )
    assert await shell.fetchrow("SELECT i, geo, jsondata::text FROM roads") == row
    assert await shell.fetchval("SELECT count(*) FROM roads_hst") == 0
    assert await shell.fetchval("SELECT count(*) FROM roads_del") == 0


async def test_the_version_goes_on_after_a_tombstone_of_a_concurrent_delete(
    bare: str, connect: Connect
) -> None:
    """The insert starts before the delete is committed and waits for it at the index."""
    first, second, watcher = await connect(), await connect(), await connect()
    await begin(first)
    await insert(first, "roads", "a")
    await first.execute("COMMIT")
    await begin(first)
    await first.execute("DELETE FROM roads")
    await begin(second)
    inserting = asyncio.create_task(insert(second, "roads", "a"))
    await until_blocked(watcher, second)
    await first.execute("COMMIT")
    with pytest.raises(asyncpg.SerializationError):
        await inserting
    await second.execute("ROLLBACK")
    await begin(second)
    await insert(second, "roads", "a")
    await second.execute("COMMIT")
    found = await left_behind(watcher, "roads")
    assert _summary(found["head"]) == {"a": ("CREATE", 3, 3, 0)}


async def _error(shell: Direct, statement: str) -> asyncpg.PostgresError:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await shell.execute(statement)
    return refused.value


async def test_features_read_back_through_the_library(
    storage: PsqlStorage, connect: Connect
) -> None:
    from naksha.model.query import Query

    shell = await connect()
    await begin(shell)
    sent = feature("a", (1.0, 2.0), "t", n=1)
    await shell.execute(as_sql("roads", ("insert", [sent]))[0])
    await shell.execute("COMMIT")
    page = await storage.page("roads", Query(ids=("a",)))
    (state,) = page.states
    assert state.feature["geometry"] == sent["geometry"]
    assert json.loads(state.raw)["properties"]["n"] == 1
    assert state.xyz["tags"] == ["t"]
