"""Conversion of an XYZ-Hub table to a collection, and of a collection to an XYZ-Hub table."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from naksha.model.errors import CollectionNotFound
from naksha.model.geo.quadkey import qrid
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State
from naksha.model.version import AtSeq
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct

LAYOUT = (
    "(jsondata jsonb, geo geometry(GeometryZ, 4326), i BIGSERIAL, deleted BOOLEAN DEFAULT FALSE)"
)


@pytest.fixture
async def storage(database: str) -> AsyncIterator[PsqlStorage]:
    opened = await PsqlStorage.open(database, "adopter")
    yield opened
    await opened.close()


@pytest.fixture
async def connection(storage: PsqlStorage, database: str) -> AsyncIterator[Direct]:
    """A client that knows nothing of the library; the search path is as the server comes."""
    opened = await asyncpg.connect(database)
    await opened.set_type_codec(
        "jsonb",
        encoder=lambda value: msgspec.json.encode(value).decode(),
        decoder=msgspec.json.decode,
        schema="pg_catalog",
    )
    yield opened
    await opened.close()


@asynccontextmanager
async def transaction(connection: Direct) -> AsyncIterator[None]:
    async with connection.transaction():
        await connection.execute("SELECT naksha.naksha_tx_start('mover', 'me')")
        yield


async def add(
    connection: Direct, table: str, feature: Any, wkt: str | None = None, deleted: bool = False
) -> int:
    number: int = await connection.fetchval(
        f"INSERT INTO {table} (jsondata, geo, deleted)"
        " VALUES ($1, ST_GeomFromText($2, 4326), $3) RETURNING i",
        feature,
        wkt,
        deleted,
    )
    return number


def old_feature(id: str, **xyz: Any) -> dict[str, Any]:
    return {"id": id, "type": "Feature", "properties": {"name": id, XYZ: xyz}}


async def states(storage: PsqlStorage, collection: str, query: Query) -> dict[str, State]:
    return {state.id: state async for state in storage.states(collection, query)}


def xyz(state: State) -> dict[str, Any]:
    found: dict[str, Any] = state.feature["properties"][XYZ]
    return found


async def test_rows_become_features_and_the_table_is_gone(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE public.roads {LAYOUT}")
    times = {"createdAt": 1_500_000_000_000, "updatedAt": 1_600_000_000_000}
    first = await add(
        connection,
        "roads",
        old_feature("a", tags=["x", "y"], uuid="old", space="roads", **times),
        "POINT Z (13 52 0)",
    )
    await add(connection, "roads", old_feature("b"), "LINESTRING Z (1 2 0, 3 4 7)")
    await add(connection, "roads", {"id": "c", "properties": None, "extra": [1]})
    dead = await add(connection, "roads", old_feature("d", **times), "POINT Z (1 1 0)", True)
    async with transaction(connection):
        counts = await connection.fetchrow("SELECT * FROM naksha.naksha_adopt('roads', 'ways')")
    assert counts is not None
    assert tuple(counts) == (3, 1)
    assert await connection.fetchval("SELECT to_regclass('public.roads')") is None

    live = await states(storage, "ways", Query())
    assert sorted(live) == ["a", "b", "c"]
    a = live["a"].feature
    assert a["geometry"] == {"type": "Point", "coordinates": [13, 52]}
    assert a["properties"]["name"] == "a"
    assert xyz(live["a"]) | times == xyz(live["a"])
    assert xyz(live["a"])["tags"] == ["x", "y"]
    assert xyz(live["a"])["qrid"] == qrid(13, 52)
    assert xyz(live["a"])["action"] == "CREATE"
    assert xyz(live["a"])["version"] == 1
    assert xyz(live["a"])["author"] == "me"
    assert xyz(live["a"])["appId"] == "mover"
    assert xyz(live["a"])["uuid"].endswith(f":{first}")
    assert "space" not in xyz(live["a"])
    assert live["b"].feature["geometry"]["coordinates"] == [[1, 2, 0], [3, 4, 7]]
    assert live["c"].feature["geometry"] is None
    assert live["c"].feature["extra"] == [1]
    assert list(live["c"].feature["properties"]) == [XYZ]

    gone = await states(storage, "ways", Query(states=States.DELETED))
    assert list(gone) == ["d"]
    assert xyz(gone["d"])["action"] == "DELETE"
    assert xyz(gone["d"])["uuid"].endswith(f":{dead}")
    for found in (*live.values(), *gone.values()):
        assert (await storage.state(found.uuid)).id == found.id


async def test_the_log_has_one_transaction_and_the_version_before_is_empty(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE public.roads {LAYOUT}")
    await add(connection, "roads", old_feature("a"), "POINT Z (10 20 0)")
    await add(connection, "roads", old_feature("b"), "POINT Z (-10 -20 0)", True)
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")
    await storage.resolve(AtSeq(1))
    only = (await storage.transactions())[0]
    assert {(s.action, s.id) for s in only.signals} == {
        ("MODIFY_COLLECTION", "roads"),
        ("MODIFY_FEATURES", "roads"),
    }
    (features,) = [s for s in only.signals if s.action == "MODIFY_FEATURES"]
    assert (features.created, features.updated, features.deleted) == (1, 0, 1)
    assert list(features.bbox or ()) == [-10, -20, 10, 20]
    assert await storage.count("roads", Query(), AtSeq(0)) == 0
    assert await storage.count("roads", Query(), AtSeq(1)) == 1


async def test_an_adopted_collection_works_like_any_other(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE public.roads {LAYOUT}")
    for n in range(40):
        await add(connection, "roads", old_feature(f"f{n}"), f"POINT Z ({n} 1 0)", n % 4 == 0)
    await connection.execute("SELECT setval('roads_i_seq', 1000)")
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")
    async with storage.write("app") as session:
        (made,) = await session.create("roads", [old_feature("f0")])
        (changed,) = await session.update("roads", [old_feature("f1", tags=["new"])])
        await session.delete("roads", ["f2"])
        await session.restore("roads", ["f4"])
    assert (made.version, changed.version) == (2, 2)
    numbers = {int(str(outcome.uuid).rpartition(":")[2]) for outcome in (made, changed)}
    assert min(numbers) > 1000
    async with transaction(connection):
        await connection.execute("DELETE FROM naksha.roads WHERE jsondata->>'id' = 'f3'")
    await storage.resolve(AtSeq(3))
    assert await storage.count("roads", Query(), AtSeq(1)) == 30
    assert await storage.count("roads", Query()) == 30


async def test_a_table_of_the_same_name_in_the_schema_keeps_its_sequence_name(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE naksha.roads {LAYOUT}")
    await add(connection, "naksha.roads", old_feature("a"))
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('naksha.roads', 'roads')")
    left = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'naksha_adopted%'"
    )
    assert left == []
    assert await connection.fetchval("SELECT nextval('naksha.roads_i_seq')") == 2


async def test_plain_tables_without_the_newer_column_are_taken_too(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute("CREATE TABLE old (jsondata jsonb, geo geometry, i bigserial)")
    await connection.execute(
        'INSERT INTO old VALUES (\'{"id": "a"}\', ST_MakePoint(1, 2)),'
        ' (\'{"id": "b"}\', ST_SetSRID(ST_MakePoint(1, 2, 3), 4326)), (\'{"id": "c"}\', NULL)'
    )
    await connection.execute("UPDATE old SET i = 2 WHERE i = 3")  # twins happen without an index
    async with transaction(connection):
        await connection.execute(
            "SELECT naksha.naksha_adopt('old', 'new', $1)", {"keepSource": True, "maxAge": 9}
        )
    assert await connection.fetchval("SELECT count(*) FROM old") == 3
    live = await states(storage, "new", Query())
    assert live["a"].feature["geometry"]["coordinates"] == [1, 2]
    assert live["b"].feature["geometry"]["coordinates"] == [1, 2, 3]
    assert len({state.uuid for state in live.values()}) == 3
    assert (await storage.collection("new")).max_age == 9


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['(\'{"type": "Feature"}\', NULL, 77)'], "Row i = 77 has no id"),
        (["('{\"id\": 5}', NULL, 78)"], "Row i = 78 has no id"),
        (["(NULL, NULL, 79)"], "Row i = 79 has no id"),
        (['(\'{"id": ""}\', NULL, NULL)'], "Row i = null has no id"),
        (['(\'{"id": "a"}\', NULL, 1)', '(\'{"id": "a"}\', NULL, 2)'], "Row i = 1 shares"),
        (['(\'{"id": "a"}\', ST_SetSRID(ST_MakePoint(1, 2), 3857), 3)'], "Row i = 3 .*WGS 84"),
        (['(\'{"id": "a"}\', ST_MakePoint(200, 2), 4)'], "Coordinates must be"),
        (["('{\"id\": \"a\"}', 'POINT EMPTY', 4)"], "Coordinates|Empty geometry"),
    ],
)
async def test_a_row_that_is_not_a_feature_stops_the_adoption_and_is_named(
    storage: PsqlStorage, connection: Direct, rows: list[str], message: str
) -> None:
    await connection.execute("CREATE TABLE old (jsondata jsonb, geo geometry, i bigint)")
    await connection.execute(f'INSERT INTO old VALUES (\'{{"id": "z"}}\', NULL, 9), {rows[0]}')
    for row in rows[1:]:
        await connection.execute(f"INSERT INTO old VALUES {row}")
    with pytest.raises(asyncpg.PostgresError, match=message):
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_adopt('old', 'new')")
    assert await connection.fetchval("SELECT count(*) FROM old") == 1 + len(rows)
    with pytest.raises(CollectionNotFound):
        await storage.collection("new")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("(jsondata jsonb, geo geometry)", "lacks: i bigint"),
        ("(jsondata text, geo bytea, i bigint)", "lacks: geo geometry, jsondata jsonb"),
    ],
)
async def test_a_table_of_another_layout_is_refused(
    storage: PsqlStorage, connection: Direct, table: str, message: str
) -> None:
    await connection.execute(f"CREATE TABLE other {table}")
    with pytest.raises(asyncpg.PostgresError, match=message):
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_adopt('other', 'new')")


async def test_occupied_names_are_reported(storage: PsqlStorage, connection: Direct) -> None:
    await connection.execute(f"CREATE TABLE roads {LAYOUT}")
    await connection.execute("CREATE TABLE naksha.roads_hst (a int)")
    with pytest.raises(asyncpg.PostgresError, match="needs: roads_hst"):
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")


async def test_a_prefix_is_cut_from_the_ids(storage: PsqlStorage, connection: Direct) -> None:
    await connection.execute(f"CREATE TABLE roads {LAYOUT}")
    await add(connection, "roads", old_feature("urn:a"))
    await add(connection, "roads", old_feature("b"))
    async with transaction(connection):
        await connection.execute(
            "SELECT naksha.naksha_adopt('roads', 'roads', $1)", {"idPrefix": "urn:"}
        )
    assert sorted(await states(storage, "roads", Query())) == ["a", "b"]


async def test_no_state_is_from_the_future(storage: PsqlStorage, connection: Direct) -> None:
    """Otherwise a query by `updated_from` would miss states whose txn is of today."""
    later = 4_000_000_000_000
    await connection.execute(f"CREATE TABLE roads {LAYOUT}")
    await add(connection, "roads", old_feature("a", createdAt=later, updatedAt=later))
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")
    found = xyz((await states(storage, "roads", Query()))["a"])
    assert found["createdAt"] == found["updatedAt"] < later
    assert "a" in await states(storage, "roads", Query(updated_from=found["updatedAt"]))
    assert await states(storage, "roads", Query(updated_from=later)) == {}


# ---- and back ------------------------------------------------------------------------------------


async def test_there_and_back_again(storage: PsqlStorage, connection: Direct) -> None:
    await connection.execute(f"CREATE TABLE public.roads {LAYOUT}")
    await add(connection, "roads", old_feature("a", tags=["t"]), "POINT Z (13 52 0)")
    await add(connection, "roads", old_feature("b"), "POINT Z (1 2 3)")
    await add(connection, "roads", old_feature("c"))
    before = await table_rows(connection, "public.roads")
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('public.roads', 'roads')")
    async with transaction(connection):
        rows = await connection.fetchval("SELECT naksha.naksha_release('roads', 'public.roads')")
    assert rows == 3
    assert await table_rows(connection, "public.roads") == before
    kinds = await connection.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'public.roads'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert [tuple(kind) for kind in kinds] == [
        ("jsondata", "jsonb"),
        ("geo", "geometry(GeometryZ,4326)"),
        ("i", "bigint"),
    ]
    left = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relname LIKE 'roads%'"
        " AND relnamespace = 'naksha'::regnamespace"
    )
    assert left == []
    assert (
        await connection.fetchval(
            'INSERT INTO roads (jsondata) VALUES (\'{"id": "d"}\') RETURNING i'
        )
        == 4
    )
    with pytest.raises(CollectionNotFound):
        await storage.collection("roads")


async def table_rows(connection: Direct, table: str) -> list[tuple[Any, ...]]:
    """Content, tags and place of all rows."""
    rows = await connection.fetch(
        f"""SELECT jsondata #- '{{properties,@ns:com:here:xyz}}',
                   coalesce(jsondata->'properties'->'@ns:com:here:xyz'->'tags', '[]'),
                   ST_AsEWKT(geo), i FROM {table} ORDER BY i"""
    )
    return [tuple(row) for row in rows]


async def test_release_under_the_own_name_and_adoption_once_more(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE naksha.roads {LAYOUT}")
    await add(connection, "naksha.roads", old_feature("a"), "POINT Z (1 2 3)")
    for _ in range(2):
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_adopt('naksha.roads', 'roads')")
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_release('roads', 'roads')")
    # The second time the number has been a state's already, maybe on the same day.
    assert await connection.fetch("SELECT i FROM naksha.roads") == [(2,)]
    assert await connection.fetchval("SELECT nextval('naksha.roads_i_seq')") == 3
    marked = "SELECT count(*) FROM naksha.roads WHERE jsondata ? 'naksha:3d'"
    assert await connection.fetchval(marked) == 0
    await storage.resolve(AtSeq(4))
    assert {s.action for t in await storage.transactions() for s in t.signals} == {
        "MODIFY_COLLECTION",
        "MODIFY_FEATURES",
    }


async def test_history_goes_only_when_asked(storage: PsqlStorage, connection: Direct) -> None:
    await connection.execute(f"CREATE TABLE roads {LAYOUT}")
    await add(connection, "roads", old_feature("a"))
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")
    async with storage.write("app") as session:
        await session.delete("roads", ["a"])
    with pytest.raises(asyncpg.PostgresError, match="would be lost") as error:
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_release('roads', 'public.roads')")
    assert error.value.sqlstate == "N0007"
    assert await storage.count("roads", Query(states=States.DELETED)) == 1
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_release('roads', 'public.roads', true)")
    assert await connection.fetchval("SELECT count(*) FROM roads") == 0
    assert await connection.fetchval("INSERT INTO roads (jsondata) VALUES ('{}') RETURNING i") == 3


async def test_an_existing_table_is_never_overwritten(
    storage: PsqlStorage, connection: Direct
) -> None:
    await connection.execute(f"CREATE TABLE roads {LAYOUT}")
    async with transaction(connection):
        await connection.execute("SELECT naksha.naksha_adopt('roads', 'roads')")
    await connection.execute("CREATE TABLE public.taken (a int)")
    with pytest.raises(asyncpg.PostgresError, match="exists"):
        async with transaction(connection):
            await connection.execute("SELECT naksha.naksha_release('roads', 'public.taken')")
