"""Geometries of plain SQL: taken from jsondata, and refused where the library refuses them."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from naksha.model.geo.geometry_rules import geometry_problem
from naksha.model.query import Query
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from tests.psql.support import Connect, begin

Json = dict[str, Any]
POINT: Json = {"type": "Point", "coordinates": [8.5, 50.25]}
HIGH: Json = {"type": "Point", "coordinates": [8.5, 50.25, 7.125]}
LINE: Json = {"type": "LineString", "coordinates": [[1, 2, 0], [3, 4, 0]]}
SQUARE: Json = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
NESTED: Json = {
    "type": "GeometryCollection",
    "geometries": [POINT, {"type": "GeometryCollection", "geometries": [SQUARE]}],
}
GOOD = [
    POINT,
    HIGH,
    LINE,
    SQUARE,
    NESTED,
    {"type": "MultiPoint", "coordinates": [[1, 2], [0.1, 1e-300]]},
    {"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]},
    {"type": "MultiPolygon", "coordinates": [SQUARE["coordinates"]]},
    {"type": "LineString", "coordinates": [[0, 0, 1e308], [1, 1, -1e308]]},
]


@pytest.fixture
async def shell(connect: Connect) -> Direct:
    connection = await connect()
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
    return connection


async def insert(shell: Direct, geometry: Any, geo: str = "NULL", key: str = "a") -> None:
    await run(
        shell,
        f"INSERT INTO roads (geo, jsondata) VALUES ({geo}, $1)",
        {"id": key, "geometry": geometry},
    )


async def run(shell: Direct, statement: str, *values: Any) -> None:
    await begin(shell)
    try:
        await shell.execute(statement, *values)
    except BaseException:
        await shell.execute("ROLLBACK")
        raise
    await shell.execute("COMMIT")


async def stored(shell: Direct, key: str = "a") -> Any:
    """The geometry as a reader gets it."""
    text = await shell.fetchval(
        "SELECT naksha_geo_json(geo, jsondata) FROM roads WHERE jsondata->>'id' = $1", key
    )
    return json.loads(text)


@pytest.mark.parametrize("geometry", [*GOOD, None], ids=lambda g: g and g["type"])
async def test_an_insert_takes_the_geometry_from_the_document(
    shell: Direct, storage: PsqlStorage, geometry: Any
) -> None:
    assert geometry is None or geometry_problem(geometry) is None
    await insert(shell, geometry)
    assert await stored(shell) == geometry
    document = await shell.fetchval("SELECT jsondata FROM roads")
    assert "geometry" not in document
    [state] = [s async for s in storage.states("roads", Query())]
    assert state.feature["geometry"] == geometry
    other = {"type": "Feature", "id": "b", "properties": {}, "geometry": geometry}
    await storage.run(lambda s: s.upsert("roads", [other]), "app")
    plain, library = await shell.fetch(
        "SELECT geo::text, naksha_xyz(jsondata)->>'qrid' AS qrid, jsondata->'naksha:3d' AS high"
        " FROM roads ORDER BY jsondata->>'id'"
    )
    assert tuple(plain) == tuple(library)


async def test_the_column_and_the_document_may_say_the_same(shell: Direct) -> None:
    await insert(shell, POINT, "ST_Force3D(ST_Point(8.5, 50.25, 4326))")
    assert await stored(shell) == POINT
    with pytest.raises(asyncpg.PostgresError, match="both given, and differ") as error:
        await insert(shell, POINT, "ST_Force3D(ST_Point(8.5, 50, 4326))", "b")
    assert error.value.sqlstate == "N0006"
    assert json.loads(error.value.detail or "")["feature"] == "b"
    # Null is what there was before, so that only the column is given.
    await insert(shell, None, "ST_Force3D(ST_Point(8.5, 50, 4326))", "c")
    assert (await stored(shell, "c"))["type"] == "Point"


SET_JSON = (
    "UPDATE roads SET jsondata = jsonb_set(jsondata, '{geometry}', coalesce($1::jsonb, 'null'))"
)
SET_BOTH = SET_JSON + ", geo = ST_Force3D(ST_Point(1, 2, 4326))"


@pytest.mark.parametrize("before", [POINT, HIGH, SQUARE, None], ids=lambda g: g and g["type"])
@pytest.mark.parametrize("after", [POINT, HIGH, SQUARE, None], ids=lambda g: g and g["type"])
async def test_an_update_takes_the_geometry_from_the_document(
    shell: Direct, before: Any, after: Any
) -> None:
    await insert(shell, before)
    await run(shell, SET_JSON, after)
    assert await stored(shell) == after
    version = await shell.fetchval("SELECT naksha_xyz(jsondata)->'version' FROM roads")
    assert version == (1 if before == after else 2)


async def test_an_update_without_the_member_keeps_the_geometry(shell: Direct) -> None:
    await insert(shell, HIGH)
    await run(shell, "UPDATE roads SET jsondata = jsondata || '{\"x\": 1}'")
    assert await stored(shell) == HIGH
    assert await shell.fetchval("SELECT naksha_xyz(jsondata)->'version' FROM roads") == 2


async def test_the_side_that_changed_counts(shell: Direct) -> None:
    await insert(shell, POINT)
    await run(shell, SET_BOTH, POINT)
    assert await stored(shell) == {"type": "Point", "coordinates": [1, 2]}
    await run(shell, SET_BOTH, HIGH)
    assert await stored(shell) == HIGH
    await run(shell, SET_BOTH, {"type": "Point", "coordinates": [1, 2]})
    assert await stored(shell) == {"type": "Point", "coordinates": [1, 2]}
    for other in (SQUARE, None):
        with pytest.raises(asyncpg.PostgresError, match="both given, and differ"):
            await run(shell, SET_BOTH.replace("(1, 2", "(3, 4"), other)
    await run(shell, SET_BOTH, {"type": "Point", "coordinates": [1, 2]})


async def test_upsert_refuses_two_different_geometries(shell: Direct) -> None:
    upsert = "SELECT naksha_upsert('roads', $1, ST_Point(8.5, 50.25, 4326))"
    await run(shell, upsert, {"id": "a", "geometry": POINT})
    assert await stored(shell) == POINT
    with pytest.raises(asyncpg.PostgresError, match="both given, and differ"):
        await run(shell, upsert, {"id": "a", "geometry": HIGH})


BAD_JSON: list[Any] = [
    "POINT(1 2)",
    [1, 2],
    {},
    {"type": "Circle", "coordinates": [1, 2]},
    {"type": "point", "coordinates": [1, 2]},
    {"type": "Point"},
    {"type": "Point", "coordinates": None},
    {"type": "Point", "coordinates": [1]},
    {"type": "Point", "coordinates": []},
    {"type": "Point", "coordinates": [1, 2, 3, 4]},
    {"type": "Point", "coordinates": ["1", 2]},
    {"type": "Point", "coordinates": [True, 2]},
    {"type": "Point", "coordinates": [181, 2]},
    {"type": "Point", "coordinates": [1, 91]},
    {"type": "Point", "coordinates": [[1, 2]]},
    {"type": "MultiPoint", "coordinates": [1, 2]},
    {"type": "MultiPoint", "coordinates": []},
    {"type": "MultiPoint", "coordinates": [[1, 2], []]},
    {"type": "LineString", "coordinates": [[1, 2]]},
    {"type": "LineString", "coordinates": [[1, 2], [3, 4, 5]]},
    {"type": "LineString", "coordinates": [[1, 2], 3]},
    {"type": "MultiLineString", "coordinates": [[]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]},
    {"type": "Polygon", "coordinates": [[[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]]]},
    {"type": "MultiPolygon", "coordinates": [[]]},
    {"type": "GeometryCollection"},
    {"type": "GeometryCollection", "geometries": []},
    {"type": "GeometryCollection", "geometries": [1]},
    {"type": "GeometryCollection", "geometries": [None]},
    {"type": "GeometryCollection", "geometries": [POINT, HIGH]},
]
DEEP: Json = POINT
for _ in range(9):
    DEEP = {"type": "GeometryCollection", "geometries": [DEEP]}


@pytest.mark.parametrize("geometry", [*BAD_JSON, DEEP], ids=lambda g: json.dumps(g)[:50])
async def test_geometries_that_the_library_refuses_are_refused(
    shell: Direct, geometry: Any
) -> None:
    assert geometry_problem(geometry) is not None
    for statement in (
        "INSERT INTO roads (jsondata) VALUES ($1)",
        "SELECT naksha_upsert('roads', $1)",
    ):
        with pytest.raises(asyncpg.PostgresError) as error:
            await run(shell, statement, {"id": "bad", "geometry": geometry})
        assert error.value.sqlstate == "N0006", error.value
        assert json.loads(error.value.detail or "")["feature"] == "bad"
        assert json.loads(error.value.detail or "")["field"] == "geometry"


async def test_a_number_that_is_too_large_for_a_double_is_refused(shell: Direct) -> None:
    text = '{"id": "x", "geometry": {"type": "Point", "coordinates": [1, 2, 1e400]}}'
    with pytest.raises(asyncpg.PostgresError, match="must be finite"):
        await run(shell, f"INSERT INTO roads (jsondata) VALUES ('{text}')")


async def test_a_member_crs_is_not_believed(shell: Direct) -> None:
    crs = {"type": "name", "properties": {"name": "EPSG:3857"}}
    await insert(shell, POINT | {"crs": crs})
    assert await stored(shell) == POINT


@pytest.mark.parametrize(
    "text",
    [
        "CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0)",
        "COMPOUNDCURVE Z ((0 0 0, 1 1 0))",
        "CURVEPOLYGON Z (CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0, 1 -1 0, 0 0 0))",
        "MULTICURVE Z ((0 0 0, 1 1 0))",
        "MULTISURFACE Z (((0 0 0, 1 0 0, 1 1 0, 0 0 0)))",
        "POLYHEDRALSURFACE Z (((0 0 0, 1 1 0, 2 0 0, 0 0 0)))",
        "TIN Z (((0 0 0, 1 1 0, 2 0 0, 0 0 0)))",
        "TRIANGLE Z ((0 0 0, 1 1 0, 2 0 0, 0 0 0))",
        "GEOMETRYCOLLECTION Z (CIRCULARSTRING Z (0 0 0, 1 1 0, 2 0 0))",
        "LINESTRING Z (0 0 0, NaN 1 0, 2 2 0)",
        "MULTIPOINT Z (0 0 0, NaN 1 0, 2 2 0)",
        "POLYGON Z ((0 0 0, 1 0 0, 1 NaN 0, 0 0 0))",
        "GEOMETRYCOLLECTION Z (POINT Z (0 0 0), LINESTRING Z (0 0 0, 1 1 NaN, 2 2 0))",
        "MULTIPOLYGON Z (EMPTY, ((0 0 0, 1 0 0, 1 1 0, 0 0 0)))",
        "GEOMETRYCOLLECTION Z (POINT Z EMPTY, POINT Z (1 1 1))",
    ],
)
async def test_curves_and_numbers_that_are_not_finite_are_refused(shell: Direct, text: str) -> None:
    await refused(shell, f"'SRID=4326;{text}'::geometry")


@pytest.mark.parametrize("vertex", ["1, 'Infinity', 0", "'-Infinity', 1, 0", "1, 1, '-Infinity'"])
async def test_infinity_is_refused_in_every_vertex(shell: Direct, vertex: str) -> None:
    """WKT cannot write it."""
    ends = ["ST_MakePoint(0, 0, 0)", "ST_MakePoint(2, 2, 0)"]
    for place in range(3):
        points = [*ends[:place], f"ST_MakePoint({vertex})", *ends[place:]]
        for function in ("ST_MakeLine", "ST_Collect"):
            await refused(shell, f"ST_SetSRID({function}(ARRAY[{', '.join(points)}]), 4326)")


async def refused(shell: Direct, geo: str) -> None:
    for statement in (
        f'INSERT INTO roads (geo, jsondata) VALUES ({geo}, \'{{"id": "bad"}}\')',
        f"SELECT naksha_upsert('roads', '{{\"id\": \"bad\"}}', {geo})",
    ):
        with pytest.raises(asyncpg.PostgresError) as error:
            await run(shell, statement)
        assert error.value.sqlstate == "N0006", error.value
