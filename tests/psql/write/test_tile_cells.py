"""Tile cells of plain SQL, and of what only this storage has; the others are in the suite."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from naksha.model.geo.tile_cells import ancestors, cover
from naksha.model.limits import TILE_CELLS_MAX
from naksha.model.query import Bbox
from naksha.psql import PsqlStorage
from naksha.psql.connection.driver import Direct
from naksha.spi.tile_cells import CellChange
from naksha.testing.storage.suite_support import APP, feature, point, published
from tests.psql.bulk.test_attach_leaf import FEATURES, fill
from tests.psql.support import Connect, begin, by_force

HERE, THERE = (8.5, 50.25), (-100.0, -20.0)
WIDE = (8.0, 50.0, 9.5, 50.5)
LINE = "LINESTRING Z (8 50 0, 9.5 50.5 0)"
POINT = "POINT Z ({0[0]} {0[1]} 0)"


def at(*positions: tuple[float, float]) -> set[int]:
    return set().union(*(cover(*each, *each) for each in positions))


async def insert(shell: Direct, key: str, wkt: str | None) -> None:
    await shell.execute(
        "INSERT INTO roads (jsondata, geo) VALUES ($1, ST_GeomFromEWKT('SRID=4326;' || $2))",
        json.dumps({"id": key}),
        wkt,
    )


async def recorded(shell: Direct, collection: str = "roads") -> list[set[int]]:
    """The cells of each transaction."""
    rows = await shell.fetch(
        "SELECT cells FROM naksha_tx WHERE id = $1 AND action = 'MODIFY_FEATURES' ORDER BY txn",
        collection,
    )
    return [{*row["cells"]} for row in rows]


async def changed(shell: Direct, *statements: str) -> set[int]:
    """The cells of a transaction."""
    await begin(shell)
    for statement in statements:
        await shell.execute(statement)
    await shell.execute("COMMIT")
    return (await recorded(shell))[-1]


@pytest.fixture
async def shell(connect: Connect) -> Direct:
    """A shell, and a collection with a point, a line and a feature without geometry."""
    made = await connect()
    await begin(made)
    await insert(made, "point", POINT.format(HERE))
    await insert(made, "line", LINE)
    await insert(made, "flat", None)
    await made.execute("COMMIT")
    return made


MOVE = "UPDATE roads SET geo = ST_GeomFromEWKT('SRID=4326;{}') WHERE jsondata->>'id' = '{}'"
CHANGE = (
    "UPDATE roads SET jsondata = jsonb_set(jsondata, '{{a}}', '1') WHERE jsondata->>'id' = '{}'"
)
UPSERT = f"""SELECT naksha_upsert('roads', '{{"id": "point"}}',
                                 ST_GeomFromEWKT('SRID=4326;{POINT.format(THERE)}'))"""
PLAIN: dict[str, tuple[list[str], set[int]]] = {
    "a move": ([MOVE.format(POINT.format(THERE), "point")], at(HERE, THERE)),
    "another shape": ([MOVE.format(POINT.format(THERE), "line")], cover(*WIDE) | at(THERE)),
    "a removed geometry": (["UPDATE roads SET geo = NULL"], cover(*WIDE) | at(HERE)),
    "a new geometry": ([MOVE.format(POINT.format(THERE), "flat")], at(THERE)),
    "a property": ([CHANGE.format("line")], cover(*WIDE)),
    "a feature without geometry": ([CHANGE.format("flat")], set()),
    "a deletion": (["DELETE FROM roads WHERE jsondata->>'id' = 'line'"], cover(*WIDE)),
    "all of them": (["DELETE FROM roads"], cover(*WIDE) | at(HERE)),
    "two statements": (
        [MOVE.format(POINT.format(THERE), "point"), "DELETE FROM roads"],
        cover(*WIDE) | at(HERE, THERE),
    ),
    "naksha_upsert": ([UPSERT], at(HERE, THERE)),
    "a savepoint": (
        [
            CHANGE.format("flat"),
            "SAVEPOINT s",
            CHANGE.format("line"),
            "ROLLBACK TO s",
            CHANGE.format("point"),
        ],
        at(HERE),
    ),
    "after the log was written": (
        [CHANGE.format("line"), "SET CONSTRAINTS ALL IMMEDIATE", CHANGE.format("point")],
        cover(*WIDE) | at(HERE),
    ),
}


@pytest.mark.parametrize("case", PLAIN)
async def test_plain_sql(shell: Direct, case: str) -> None:
    statements, cells = PLAIN[case]
    assert await recorded(shell) == [cover(*WIDE) | at(HERE)]
    assert await changed(shell, *statements) == cells


async def test_deleted_restored_and_purged(shell: Direct) -> None:
    await changed(shell, "DELETE FROM roads")
    await shell.execute("SELECT naksha_publish()")
    restored = "SELECT naksha_restore('roads', ARRAY['line', 'flat'])"
    assert await changed(shell, restored) == cover(*WIDE)
    assert await changed(shell, "SELECT naksha_purge('roads', ARRAY['point'])") == set()


async def test_thousands_of_statements_in_one_transaction(shell: Direct) -> None:
    chance = random.Random(5)
    places = [(chance.uniform(-179, 179), chance.uniform(-89, 0)) for _ in range(4_000)]
    inserts = """DO $$ DECLARE place jsonb; n int := 0; BEGIN
        FOR place IN SELECT * FROM jsonb_array_elements('{}') LOOP
            n := n + 1;
            INSERT INTO roads (jsondata, geo) VALUES (jsonb_build_object('id', 'n' || n),
                ST_SetSRID(ST_MakePoint((place->>0)::float8, (place->>1)::float8, 0), 4326));
        END LOOP; END $$"""
    cells = await changed(shell, inserts.format(json.dumps(places)))
    assert 100 < len(cells) <= TILE_CELLS_MAX
    assert all(cells & {cell, *ancestors(cell)} for cell in at(*places))
    assert not cells & {1, *at(HERE)}


async def test_an_attached_leaf(connect: Connect) -> None:
    shell = await connect()
    await begin(shell)
    table = await fill(shell, "3", await shell.fetchval("SELECT naksha_txn()"))
    await shell.execute(f"SELECT naksha_attach_leaf('roads', '3', '{table}')")
    await shell.execute("COMMIT")
    ids = {row[0] for row in await shell.fetch("SELECT jsondata->>'id' FROM roads")}
    places = [tuple(f["geometry"]["coordinates"]) for f in FEATURES if f["id"] in ids]
    assert await recorded(shell) == [at(*places)]


async def test_an_adopted_table(connect: Connect) -> None:
    shell = await connect()
    await shell.execute("CREATE TABLE old (jsondata jsonb, geo geometry(GeometryZ, 4326), i int8)")
    for key, wkt in enumerate([POINT.format(HERE), LINE, None], start=1):
        await shell.execute(
            "INSERT INTO old SELECT jsonb_build_object('id', 'k' || $1::int8), "
            "ST_GeomFromEWKT('SRID=4326;' || $2), $1",
            key,
            wkt,
        )
    await begin(shell)
    await shell.execute("SELECT naksha_adopt('old', 'adopted')")
    await shell.execute("COMMIT")
    assert await recorded(shell, "adopted") == [cover(*WIDE) | at(HERE)]


async def test_log_rows_of_an_older_release_are_changes_of_the_world(
    storage: PsqlStorage, connect: Connect
) -> None:
    shell = await connect()
    first = await published(storage)
    await storage.run(lambda s: s.create("roads", [point("x", *HERE)]), APP)
    last = await published(storage)
    await by_force(shell, "UPDATE naksha_tx SET cells = NULL")
    assert (await storage.cell_log(first.txn)).changes == [CellChange(last.txn, "roads", 0, [1])]
    far = Bbox(100, 0, 101, 1)
    assert await storage.last_cell_change("roads", far) == last.txn
    await storage.maintain()
    assert await storage.last_cell_change("roads", far) == last.txn
    await storage.run(lambda s: s.update("roads", [point("x", *THERE)]), APP)
    await published(storage)
    assert await storage.last_cell_change("roads", far) == last.txn


async def test_a_feature_that_is_written_twice_has_all_its_places(storage: PsqlStorage) -> None:
    before = await published(storage)
    shapes: list[Any] = [point("x", *HERE), feature("x"), point("x", *THERE)]
    async with storage.write(APP) as session:
        for each in shapes:
            await session.upsert("roads", [each])
    await published(storage)
    changes = (await storage.cell_log(before.txn)).changes
    assert changes is not None
    assert [{*change.cells} for change in changes] == [at(HERE, THERE)]
