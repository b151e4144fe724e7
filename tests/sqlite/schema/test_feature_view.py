"""The view `feature` for writers without the library: geometries, columns, statements."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from naksha.model.collection import CollectionInfo
from naksha.model.damage import DAMAGED
from naksha.model.errors import InvalidArgument, ReadOnly
from naksha.model.query import Bbox, Query
from naksha.model.state import XYZ
from naksha.model.version import AtSeq
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    content,
    feature,
    ids_of,
    point,
    with_xyz,
)
from naksha.testing.storage.write.suite_concurrency import check_history, check_log
from tests.sqlite.support import ShellError, rows, shell

POINT = {"type": "Point", "coordinates": [8.5, 50.25]}
LINE = {"type": "LineString", "coordinates": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]}
RING = [[[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 0.0]]]
GEOMETRIES = [
    POINT,
    LINE,
    {"type": "Polygon", "coordinates": RING},
    {"type": "MultiPolygon", "coordinates": [RING]},
    {"type": "GeometryCollection", "geometries": [POINT, POINT]},
]


def as_sql(value: Any) -> str:
    return "'" + msgspec.json.encode(value).decode().replace("'", "''") + "'"


def inserted(id_: str, geometry: Any, **properties: Any) -> str:
    return (
        "INSERT INTO feature (collection, id, geometry, properties) VALUES "
        f"('places', '{id_}', {as_sql(geometry)}, {as_sql(properties)})"
    )


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: str(g["type"]))
async def test_a_geometry_is_as_the_library_writes_it(
    storage: SqliteStorage, path: Path, geometry: dict[str, Any]
) -> None:
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    await roads.create(feature("a", geometry, n=1), app="sqlite3")
    await places.create(feature("u"))
    shell(path, inserted("a", geometry, n=1))
    shell(path, f"UPDATE feature SET geometry = {as_sql(geometry)} WHERE id = 'u'")
    one, two, updated = await roads.get("a"), await places.get("a"), await places.get("u")
    assert content(one) == content(two)
    assert updated.feature["geometry"] == one.feature["geometry"]
    assert (one.xyz["qrid"], one.xyz["mrid"]) == (two.xyz["qrid"], two.xyz["mrid"])
    columns = "geo, geometry, west, south, east, north, qrid, mrid"
    text = f"SELECT {columns} FROM naksha_head WHERE t = ? AND id = 'a'"
    assert rows(path, text, 1) == rows(path, text, 2)
    assert ids_of(await places.states(Query(spatial=Bbox(0, 0, 10, 60)))) == ["a", "u"]
    assert await storage.mismatches("places", 10) == []
    await check_history(places)
    await check_log(storage)


async def test_states_that_ended_before_the_library_came_are_completed(
    storage: SqliteStorage, path: Path
) -> None:
    places = Handle(storage, "places")
    await storage.close()
    shell(
        path,
        inserted("a", POINT),
        f"UPDATE feature SET geometry = {as_sql(LINE)}",
        "UPDATE feature SET properties = '{\"n\": 1}'",
        "DELETE FROM feature",
    )
    again = await SqliteStorage.open(path)
    places = Handle(again, "places")
    (tomb,) = await places.deleted()
    assert tomb.feature["geometry"] == LINE
    last = await places.published()
    found = [await places.live(AtSeq(last.seq_number - n)) for n in (3, 2, 1)]
    assert [each.feature["geometry"] for (each,) in found] == [POINT, LINE, LINE]
    assert [bool(each.xyz["qrid"]) for (each,) in found] == [True] * 3
    box = Query(spatial=Bbox(8, 50, 9, 51))
    assert ids_of(await places.states(box, AtSeq(last.seq_number - 3))) == ["a"]
    assert await places.states(box, AtSeq(last.seq_number - 2)) == []
    assert await again.mismatches("places", 10) == []
    assert rows(path, "SELECT * FROM naksha_incomplete") == []
    await again.close()


async def test_null_clears_a_geometry_and_an_absent_member_keeps_it(
    storage: SqliteStorage, path: Path
) -> None:
    places = Handle(storage, "places")
    await places.create(point("a"), point("b"), point("c"), point("d"))
    shell(
        path,
        "UPDATE feature SET geometry = NULL WHERE id = 'a'",
        "UPDATE feature SET geometry = 'null' WHERE id = 'b'",
        "UPDATE feature SET jsondata = json_set(jsondata, '$.geometry', json('null'))"
        " WHERE id = 'c'",
        "UPDATE feature SET jsondata = json_set(jsondata, '$.properties.n', 1) WHERE id = 'd'",
    )
    shapes = {state.id: state.feature["geometry"] for state in await places.live()}
    assert shapes == {"a": None, "b": None, "c": None, "d": point("d")["geometry"]}
    assert ids_of(await places.states(Query(spatial=Bbox(-180, -90, 180, 90)))) == ["d"]


async def test_properties_and_tags_have_columns(storage: SqliteStorage, path: Path) -> None:
    places = Handle(storage, "places")
    await places.create(with_xyz(point("a", n=1, m=2), tags=["x"], crid="c"))
    shell(
        path,
        "UPDATE feature SET properties = json_set(properties, '$.n', 5), tags = '[\"y\"]'",
    )
    state = await places.get("a")
    assert content(state) == point("a", n=5, m=2)
    assert (state.xyz["tags"], state.xyz["crid"], state.xyz["version"]) == (["y"], "c", 2)
    assert ids_of(await places.states(Query(tags=(("y",),)))) == ["a"]
    found = rows(path, "SELECT collection, id, properties, tags FROM feature")
    assert found == [("places", "a", '{"n":5,"m":2}', '["y"]')]


async def test_every_statement_is_one_transaction(storage: SqliteStorage, path: Path) -> None:
    """Also where several take place within one millisecond, on both kinds of views."""
    await storage.add_view("places")
    before = (await Handle(storage, "places").published()).seq_number
    texts = [f'"{n}a","{n}b","{n}c"' for n in range(20)]
    statements = [
        f"INSERT INTO feature (collection, id) SELECT 'places', value FROM json_each('[{text}]')"
        for text in texts
    ]
    shell(
        path,
        *statements,
        "UPDATE feature SET properties = '{\"n\":1}'",
        "INSERT INTO feature (collection, id) VALUES ('places', 'x'), ('places', 'y')",
        'INSERT INTO places (jsondata) VALUES (\'{"id":"v"}\'), (\'{"id":"w"}\')',
        *["UPDATE places SET jsondata = json_set(jsondata, '$.properties.k', random())"] * 20,
        "DELETE FROM places WHERE id > 'v'",
        "DELETE FROM feature WHERE id = 'v'",
    )
    log = await storage.transactions(before, 100)
    counts = [(t.signals[0].created, t.signals[0].updated, t.signals[0].deleted) for t in log]
    expected = [(3, 0, 0)] * 20 + [(0, 60, 0), (2, 0, 0), (2, 0, 0)] + [(0, 64, 0)] * 20
    assert counts == [*expected, (0, 0, 3), (0, 0, 1)]
    await check_history(Handle(storage, "places"))
    await check_log(storage)


async def test_insertions_within_one_millisecond_are_not_one(
    storage: SqliteStorage, path: Path
) -> None:
    before = (await Handle(storage, "places").published()).seq_number
    with closing(sqlite3.connect(path)) as connection, connection:
        for n in range(100):
            connection.execute(
                "INSERT INTO feature (collection, id) VALUES ('places', ?)", (f"k{n}",)
            )
    log = await storage.transactions(before, 200)
    assert [t.signals[0].created for t in log] == [1] * 100


async def test_other_conflict_clauses_change_nothing(storage: SqliteStorage, path: Path) -> None:
    places = Handle(storage, "places")
    await places.create(point("a", n=0), point("b", n=0))
    for n, clause in enumerate(("IGNORE", "REPLACE", "FAIL", "ROLLBACK", "ABORT"), 1):
        shell(path, f"UPDATE OR {clause} feature SET properties = '{{\"n\":{n}}}'")
        assert [(await places.get(id_)).feature["properties"]["n"] for id_ in "ab"] == [n, n]
        shell(path, inserted(f"k{n}", POINT).replace("INSERT", f"INSERT OR {clause}"))
    await check_history(places)
    await check_log(storage)
    assert await storage.mismatches("places", 10) == []


REFUSED = {
    inserted("a", {"type": "Circle", "coordinates": [1, 2]}): "geometry",
    inserted("a", {"type": "Point"}): "geometry",
    inserted("a", {"type": "Point", "coordinates": 5}): "geometry",
    inserted("a", {"type": "Point", "coordinates": [1, "2"]}): "geometry",
    inserted("a", {"type": "Point", "coordinates": [1, 99]}): "geometry",
    inserted("a", {"type": "Point", "coordinates": [181, 9]}): "geometry",
    inserted("a", {"type": "LineString", "coordinates": [[1, 2], [1, 2, 3, 4]]}): "geometry",
    inserted("a", {"type": "GeometryCollection", "geometries": [{"type": "X"}]}): "geometry",
    inserted("a", POINT).replace("50.25", "1e999"): "geometry",
    inserted("a", [1, 2]): "geometry",
    "INSERT INTO feature (collection, id, geometry) VALUES ('places', 'a', '{')": "geometry",
    "INSERT INTO feature (collection, id) VALUES ('none', 'a')": "collection does not exist",
    "INSERT INTO feature (id) VALUES ('a')": "collection does not exist",
    "INSERT INTO feature (collection) VALUES ('places')": "needs an id",
    "INSERT INTO feature (collection, id) VALUES ('places', '')": "needs an id",
    "INSERT INTO feature (collection, id) VALUES ('places', 'there')": "exists",
    "INSERT INTO feature (collection, id, jsondata) VALUES ('places', 'a', '{\"id\":\"b\"}')": (
        "differ"
    ),
    "INSERT INTO feature (collection, id, properties) VALUES ('places', 'a', '[]')": "properties",
    "INSERT INTO feature (collection, id, tags) VALUES ('places', 'a', '{}')": "tags",
    "INSERT INTO feature (collection, id, version) VALUES ('places', 'a', 3)": "Only id, geometry",
    "UPDATE feature SET collection = 'roads'": "Only geometry",
    "UPDATE feature SET id = 'z'": "Only geometry",
    "UPDATE feature SET txn = 1": "Only geometry",
    inserted("a", LINE).replace("places", "points"): "points only",
}


@pytest.mark.parametrize("statement", REFUSED)
async def test_refused(storage: SqliteStorage, path: Path, statement: str) -> None:
    places = Handle(storage, "places")
    await places.create(point("there"))
    info = CollectionInfo(id="points", points_only=True)
    await storage.run(lambda s: s.create_collection(info), APP)
    before = await places.published()
    with pytest.raises(ShellError, match=REFUSED[statement]):
        shell(path, statement)
    assert await places.published() == before
    assert ids_of(await places.live()) == ["there"]


async def test_geometries_invalid_for_the_library_only_are_read_as_null_with_a_mark(
    storage: SqliteStorage, path: Path
) -> None:
    """A ring that is not closed: SQL does not look that far."""
    places = Handle(storage, "places")
    broken = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}
    shell(path, inserted("a", broken, n=1), inserted("b", POINT))
    state = await places.get("a")
    assert state.feature["geometry"] is None
    assert state.feature[DAMAGED]["field"] == "geometry"
    assert "ring" in state.feature[DAMAGED]["problem"].lower()
    assert ids_of(await places.states(Query(spatial=Bbox(-180, -90, 180, 90)))) == ["b"]
    (found,) = await storage.mismatches("places", 10)
    assert found.id == "a"
    await places.update(point("a", n=2))
    assert DAMAGED not in (await places.get("a")).feature
    assert [each.txn for each in await storage.mismatches("places", 10)] == [state.txn]


async def test_a_file_with_incomplete_rows_is_not_read_only(
    storage: SqliteStorage, path: Path
) -> None:
    reader = await SqliteStorage.open(path, read_only=True)
    shell(path, inserted("a", POINT))
    with pytest.raises(ReadOnly, match="plain SQL wrote"):
        await Handle(reader, "places").live()
    assert ids_of(await Handle(storage, "places").live()) == ["a"]
    assert ids_of(await Handle(reader, "places").live()) == ["a"]
    await reader.close()


async def test_a_view_is_named_like_a_collection(storage: SqliteStorage, path: Path) -> None:
    await storage.add_view("places")
    await storage.add_view("places")
    shell(path, 'INSERT INTO places (jsondata) VALUES (\'{"id":"a"}\')')
    assert ids_of(await Handle(storage, "places").live()) == ["a"]
    shell(path, "CREATE TABLE notes (text)")
    for name in ("notes", "feature"):
        info = CollectionInfo(id=name)
        await storage.run(lambda s, info=info: s.create_collection(info), APP)  # type: ignore[misc]
        with pytest.raises(InvalidArgument, match="already"):
            await storage.add_view(name)
    await storage.run(lambda s: s.drop_collection("places"), APP)
    await storage.maintain()
    with pytest.raises(ShellError, match="no such table: places"):
        shell(path, "SELECT * FROM places")


async def test_a_client_cannot_give_the_namespace(storage: SqliteStorage, path: Path) -> None:
    shell(
        path,
        "INSERT INTO feature (collection, id, properties) VALUES "
        f"('places', 'a', '{{\"{XYZ}\": {{\"version\": 9}}, \"n\": 1}}')",
    )
    state = await Handle(storage, "places").get("a")
    assert (state.xyz["version"], state.feature["properties"]["n"]) == (1, 1)
