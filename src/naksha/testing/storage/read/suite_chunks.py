"""Conformance: states in chunks, for consumers that forward each chunk and keep none."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import chain
from typing import cast

import pytest

from naksha.model.errors import CollectionNotFound
from naksha.model.query import Bbox, Query, States
from naksha.model.state import State
from naksha.model.version import HEAD, VersionSelector
from naksha.spi.storage import Storage, StorageReader
from naksha.spi.support import chunks
from naksha.testing.storage.suite_support import (
    APP,
    Handle,
    fresh_name,
    in_order,
    point,
    raw_of,
    seq,
)

MANY = 2 * chunks.FIRST + 7


async def chunked(
    reader: StorageReader, name: str, query: Query, at: VersionSelector = HEAD
) -> list[list[State]]:
    return [states async for states in reader.chunks(name, query, at)]


def together(found: list[list[State]]) -> list[bytes]:
    return raw_of(in_order(chain.from_iterable(found)))


async def fill(places: Handle, count: int = MANY) -> None:
    await places.create(*(point(f"p{n:04}", n / 10, n / 20, n=n) for n in range(count)))


class TestChunks:
    @pytest.mark.parametrize("count", [1, chunks.FIRST, chunks.FIRST + 1, MANY])
    async def test_chunks_together_are_the_whole(self, places: Handle, count: int) -> None:
        await fill(places, count)
        whole = raw_of(await places.live())
        version = await places.published()
        for at in (HEAD, seq(version)):
            found = await chunked(places.storage, places.name, Query(), at)
            assert all(found)
            assert together(found) == whole

    @pytest.mark.parametrize("limit", [1, chunks.FIRST, chunks.FIRST + 1, MANY - 1, MANY + 1])
    async def test_a_limit_gives_any_so_many(self, places: Handle, limit: int) -> None:
        await fill(places)
        found = together(await chunked(places.storage, places.name, Query(limit=limit)))
        assert len(found) == len(set(found)) == min(limit, MANY)
        assert set(found) <= set(raw_of(await places.live()))

    async def test_small_results_come_in_one_chunk(self, places: Handle) -> None:
        await fill(places, chunks.FIRST)
        (found,) = await chunked(places.storage, places.name, Query(limit=MANY))
        assert len(found) == chunks.FIRST

    async def test_filters_and_space_are_in_force(self, places: Handle) -> None:
        await fill(places)
        for query in (
            Query(spatial=Bbox(1, 0, 9, 80), space="s"),
            Query(ids=("p0001", "p0002", "nobody")),
            Query(spatial=Bbox(1, 0, 40, 80), limit=MANY, space="s"),
        ):
            found = await chunked(places.storage, places.name, query)
            limitless = Query(ids=query.ids, spatial=query.spatial, space=query.space)
            assert together(found) == raw_of(await places.states(limitless))

    async def test_other_states_than_live_ones(self, places: Handle) -> None:
        await fill(places, 9)
        await places.update(point("p0003", n="changed"))
        await places.delete("p0004", "p0005")
        for kind in (States.ALL, States.DELETED):
            found = await chunked(places.storage, places.name, Query(states=kind))
            assert together(found) == raw_of(await places.states(Query(states=kind)))

    async def test_head_is_what_it_is_now(self, places: Handle) -> None:
        """It holds with a limit too, and before the committed state is published."""
        await fill(places, 3)
        async with places.storage.write(APP) as session:
            await session.update(places.name, [point("p0001", n="mine")])
            (seen,) = await chunked(session, places.name, Query(ids=("p0001",), limit=1))
            assert seen[0].feature["properties"]["n"] == "mine"
            (seen,) = await chunked(places.storage, places.name, Query(ids=("p0001",), limit=1))
            assert seen[0].feature["properties"]["n"] == 1
        (seen,) = await chunked(places.storage, places.name, Query(ids=("p0001",), limit=1))
        assert seen[0].feature["properties"]["n"] == "mine"

    async def test_an_empty_result_has_no_chunk(self, places: Handle) -> None:
        assert await chunked(places.storage, places.name, Query()) == []
        assert await chunked(places.storage, places.name, Query(ids=("nobody",))) == []

    async def test_a_reader_that_stops_early_holds_nothing(self, places: Handle) -> None:
        await fill(places)
        for _ in range(40):  # more often than there are connections
            found = places.storage.chunks(places.name, Query())
            async with aclosing(cast(AsyncGenerator[list[State], None], found)):
                assert await anext(found)
        assert len(await places.live()) == MANY

    @pytest.mark.parametrize(
        "name", ["nobody", "x" * 70, "naksha_collection", "spatial_ref_sys", "", 'a"b', "pg_class"]
    )
    async def test_a_collection_that_is_not_there(self, storage: Storage, name: str) -> None:
        with pytest.raises(CollectionNotFound):
            await chunked(storage, name, Query(ids=("x",)))
        with pytest.raises(CollectionNotFound):
            await storage.count(name, Query())

    async def test_not_there_does_no_harm_to_a_session(self, places: Handle) -> None:
        async with places.storage.write(APP) as session:
            await session.create(places.name, [point("before")])
            with pytest.raises(CollectionNotFound):
                await chunked(session, fresh_name(), Query())
            await session.create(places.name, [point("after")])
        assert len(await places.live()) == 2


class TestChunksOfDroppedCollections:
    async def test_dropped_collections_are_not_found(self, places: Handle) -> None:
        await fill(places, 3)
        later = 4_000_000_000_000
        await places.storage.run(lambda s: s.drop_collection(places.name, later), APP)
        for query in (Query(), Query(ids=("p0001",)), Query(limit=2)):
            with pytest.raises(CollectionNotFound):
                await chunked(places.storage, places.name, query)
        with pytest.raises(CollectionNotFound):
            await places.storage.count(places.name, Query())
        await places.storage.run(lambda s: s.restore_collection(places.name), APP)
        assert len(together(await chunked(places.storage, places.name, Query()))) == 3
