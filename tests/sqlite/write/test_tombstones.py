"""Indices of tombstones, kept current for every kind of writer."""

from __future__ import annotations

from pathlib import Path

from naksha.model.query import Bbox, Query, States
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import Handle, ids_of, point, with_xyz
from tests.sqlite.support import rows, shell

BOX = Query(spatial=Bbox(0, 0, 10, 10), states=States.DELETED)
TAG = Query(tags=(("t",),), states=States.DELETED)


async def check(handle: Handle, *ids: str) -> None:
    """All ways to ask give the same tombstones."""
    assert ids_of(await handle.deleted()) == [*ids]
    for query in (BOX, TAG):
        assert ids_of(await handle.states(query)) == [*ids]


async def test_tombstones_follow_writes_of_the_library(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    features = [with_xyz(point(f"k{n}", n, n), tags=["t", f"t{n}"]) for n in range(5)]
    await roads.create(*features)
    await roads.delete("k0", "k1", "k2", "k3")
    await check(roads, "k0", "k1", "k2", "k3")
    await roads.restore("k0")
    await roads.create(features[1])
    await roads.purge("k2")
    await check(roads, "k3")
    assert rows(path, "SELECT tag FROM naksha_gone_tag") == [("t",), ("t3",)]
    assert rows(path, "SELECT count(*) FROM naksha_gone") == [(1,)]


async def test_tombstones_follow_writes_on_a_branch(storage: SqliteStorage) -> None:
    roads = Handle(storage, "roads")
    await roads.create(*(with_xyz(point(f"k{n}", n, n), tags=["t"]) for n in range(4)))
    await roads.delete("k0", "k1")
    there = (await branch_of(storage)).on(roads)
    await there.restore("k0")
    await there.delete("k2")
    await check(there, "k1", "k2")
    await check(roads, "k0", "k1")


async def test_tombstones_follow_writes_of_the_shell(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(*(with_xyz(point(f"k{n}", n, n), tags=["t"]) for n in range(4)))
    await storage.close()
    shell(path, "DELETE FROM roads WHERE id < 'k3'")
    shell(path, """INSERT INTO roads (jsondata) VALUES ('{"id": "k1"}')""")
    again = await SqliteStorage.open(path)
    await check(Handle(again, "roads"), "k0", "k2")
    await again.close()


async def test_a_removed_collection_takes_them_along(storage: SqliteStorage, path: Path) -> None:
    for name in ("roads", "places"):
        handle = Handle(storage, name)
        await handle.create(*(with_xyz(point(f"k{n}", n, n), tags=["t"]) for n in range(4)))
        await handle.delete("k0")
    await storage.run(lambda s: s.drop_collection("roads", delete_at=1), "app")
    await storage.maintain()
    for table in ("head", "del", "hst", "tag", "gone_tag", "past_tag", "box", "gone", "past"):
        found = rows(path, f"SELECT DISTINCT n >> 40 FROM naksha_{table}")
        assert found == [(2,)], table
    assert rows(path, "SELECT * FROM naksha_trash") == []
