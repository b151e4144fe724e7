"""Geometries that GeoJSON cannot express, and documents that no decoder accepts.

Plain SQL is refused them; those admitted by an older version can be read, are marked and reported.
"""

from __future__ import annotations

import json

import asyncpg
import msgspec
import pytest

from naksha.model.damage import DAMAGED
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Bbox, Query, States
from naksha.model.version import HEAD, AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.versioning import FeedFilter, FeedPosition, line_of, read_feed
from tests.damage import damage
from tests.psql.aging import place
from tests.psql.support import Connect, begin

BAD = {
    "curve": "CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0)",
    "surface": "POLYHEDRALSURFACE Z (((0 0 0, 1 1 0, 2 0 0, 0 0 0)))",
    "mixed": "GEOMETRYCOLLECTION Z (POINT Z (0 0 0), COMPOUNDCURVE Z ((0 0 0, 1 1 0)))",
    "nan": "LINESTRING Z (0 0 0, NaN 1 0, 2 2 0)",
    "nan-point": "MULTIPOINT Z (0 0 0, NaN 1 0, 2 2 0)",
    "nan-polygon": "POLYGON Z ((0 0 0, 1 0 0, 1 NaN 0, 0 0 0))",
    "nan-mixed": "GEOMETRYCOLLECTION Z (LINESTRING Z (0 0 0, NaN 1 0, 2 2 0))",
}


@pytest.fixture
async def shell(connect: Connect, storage: PsqlStorage) -> Direct:
    """A connection; `roads` has a good feature and all bad ones, which were changed since."""
    connection = await connect()
    definition = await connection.fetchval(
        "SELECT pg_get_functiondef('naksha_check_geo'::regproc::oid)"
    )
    await connection.execute(
        "CREATE OR REPLACE FUNCTION naksha_check_geo(c naksha_collection, feature_id text,"
        " geo geometry) RETURNS void LANGUAGE sql AS ''"
    )
    await begin(connection)
    for key, text in BAD.items():
        await connection.execute(
            f"INSERT INTO roads (geo, jsondata) VALUES ('SRID=4326;{text}', $1::jsonb)",
            json.dumps({"id": key}),
        )
    await connection.execute("COMMIT")
    await connection.execute(definition)
    await storage.run(lambda s: s.upsert("roads", [place("good", 1)]), "app")
    return connection


async def test_damaged_features_are_read_and_marked(storage: PsqlStorage, shell: Direct) -> None:
    version = await storage.resolve(HEAD)
    await begin(shell)
    await shell.execute("UPDATE roads SET jsondata = jsonb_set(jsondata, '{properties,n}', '2')")
    await shell.execute("COMMIT")
    for at in (HEAD, AtSeq(version.seq_number)):
        for query in (Query(), Query(states=States.ALL), Query(spatial=Bbox(-1, -1, 3, 3))):
            states = {s.id: s.feature async for s in storage.states("roads", query, at)}
            assert states.keys() >= BAD.keys()
            for key in BAD:
                assert states[key]["geometry"] is None
                assert states[key][DAMAGED]["field"] == "geometry"
                assert states[key][DAMAGED]["problem"]
        good = {s.id: s.feature async for s in storage.states("roads", Query(), at)}["good"]
        assert good["geometry"] is not None
        assert DAMAGED not in good
        page = await storage.page("roads", Query(limit=100, space="s"), at)
        assert sum(DAMAGED in state.feature for state in page.states) == len(BAD)
        rows = [
            row
            for split in await storage.plan("roads", Query(), at)
            async for batch in storage.read(split)
            for row in batch.to_pylist()
        ]
        assert {row["id"] for row in rows if row["geometry"] is None} == BAD.keys()
        tile = VectorTile.web(0, 0, 0, layer="roads")
        assert await storage.tile("roads", Query(), at, tile)
    await storage.statistics("roads")
    await storage.maintain()


async def test_the_feed_goes_on_over_what_is_damaged(storage: PsqlStorage, shell: Direct) -> None:
    await storage.resolve(HEAD)
    page = await read_feed(
        await line_of(storage, "main"),
        FeedPosition(0),
        FeedFilter(),
        transactions_max=100,
        features_max=100,
    )
    assert page.position.seq_number == page.last
    changes = [change.state for item in page.items for change in item.changes]
    marked = {state.id for state in changes if DAMAGED in state.feature}
    assert marked == BAD.keys()
    assert "good" in {state.id for state in changes}


