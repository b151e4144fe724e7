"""Conformance: queries without content, sorted by any property; and parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import shapely

from naksha.model import query as q
from naksha.model.errors import CollectionNotFound, InvalidArgument, LimitExceeded
from naksha.model.query import Query, QueryPart, SortKey, States
from naksha.model.state import MatchingState, State
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.testing.models import strategies
from naksha.testing.models.json_values import ABSENT, get_path
from naksha.testing.storage.read.suite_query import Zoo
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    feature,
    fresh_name,
    ids_of,
    new_collection,
    point,
    seq,
)

VALUES: Sequence[Any] = (
    *strategies.SMALL_VALUES,
    *(2**53 + 1, 2**53, -(2**63), 2**63 - 1, 2**64, 1e22, -0.5, 1e-300),
    *("Z", "ä", "\ue000", "\U00010000"),
)
BY_V = SortKey(("properties", "v"))
BACK = SortKey(("properties", "v"), descending=True)
BY_ODD = SortKey(("properties", 'a "b" \\', "c"))
BY_GROUP = SortKey(("properties", "group"))


@pytest.fixture(scope="class")
async def sortable(storage: Storage) -> Handle:
    """A collection with two features per value, and some without the property."""
    handle = await new_collection(storage)
    made = [
        point(f"{round_}-{n:02}", n, n, v=value, group=n % 3, **{'a "b" \\': {"c": -n}})
        for round_ in "ab"
        for n, value in enumerate(VALUES)
    ]
    await handle.create(*made, feature("absent"), feature("list", v=[0]))
    return handle


def _rank(value: Any) -> int:
    if value is None or value is ABSENT:
        return 4
    if isinstance(value, bool):
        return 2
    return 0 if isinstance(value, int | float) else 1 if isinstance(value, str) else 3


def _compared(keys: Sequence[SortKey], one: State, other: State) -> int:
    for key in keys:
        values = [get_path(state.feature, key.path) for state in (one, other)]
        ranks = [_rank(value) for value in values]
        if 4 in ranks and ranks[0] != ranks[1]:
            return ranks[0] - ranks[1]
        if ranks[0] == ranks[1] and ranks[0] > 2:
            continue
        if (ranks[0], values[0]) != (ranks[1], values[1]):
            is_less = (ranks[0], values[0]) < (ranks[1], values[1])
            return -1 if is_less != key.descending else 1
    return -1 if one.id < other.id else 1


def in_order_of(states: Sequence[State], keys: Sequence[SortKey]) -> list[State]:
    return sorted(states, key=functools.cmp_to_key(functools.partial(_compared, keys)))


async def paged(
    reader: StorageReader,
    name: str,
    query: Query,
    keys: Sequence[SortKey] = (),
    at: VersionSelector = HEAD,
) -> list[MatchingState]:
    """Return the whole result, read page by page."""
    pages: list[MatchingState] = []
    after: MatchingState | None = None
    while some := await reader.matching_states(name, query, at, sort=keys, after=after):
        assert query.limit is not None
        assert len(some) <= query.limit
        pages += some
        after = some[-1]
    return pages


class TestMatchingStates:
    @pytest.mark.parametrize("limit", [1, 7, 1000])
    @pytest.mark.parametrize(
        "keys",
        [
            (),
            (BY_V,),
            (BACK,),
            (BY_GROUP, BACK),
            (BACK, BY_GROUP),
            (BY_ODD,),
            (SortKey(("id",), True),),
        ],
        ids=["id", "v", "back", "group-back", "back-group", "odd", "id-back"],
    )
    async def test_every_order_page_by_page(
        self, sortable: Handle, keys: tuple[SortKey, ...], limit: int
    ) -> None:
        states = await sortable.live()
        wanted = in_order_of(states, keys)
        whole = await sortable.storage.matching_states(sortable.name, Query(), sort=keys)
        assert [one.id for one in whole] == ids_of(wanted)
        assert [one.uuid for one in whole] == [state.uuid for state in wanted]
        assert await paged(sortable.storage, sortable.name, Query(limit=limit), keys) == whole

    async def test_values_come_along(self, places: Handle) -> None:
        values: list[Any] = [None, 1, 'ü"', True, [1], {"a": 1}]
        await places.create(*(feature(f"{n}", v=value) for n, value in enumerate(values)))
        found = await places.storage.matching_states(places.name, Query(), sort=(BY_V, BY_GROUP))
        assert {one.id: one.values for one in found} == {
            "0": (None, None),
            "1": ("1", None),
            "2": ('"ü\\""', None),
            "3": ("true", None),
            "4": ("[]", None),
            "5": ("[]", None),
        }

    async def test_filters_hold(self, zoo: Zoo) -> None:
        box = shapely.to_wkb(shapely.box(-90, -45, 90, 45))
        for query in (
            Query(ids=("f01", "f02", "f04")),
            Query(authors=("ann",)),
            Query(states=States.DELETED),
            Query(spatial=q.Bbox(90, -90, -90, 90)),
            Query(spatial=q.Intersects(box)),
            Query(spatial=q.Intersects(box), limit=3),
        ):
            for keys in ((), (BY_V,)):
                for at in zoo.versions:
                    wanted = in_order_of(await zoo.states(query, at), keys)[: query.limit]
                    found = await zoo.storage.matching_states(zoo.name, query, at, sort=keys)
                    assert [(one.id, one.uuid) for one in found] == [(s.id, s.uuid) for s in wanted]

    async def test_at_a_version_and_inside_a_session(self, places: Handle) -> None:
        await places.create(*(feature(key, v=n) for n, key in enumerate("cab")))
        before = await places.published()
        await places.update(feature("a", v=9))

        async def ids(reader: StorageReader, at: VersionSelector = HEAD) -> list[str]:
            return [one.id for one in await paged(reader, places.name, Query(limit=2), (BY_V,), at)]

        assert await ids(places.storage, seq(before)) == ["c", "a", "b"]
        assert await ids(places.storage) == ["c", "b", "a"]
        async with places.storage.write(APP) as session:
            await session.create(places.name, [feature("new", v=-1)])
            assert await ids(session) == ["new", "c", "b", "a"]
            assert await ids(places.storage) == ["c", "b", "a"]

    async def test_unsupported_queries_are_refused(self, places: Handle) -> None:
        storage = places.storage
        with pytest.raises(CollectionNotFound):
            await storage.matching_states(fresh_name(), Query(), sort=(BY_V,))
        for states in (Query(states=States.ALL), Query(replaced_since=0)):
            with pytest.raises(InvalidArgument):
                await storage.matching_states(places.name, states)
        with pytest.raises(LimitExceeded):
            await storage.matching_states(places.name, Query(), sort=(BY_V,) * 9)
        for values in ((), ("{",), ("1e999999",), ("1e-999999",), ('"\\u0000"',), ("NaN",)):
            with pytest.raises(InvalidArgument):
                after = MatchingState("x", "", values)
                await storage.matching_states(
                    places.name, Query(limit=1), sort=(BY_V,), after=after
                )


class TestParts:
    @pytest.mark.parametrize("total", [1, 2, 3, 16, 17, 1000])
    async def test_parts_together_are_the_whole(self, sortable: Handle, total: int) -> None:
        numbers = range(1, total + 1) if total < 20 else (1, 2, 500, 1000)
        states = await sortable.live()
        for number in numbers:
            part = QueryPart(number, total)
            wanted = [state.id for state in states if part.has(state.id)]
            query = Query(part=part)
            assert ids_of(await sortable.states(query)) == wanted
            assert await sortable.storage.count(sortable.name, query) == len(wanted)
            found = await paged(sortable.storage, sortable.name, Query(part=part, limit=9))
            assert [one.id for one in found] == wanted
        assert sum(QueryPart(n, total).has(states[0].id) for n in range(1, total + 1)) == 1

    async def test_parts_of_versions_and_of_what_is_deleted(self, zoo: Zoo) -> None:
        for kind in States:
            for at in zoo.versions:
                states = await zoo.states(Query(states=kind), at)
                for number in (1, 2, 3):
                    part = QueryPart(number, 3)
                    wanted = [state.uuid for state in states if part.has(state.id)]
                    found = await zoo.states(Query(states=kind, part=part), at)
                    assert [state.uuid for state in found] == wanted

    def test_a_part_must_be_one(self) -> None:
        for number, total in ((0, 2), (3, 2), (1, 1001), (-1, 5)):
            with pytest.raises(InvalidArgument):
                QueryPart(number, total)
