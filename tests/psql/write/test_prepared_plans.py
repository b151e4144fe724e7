"""Cached plans of the library's writes in a session."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from tests.psql.support import Connect, begin

KEPT = "SELECT * FROM pg_prepared_statements WHERE starts_with(name, 'naksha_plan_')"
UPSERT = "SELECT naksha_upsert($1, $2::jsonb)"
KEPT_MAX = 32


async def put(connection: Direct, collection: str, feature_id: str, **properties: Any) -> None:
    feature = {"id": feature_id, "properties": properties}
    await begin(connection)
    await connection.execute(UPSERT, collection, json.dumps(feature))
    await connection.execute("COMMIT")


async def kept(connection: Direct) -> list[asyncpg.Record]:
    return list(await connection.fetch(KEPT))


async def test_a_leaf_has_one_plan_that_is_used_again(connect: Connect) -> None:
    connection = await connect()
    await connection.execute("SELECT naksha_prepare_history('roads')")
    for n in range(3):
        await put(connection, "roads", "one", n=n)
    (plan,) = await kept(connection)
    # Before each run it is checked whether the plan is still valid.
    assert (plan["generic_plans"], plan["custom_plans"]) == (3 + 3, 0)
    stored = "SELECT jsondata->'properties'->>'n' FROM roads"
    assert await connection.fetchval(stored) == "2"


async def test_the_plan_of_an_empty_leaf_serves_a_full_one(connect: Connect) -> None:
    """It uses indices only, though there was nothing to be found by them yet."""
    connection = await connect()
    await put(connection, "roads", "one")
    (plan,) = await kept(connection)
    values = ", ".join(["NULL"] * len(plan["parameter_types"]))
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    rows = await connection.fetch(f"EXPLAIN EXECUTE {plan['name']} ({values})")
    lines = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in lines
    assert "using roads_p" in lines


async def test_deallocated_plans_are_prepared_again(connect: Connect) -> None:
    connection = await connect()
    await put(connection, "roads", "one")
    (plan,) = await kept(connection)
    await connection.execute(f"DEALLOCATE {plan['name']}")
    await put(connection, "roads", "one", n=1)
    assert len(await kept(connection)) == 1


async def test_a_plan_outlives_a_rollback(connect: Connect) -> None:
    connection = await connect()
    await begin(connection)
    await connection.execute(UPSERT, "roads", '{"id": "one", "properties": {}}')
    await connection.execute("ROLLBACK")
    assert len(await kept(connection)) == 1
    await put(connection, "roads", "one")
    assert len(await kept(connection)) == 1


async def test_a_session_keeps_some_plans_only(storage: PsqlStorage, connect: Connect) -> None:
    async with storage.write("app") as session:
        for n in range(3):
            await session.create_collection(CollectionInfo(id=f"c{n}", partitions=16))
    connection = await connect()
    most = 0
    for n in range(3):
        for i in range(40):
            await put(connection, f"c{n}", f"f{i}")
            most = max(most, len(await kept(connection)))
    assert most == KEPT_MAX
    for n in range(3):
        assert await connection.fetchval(f"SELECT count(*) FROM c{n}") == 40


async def test_collections_of_the_same_name_in_two_storages(database: str) -> None:
    storages = [await PsqlStorage.open(database, name, schema=name) for name in ("one", "two")]
    connection = await asyncpg.connect(database)
    for storage in storages:
        async with storage.write("setup") as session:
            await session.create_collection(CollectionInfo(id="places"))
        await connection.execute(f"SELECT {storage.id}.naksha_prepare_history('places')")
    for n in range(2):
        for name in ("one", "two"):
            async with connection.transaction():
                await connection.execute(f"SELECT {name}.naksha_tx_start('app')")
                feature = {"id": "same", "properties": {"of": name, "n": n}}
                upsert = f"SELECT {name}.naksha_upsert('places', $1::jsonb)"
                await connection.execute(upsert, json.dumps(feature))
    assert len(await kept(connection)) == 2
    await connection.close()
    for storage in storages:
        page = await storage.page("places", Query())
        assert [state.feature["properties"]["of"] for state in page.states] == [storage.id]
        await storage.close()


@pytest.mark.parametrize("count", [50, 51])
async def test_few_and_many_features_are_written_alike(storage: PsqlStorage, count: int) -> None:
    """Of one leaf: the first number has its plan kept, the second does not."""
    nasty = ["'; DROP TABLE roads; --", "{a,b}", "\\'", "$1", "%s %L", '"', "NULL", "ü\n🦄"]
    ids = await ids_of_a_leaf(storage, count)
    features: list[dict[str, Any]] = [
        {
            "type": "Feature",
            "id": id_,
            "geometry": {"type": "Point", "coordinates": [n / 7, n / 3]},
            "properties": {"text": nasty[n % len(nasty)], "n": n / 10},
        }
        for n, id_ in enumerate(ids)
    ]
    async with storage.write("app's", 'so "called"') as session:
        await session.create("roads", features)
    page = await storage.page("roads", Query(limit=count))
    found = {state.id: state for state in page.states}
    for feature in features:
        state = found[feature["id"]]
        assert state.feature["geometry"] == feature["geometry"]
        assert state.feature["properties"].items() >= feature["properties"].items()
        assert (state.xyz["appId"], state.xyz["author"]) == ("app's", 'so "called"')


async def ids_of_a_leaf(storage: PsqlStorage, count: int) -> list[str]:
    """Ids that all belong to the leaf 0."""
    async with storage._connection() as connection:
        rows = await connection.fetch(
            "SELECT n::text AS id FROM generate_series(1, 5000) AS n"
            " WHERE md5(n::text) LIKE '0%' LIMIT $1",
            count,
        )
    return [row["id"] for row in rows]


async def test_large_features_have_no_plan_kept(connect: Connect) -> None:
    """To write them out as literals would take several times their size."""
    connection = await connect()
    await put(connection, "roads", "one", text="\\" * 70_000)
    assert await kept(connection) == []
    await put(connection, "roads", "one", text="\\" * 7_000)
    assert len(await kept(connection)) == 1


async def test_arrays_are_read_as_they_are_written(connect: Connect) -> None:
    connection = await connect(array_nulls="off")
    await put(connection, "roads", "one")
    assert await connection.fetchval("SELECT count(*) FROM roads") == 1
