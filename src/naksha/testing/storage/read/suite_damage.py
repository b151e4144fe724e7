"""Conformance: a stored feature that cannot be read affects no other feature."""

from __future__ import annotations

from typing import Any, Final, Protocol

import pytest
import shapely

from naksha.model.damage import DAMAGED
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import And, Bbox, Intersects, Op, Query, SortKey, States, Test
from naksha.model.state import State
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Storage
from naksha.testing.storage.suite_support import Handle, content, ids_of, point, seq
from naksha.versioning import (
    FeedFilter,
    FeedPosition,
    diff,
    line_of,
    place_of,
    read_feed,
)

WORLD: Final = Bbox(-180, -90, 180, 90)
KINDS: Final = ("geometry", "number")
"""A geometry that is not GeoJSON, and a number that is too large for any decoder."""


class StorageDamager(Protocol):
    """Damages the current state of a feature in the store, bypassing all checks."""

    async def __call__(self, storage: Storage, collection: str, id: str, kind: str) -> None: ...


def is_marked(feature: dict[str, Any]) -> bool:
    mark = feature.get(DAMAGED)
    if mark is None:
        return False
    assert mark["field"] in ("geometry", "document")
    assert mark["problem"]
    return True


async def damaged(places: Handle, damage_storage: StorageDamager, kind: str) -> State:
    """A damaged state between two intact ones."""
    await places.create(*(point(id, n=1, text="good") for id in ("a", "bad", "z")))
    await damage_storage(places.storage, places.name, "bad", kind)
    return await places.get("bad")


@pytest.mark.parametrize("kind", KINDS)
class TestDamage:
    async def test_damaged_features_are_read_and_marked(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        old = await damaged(places, damage_storage, kind)
        first = await places.published()
        await places.update(point("a", n=2, text="good"))
        assert is_marked(old.feature)
        assert (old.feature["geometry"] is None) == (kind == "geometry")
        for at in (HEAD, seq(first)):
            await self._check_reads(places, at)
        assert is_marked((await places.storage.state(old.uuid)).feature)

    async def _check_reads(self, places: Handle, at: VersionSelector) -> None:
        where = Test(("properties", "n"), Op.CONTAINS, 1)
        queries = (
            Query(),
            Query(states=States.ALL),
            Query(limit=10, space="s"),
            Query(spatial=WORLD),
            Query(where=And((Test(("properties", "n"), Op.GT, 0), where))),
        )
        for query in queries:
            found = await places.states(query, at)
            assert "bad" in ids_of(found), query
            assert [s.id for s in found if is_marked(s.feature)] == ["bad"]
        storage, name = places.storage, places.name
        around = Intersects(shapely.to_wkb(shapely.box(0, 0, 90, 89)))
        assert {"a", "z"} <= set(ids_of(await places.states(Query(spatial=around), at)))
        kinds = Query(where=Test(("geometry", "type"), Op.EQ, "Point"))
        assert {"a", "z"} <= set(ids_of(await places.states(kinds, at)))
        keys = (SortKey(("properties", "n")),)
        assert len(await storage.matching_states(name, Query(limit=10), at, sort=keys)) == 3
        assert await storage.count(name, Query(), at) == 3
        assert await storage.tile(name, Query(), at, VectorTile.web(0, 0, 0, layer="x"))
        rows = [
            row
            for split in await storage.plan(name, Query(), at)
            async for batch in storage.read(split)
            for row in batch.to_pylist()
        ]
        assert sorted(row["id"] for row in rows) == ["a", "bad", "z"]

    async def test_statistics_and_maintenance_go_on(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        await damaged(places, damage_storage, kind)
        assert (await places.storage.statistics(places.name)).count.value == 3
        await places.storage.maintain()

    async def test_it_is_reported(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        await damaged(places, damage_storage, kind)
        found = await places.storage.mismatches(places.name, 10)
        assert {mismatch.id for mismatch in found} == {"bad"}

    async def test_writing_it_mends_it(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        before = await damaged(places, damage_storage, kind)
        await places.update(point("bad", n=1, text="good"))
        mended = await places.get("bad")
        assert content(mended) == point("bad", n=1, text="good")
        assert mended.xyz["puuid"] == before.uuid
        assert await places.storage.mismatches(places.name, 10) != []  # the old state stays damaged
        assert is_marked((await places.storage.state(before.uuid)).feature)

    async def test_it_can_be_deleted_and_restored(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        await damaged(places, damage_storage, kind)
        (outcome,) = await places.delete("bad")
        assert outcome.state is not None
        assert outcome.state.feature["id"] == "bad"
        assert ids_of(await places.deleted()) == ["bad"]
        (outcome,) = await places.restore("bad")
        assert outcome.state is not None
        assert ids_of(await places.live()) == ["a", "bad", "z"]
        await places.update(point("bad", n=5, text="good"))
        assert content(await places.get("bad")) == point("bad", n=5, text="good")

    async def test_differences_and_the_feed_go_on(
        self, places: Handle, damage_storage: StorageDamager, kind: str
    ) -> None:
        storage = places.storage
        begin = await places.published()
        await damaged(places, damage_storage, kind)
        between = await places.published()
        await places.update(point("bad", n=2, text="good"), point("a", n=2, text="good"))
        end = await places.published()
        for old, new in ((begin, between), (between, end), (begin, end)):
            left = await place_of(storage, str(old.seq_number))
            right = await place_of(storage, str(new.seq_number))
            found = [change async for change in diff(left, right, places.name)]
            assert "bad" in [change.id for change in found]
        page = await read_feed(
            await line_of(storage, "main"),
            FeedPosition(begin.seq_number),
            FeedFilter(collections=(places.name,)),
            transactions_max=100,
            features_max=100,
        )
        told = [
            (change.action, change.state.id, is_marked(change.state.feature))
            for item in page.items
            for change in item.changes
        ]
        assert sorted(told) == [
            ("CREATE", "a", False),
            ("CREATE", "bad", True),
            ("CREATE", "z", False),
            ("UPDATE", "a", False),
            ("UPDATE", "bad", False),
        ]
        assert page.position.seq_number == page.last
