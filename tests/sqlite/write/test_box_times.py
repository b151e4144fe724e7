"""Times in the tree of HEAD: when a state began, or earlier, never later."""

from __future__ import annotations

from pathlib import Path

from naksha.model.query import Bbox, Query
from naksha.model.version import HEAD, AtSeq
from naksha.sqlite import SqliteStorage
from naksha.testing.storage.branch_case import branch_of
from naksha.testing.storage.suite_support import Handle, ids_of, point
from tests.sqlite.support import rows, shell

TIMES = """SELECT s.id, b.since - s.ord FROM naksha_box b JOIN naksha_head s ON s.n = b.n
 ORDER BY s.id, s.n"""
WORLD = Query(spatial=Bbox(-180, -90, 180, 90))


async def check(handle: Handle) -> None:
    """At every version, the box of the world finds the features that a full extract does."""
    last = await handle.storage.resolve(HEAD)
    for number in range(1, last.seq_number + 1):
        everything = await handle.live(AtSeq(number))
        placed = [state for state in everything if state.feature["geometry"] is not None]
        assert ids_of(await handle.states(WORLD, AtSeq(number))) == ids_of(placed)
    assert await handle.storage.mismatches(handle.name, 10) == []


async def test_times_follow_writes_of_the_library(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    features = [point(f"k{n}", n, n) for n in range(4)]
    await roads.create(*features, {**point("none", 0, 0), "geometry": None})
    assert rows(path, TIMES) == [(f"k{n}", 0) for n in range(4)]
    await roads.update(point("k0", 5, 5), point("k1", 1, 1, n=7), point("none", 6, 6))
    assert rows(path, TIMES) == [("k0", 0), ("k1", -1), ("k2", 0), ("k3", 0), ("none", 0)]
    await roads.update(point("k1", 7, 7), {**point("none", 0, 0), "geometry": None})
    await roads.delete("k2", "k3")
    await roads.restore("k2")
    await roads.create(features[3])
    assert rows(path, TIMES) == [("k0", 0), ("k1", 0), ("k2", 0), ("k3", 0)]
    await check(roads)


async def test_times_follow_writes_on_a_branch(storage: SqliteStorage, path: Path) -> None:
    """A branch copies the states that it changes, with their times."""
    roads = Handle(storage, "roads")
    await roads.create(*(point(f"k{n}", n, n) for n in range(3)))
    there = (await branch_of(storage)).on(roads)
    await there.update(point("k0", 5, 5), point("k1", 1, 1, n=7))
    assert rows(path, TIMES) == [("k0", 0), ("k0", 0), ("k1", 0), ("k1", -1), ("k2", 0)]
    await check(roads)
    found = await there.states(Query(spatial=Bbox(4, 4, 6, 6)), AtSeq(3))
    assert ids_of(found) == ["k0"]


async def test_states_of_the_shell_begin_at_any_time(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("k0", 0, 0), point("k1", 1, 1))
    await storage.close()
    shell(
        path,
        """UPDATE roads SET geometry = '{"type":"Point","coordinates":[5,5]}' WHERE id = 'k0'""",
        """INSERT INTO roads (id, geometry)
           VALUES ('k2', '{"type":"Point","coordinates":[2,2]}')""",
    )
    again = await SqliteStorage.open(path)
    try:
        await check(Handle(again, "roads"))
        since = "SELECT s.id, b.since FROM naksha_box b JOIN naksha_head s ON s.n = b.n ORDER BY 1"
        assert rows(path, since) == [("k0", 0), ("k1", 2), ("k2", 0)]
    finally:
        await again.close()
