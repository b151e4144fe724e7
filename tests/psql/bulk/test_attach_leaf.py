"""Bulk load by hand: tables that are filled without triggers and attached as leaves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.query import Query, id_hash
from naksha.model.version import HEAD
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.psql.read.statements import leaf_of
from tests.psql.aging import place
from tests.psql.bulk.tables import catalog_of
from tests.psql.support import Connect, begin, check_log

FEATURES = [place(f"f{n}", n) for n in range(200)]
FILL = """
INSERT INTO {table}
SELECT s.i, s.geo, naksha_leaf_document('{collection}', s.feature, s.geo, s.i, $2)
  FROM (SELECT nextval('{collection}_i_seq') AS i, feature - 'geometry' AS feature,
               ST_Force3D(ST_GeomFromGeoJSON(feature->'geometry')) AS geo
          FROM jsonb_array_elements($1) AS feature
         WHERE naksha_leaf(feature->>'id') = '{leaf}') AS s
"""


async def fill(
    shell: Direct,
    leaf: str,
    txn: int,
    features: list[dict[str, Any]] = FEATURES,
    collection: str = "roads",
) -> str:
    """A table with the features of a leaf, as the attaching transaction will have them."""
    name = f"load_{leaf}"
    await shell.execute(f"CREATE TABLE {name} (LIKE {collection})")
    text = FILL.format(table=name, leaf=leaf, collection=collection)
    await shell.execute(text, json.dumps(features), txn)
    return name


async def live(storage: PsqlStorage) -> dict[str, dict[str, Any]]:
    return {state.id: state.feature async for state in storage.states("roads", Query())}


async def test_sixteen_tables_are_filled_at_once_and_attached(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    assert await shell.fetchval("SELECT naksha_grow('places')")
    before = set(await catalog_of(shell, "places"))
    await begin(shell, "loader", "ann")
    txn = await shell.fetchval("SELECT naksha_uid('roads')")

    async def one(leaf: str) -> None:
        other = await connect()
        await begin(other, "loader", "ann")
        await fill(other, leaf, txn)
        await other.execute("COMMIT")

    await asyncio.gather(*(one(f"{leaf:x}") for leaf in range(16)))
    counts = [
        await shell.fetchval(f"SELECT naksha_attach_leaf('roads', '{leaf:x}', 'load_{leaf:x}')")
        for leaf in range(16)
    ]
    assert sum(counts) == len(FEATURES)
    await shell.execute("COMMIT")
    version = await storage.resolve(HEAD)
    assert version.txn == txn
    [signal] = (await storage.transaction(txn)).signals
    assert (signal.created, signal.updated) == (200, 0)
    assert signal.bbox is not None
    found = await live(storage)
    assert {key: value["geometry"] for key, value in found.items()} == {
        feature["id"]: feature["geometry"]
        | {"coordinates": [*feature["geometry"]["coordinates"], 0]}
        for feature in FEATURES
    }
    assert set(await catalog_of(shell, "roads")) == before
    assert await storage.mismatches("roads", 10) == []
    await storage.run(lambda s: s.upsert("roads", [place("f1", 7), place("new", 1)]), "app")
    await storage.run(lambda s: s.delete("roads", ["f2"]), "app")
    assert await storage.count("roads", Query()) == 200
    assert await storage.mismatches("roads", 10) == []
    await storage.resolve(HEAD)  # publishes
    await check_log(shell)


BAD = {
    "SET jsondata = jsondata - 'id'": "has no id",
    "SET jsondata = jsonb_set(jsondata, '{id}', '\"elsewhere\"')": "belongs to leaf",
    "SET i = 999999": "not drawn from the sequence",
    "SET jsondata = jsondata #- '{properties,@ns:com:here:xyz}'": "members of a namespace",
    "SET jsondata = jsondata #- '{properties,@ns:com:here:xyz,rtcts}'": "members of a namespace",
    "SET jsondata = jsonb_set(jsondata, '{properties,@ns:com:here:xyz,txn}', '\"7\"')": (
        "not a state of transaction"
    ),
    "SET jsondata = jsonb_set(jsondata, '{properties,@ns:com:here:xyz,version}', '2')": (
        "not the first state"
    ),
    "SET jsondata = jsonb_set(jsondata, '{properties,@ns:com:here:xyz,uuid}', '\"x\"')": (
        "a uuid other than"
    ),
    "SET jsondata = jsonb_set(jsondata, '{properties,@ns:com:here:xyz,appId}', '\"x\"')": (
        "another application id"
    ),
    "SET jsondata = jsonb_set(jsondata, '{properties,@ns:com:here:xyz,qrid}', '\"0\"')": "qrid",
    "SET jsondata = jsondata || '{\"geometry\": null}'": "not a feature",
    "SET jsondata = jsonb_set(jsondata, '{properties,x}', '1e400')": "out of range",
    "SET geo = 'SRID=4326;CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0)'": "qrid|GeoJSON has no",
}


@pytest.mark.parametrize("change", BAD)
async def test_rows_that_are_not_new_features_are_refused(connect: Connect, change: str) -> None:
    shell = await connect()
    await begin(shell)
    table = await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    await shell.execute(f"UPDATE {table} {change} WHERE i = (SELECT max(i) FROM {table})")
    with pytest.raises(asyncpg.PostgresError, match=BAD[change]) as error:
        await shell.execute(f"SELECT naksha_attach_leaf('roads', '3', '{table}')")
    assert error.value.sqlstate == "N0006"


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        ("", "'roads', 'x', 'load_3'", "is not a leaf"),
        ("", "'roads', '3', 'nothing'", "not a plain table"),
        ("", "'nowhere', '3', 'load_3'", "The collection 'nowhere' does not exist"),
        ("CREATE INDEX ON load_3 (i)", "'roads', '3', 'load_3'", "no index"),
        (
            "ALTER TABLE load_3 ADD COLUMN x int",
            "'roads', '3', 'load_3'",
            "must have the columns of roads_p3",
        ),
        ("INSERT INTO load_3 SELECT * FROM load_3", "'roads', '3', 'load_3'", "more than once"),
        (
            "SELECT naksha_upsert('roads', '{\"id\": \"f11\"}')",
            "'roads', 'LEAF', 'load_3'",
            "has features",
        ),
    ],
)
async def test_other_tables_and_full_leaves_are_refused(
    connect: Connect, prepare: str, arguments: str, message: str
) -> None:
    shell = await connect()
    await begin(shell)
    await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    if prepare:
        await shell.execute(prepare)
    leaf = await shell.fetchval("SELECT naksha_leaf('f11')")
    with pytest.raises(asyncpg.PostgresError, match=message):
        await shell.execute(f"SELECT naksha_attach_leaf({arguments.replace('LEAF', leaf)})")


TWICE = """
UPDATE load_3 SET i = o.i, jsondata = jsonb_set(load_3.jsondata,
    '{properties,@ns:com:here:xyz,uuid}',
    to_jsonb(regexp_replace(naksha_xyz(load_3.jsondata)->>'uuid', '[0-9]+$', o.i::text)))
  FROM roads o WHERE load_3.i = (SELECT max(i) FROM load_3)