async def test_damaged_features_are_reported(storage: PsqlStorage, shell: Direct) -> None:
    found = await storage.mismatches("roads", 100)
    assert {mismatch.id for mismatch in found} == BAD.keys()
    assert all("geometry" in mismatch.message for mismatch in found)


async def test_the_mark_is_not_stored(storage: PsqlStorage, shell: Direct) -> None:
    [state] = [s async for s in storage.states("roads", Query(ids=("curve",)))]
    changed = dict(state.feature)
    changed["geometry"] = {"type": "Point", "coordinates": [1, 2]}
    await storage.run(lambda s: s.update("roads", [changed]), "app")
    [state] = [s async for s in storage.states("roads", Query(ids=("curve",)))]
    assert DAMAGED not in state.feature
    assert state.feature["geometry"] == changed["geometry"]


DEEP = "(repeat('[', {0}) || repeat(']', {0}))::jsonb"
DOCUMENTS = {
    "jsonb '1e400'": "out of range",
    "jsonb '[{\"a\": -1e5000}]'": "out of range",
    "jsonb '1e309'": "out of range",
    DEEP.format(99): "levels deep",
    DEEP.format(3000): "levels deep",
}


@pytest.mark.parametrize("value", DOCUMENTS)
async def test_documents_that_no_decoder_takes_are_refused(
    storage: PsqlStorage, connect: Connect, value: str
) -> None:
    await storage.run(lambda s: s.create("roads", [place("a", 1)]), "app")
    connection = await connect()
    document = f"jsonb_build_object('id', 'b', 'properties', jsonb_build_object('x', {value}))"
    for statement in (
        f"INSERT INTO roads (jsondata) VALUES ({document})",
        f"UPDATE roads SET jsondata = jsonb_set(jsondata, '{{properties,x}}', {value})",
        f"SELECT naksha_upsert('roads', {document})",
    ):
        await begin(connection)
        with pytest.raises(asyncpg.PostgresError, match=DOCUMENTS[value]) as error:
            await connection.execute(statement)
        assert error.value.sqlstate == "N0006"
        await connection.execute("ROLLBACK")
    assert await storage.count("roads", Query()) == 1


@pytest.mark.parametrize("value", ["'1.7976931348623157e308'", DEEP.format(98)])
async def test_documents_at_the_limit_are_taken(
    storage: PsqlStorage, connect: Connect, value: str
) -> None:
    await storage.run(lambda s: s.create("roads", [place("a", 1)]), "app")
    connection = await connect()
    await begin(connection)
    await connection.execute(
        f"UPDATE roads SET jsondata = jsonb_set(jsondata, '{{properties,x}}', {value})"
    )
    await connection.execute("COMMIT")
    [state] = [s async for s in storage.states("roads", Query())]
    await storage.run(lambda s: s.update("roads", [{**state.feature, "new": 1}]), "app")


async def test_a_deep_document_is_read_cut_and_marked(
    storage: PsqlStorage, connect: Connect
) -> None:
    await storage.run(lambda s: s.create("roads", [place("bad", 1), place("good", 1)]), "app")
    await damage(connect.dsn, "roads", "bad", "depth")
    await storage.run(lambda s: s.update("roads", [place("good", 2)]), "app")
    await storage.resolve(HEAD)
    page = await read_feed(
        await line_of(storage, "main"),
        FeedPosition(0),
        FeedFilter(),
        transactions_max=100,
        features_max=100,
    )
    changes = [change.state for item in page.items for change in item.changes]
    assert [state.id for state in changes if DAMAGED in state.feature] == ["bad"]
    assert all(msgspec.json.decode(state.raw) == state.feature for state in changes)
    assert [m.id for m in await storage.mismatches("roads", 9)] == ["bad"]
    await storage.run(lambda s: s.update("roads", [place("bad", 3)]), "app")
    [state] = [s async for s in storage.states("roads", Query(ids=("bad",)))]
    assert DAMAGED not in state.feature