"""


async def test_a_row_with_the_number_of_another_state_is_refused(
    storage: PsqlStorage, connect: Connect
) -> None:
    other = next(f"other-{n}" for n in range(99) if id_hash(f"other-{n}")[0] != "3")
    await storage.run(lambda s: s.create("roads", [place(other, 1)]), "app")
    shell = await connect()
    await begin(shell)
    await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    await shell.execute(TWICE)
    with pytest.raises(asyncpg.PostgresError, match="has the number of another state"):
        await shell.execute("SELECT naksha_attach_leaf('roads', '3', 'load_3')")


async def test_a_deleted_feature_is_refused(storage: PsqlStorage, connect: Connect) -> None:
    deleted = next(feature for feature in FEATURES if id_hash(feature["id"])[0] == "3")
    await storage.run(lambda s: s.create("roads", [deleted]), "app")
    await storage.run(lambda s: s.delete("roads", [deleted["id"]]), "app")
    shell = await connect()
    await begin(shell)
    await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    with pytest.raises(asyncpg.PostgresError, match=f"'{deleted['id']}' is deleted; purge it"):
        await shell.execute("SELECT naksha_attach_leaf('roads', '3', 'load_3')")


async def test_a_line_is_refused_where_only_points_are_taken(
    storage: PsqlStorage, connect: Connect
) -> None:
    info = CollectionInfo(id="dots", points_only=True)
    await storage.run(lambda s: s.create_collection(info), "app")
    shape = {"type": "LineString", "coordinates": [[1, 1], [2, 2]]}
    shell = await connect()
    await begin(shell)
    txn = await shell.fetchval("SELECT naksha_txn()")
    lines = [{**feature, "geometry": shape} for feature in FEATURES]
    await fill(shell, "3", txn, lines, "dots")
    with pytest.raises(asyncpg.PostgresError, match="takes points only"):
        await shell.execute("SELECT naksha_attach_leaf('dots', '3', 'load_3')")


async def attach_by_hand(shell: Direct) -> str:
    """A leaf that PostgreSQL alone has attached: row triggers are cloned, others are not."""
    await begin(shell, "loader")
    table = await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    await shell.execute("DROP TABLE roads_p3")
    await shell.execute(f"ALTER TABLE {table} RENAME TO roads_p3")
    await shell.execute("SELECT naksha_create_indices('roads_p3', 'head', false)")
    await shell.execute("ALTER TABLE roads ATTACH PARTITION roads_p3 FOR VALUES IN ('3')")
    await shell.execute("SELECT naksha_tx_message('why', 'loaded by hand')")
    await shell.execute("COMMIT")
    first: str = await shell.fetchval("SELECT min(jsondata->>'id') FROM roads_p3")
    return first


async def test_a_light_collection_with_features_grows_first(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    others = [feature["id"] for feature in FEATURES if leaf_of(feature["id"]) != "3"][:20]
    await storage.run(lambda s: s.create("roads", [place(i, 1) for i in others]), "app")
    await begin(shell, "loader")
    table = await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    count = await shell.fetchval(f"SELECT naksha_attach_leaf('roads', '3', '{table}')")
    await shell.execute("COMMIT")
    assert (await storage.collection("roads")).partitions == 16
    found = await live(storage)
    assert set(others) < found.keys()
    assert len(found) == len(others) + count
    assert await storage.mismatches("roads", 10) == []


@pytest.mark.usefixtures("sixteen")
async def test_writes_that_escaped_are_reported_and_triggers_installed(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    one = await attach_by_hand(shell)
    found = await storage.mismatches("roads", 100)
    assert any("roads_p3 lacks triggers" in each.message for each in found)
    await begin(shell)
    await shell.execute(
        "UPDATE roads_p3 SET jsondata = jsonb_set(jsondata, '{properties,n}', '-1')"
        " WHERE jsondata->>'id' = $1",
        one,
    )
    txn = await shell.fetchval("SELECT naksha_txn()")
    await shell.execute("COMMIT")
    # The load escaped, too: it is reported by another transaction.
    escaped = [e for e in await storage.mismatches("roads", 100) if "bypassed" in e.message]
    assert (one, txn) in {(each.id, each.txn) for each in escaped}
    await storage.maintain()
    found = await storage.mismatches("roads", 100)
    assert not any("lacks triggers" in each.message for each in found)
    await begin(shell)
    await shell.execute("DELETE FROM roads_p3 WHERE jsondata->>'id' = $1", one)
    await shell.execute("COMMIT")
    assert await shell.fetchval("SELECT jsondata->>'id' FROM roads_del") == one
    assert await shell.fetchval("SELECT sum(deleted) FROM naksha_tx WHERE id = 'roads'") == 1
    with pytest.raises(asyncpg.PostgresError, match="TRUNCATE on table roads_p3"):
        await shell.execute("TRUNCATE roads_p3")
