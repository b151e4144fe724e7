"""The service under concurrent writes and requests, on real storages."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from naksha.hub.tiles.cell_tail import TileArea
from naksha.hub.tiles.memory_tiles import MemoryTiles
from naksha.hub.tiles.tile_basis import TileBasis, WatchedCollection
from naksha.hub.tiles.tile_key import TileVersion, validator_of
from naksha.hub.tiles.tile_service import TileAnswer, TileOutcome, TileService, TileSubject
from naksha.model.collection import CollectionInfo
from naksha.model.query import Bbox, Query
from naksha.spi.storage import Storage
from naksha.sqlite.storage import SqliteStorage
from tests.hub.handlers.support import HubUnderTest

BOX = Bbox(13.0, 52.0, 13.02, 52.02)
KEY = "0" * 40
Write = Callable[..., Awaitable[None]]
Answer = TileAnswer[str]


class Roads:
    """A collection, and a service that renders the ids of a box as a tile."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.counts: Counter[TileOutcome] = Counter()
        self.service = TileService(MemoryTiles(10**6), observe=self._count)
        watched = WatchedCollection(storage, storage, "roads")
        self.subject = TileSubject(KEY, TileBasis((), (watched,)), TileArea(BOX), is_small=True)
        self.renderings = 0

    def _count(self, outcome: TileOutcome) -> None:
        self.counts[outcome] += 1

    async def write(self, id: str, lon: float = 13.01, lat: float = 52.01) -> None:
        geometry = {"type": "Point", "coordinates": [lon, lat]}
        feature = {"type": "Feature", "id": id, "geometry": geometry, "properties": {}}
        async with self.storage.write("tests") as session:
            await session.upsert("roads", [feature])

    async def rendered(self) -> bytes:
        self.renderings += 1
        found = [state.id async for state in self.storage.states("roads", Query(spatial=BOX))]
        return ",".join(sorted(found)).encode()

    async def answer(self, tag: str | None = None, render: Any = None) -> Answer:
        return await self.service.answer(self.subject, tag, render or self.rendered)


@pytest.fixture
async def roads(any_hub: HubUnderTest) -> Roads:
    """A collection with one feature."""
    storage = await any_hub.realm.storage("default")
    async with storage.write("tests") as session:
        await session.create_collection(CollectionInfo(id="roads"))
    found = Roads(storage)
    await found.write("a")
    return found


def body(answer: Answer) -> bytes:
    assert answer.tile is not None
    return answer.tile.body


async def test_a_change_while_a_tile_is_rendered_is_not_lost(roads: Roads) -> None:
    async def overtaken() -> bytes:
        made = await roads.rendered()
        await roads.write("b")
        return made

    first = await roads.answer(render=overtaken)
    assert (body(first), first.validator) == (b"a", None)
    assert roads.counts == {TileOutcome.CHANGING: 1}
    second = await roads.answer()
    assert body(second) == b"a,b"
    assert second.validator is not None


async def test_a_change_elsewhere_while_a_tile_is_rendered_does_not_matter(roads: Roads) -> None:
    async def accompanied() -> bytes:
        made = await roads.rendered()
        await roads.write("far", -70, -30)
        return made

    first = await roads.answer(render=accompanied)
    assert first.validator is not None
    assert body(await roads.answer()) == b"a"
    assert (await roads.answer(first.validator)).is_unmodified
    assert roads.renderings == 1


async def test_requests_at_the_same_time_render_once(roads: Roads) -> None:
    answers = await asyncio.gather(*(roads.answer() for _ in range(20)))
    assert {body(one) for one in answers} == {b"a"}
    assert roads.renderings == 1


async def test_a_request_after_a_write_never_shares_a_rendering_from_before(roads: Roads) -> None:
    has_read, goes_on = asyncio.Event(), asyncio.Event()

    async def slow() -> bytes:
        made = await roads.rendered()
        has_read.set()
        await goes_on.wait()
        return made

    first = asyncio.create_task(roads.answer(render=slow))
    await has_read.wait()
    await roads.write("b")
    later = [asyncio.create_task(roads.answer()) for _ in range(5)]
    await asyncio.sleep(0.05)
    goes_on.set()
    assert {body(await one) for one in later} == {b"a,b"}
    assert (await first).validator is None


async def test_waiting_requests_go_on_when_a_rendering_fails(roads: Roads) -> None:
    goes_on = asyncio.Event()

    async def failing() -> bytes:
        await goes_on.wait()
        raise OSError("no more")

    first = asyncio.create_task(roads.answer(render=failing))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(roads.answer())
    cancelled = asyncio.create_task(roads.answer())
    await asyncio.sleep(0.05)
    cancelled.cancel()
    goes_on.set()
    with pytest.raises(OSError, match="no more"):
        await first
    assert body(await second) == b"a"


async def test_a_streamed_tile_is_not_cached(roads: Roads) -> None:
    async def streamed() -> str:
        return "a stream"

    answer = await roads.answer(render=streamed)
    assert (answer.other, answer.validator, answer.is_unmodified) == ("a stream", None, False)
    assert roads.counts == {TileOutcome.TOO_LARGE: 1}


async def test_a_version_of_another_process_is_checked(roads: Roads) -> None:
    """Also one from before the process started, and one that does not exist yet."""
    first = await roads.answer()
    assert first.validator is not None
    await roads.write("far", -70, -30)
    other = Roads(roads.storage)
    assert (await other.answer(first.validator)).is_unmodified
    assert (await other.answer(first.validator)).is_unmodified
    assert other.renderings == 0
    future = validator_of(KEY, TileVersion((9_000_000_000_000_000_000,)))
    assert body(await other.answer(future)) == b"a"
    await roads.write("b")
    late = Roads(roads.storage)
    assert body(await late.answer(first.validator)) == b"a,b"


async def test_a_change_that_waits_for_its_publication_matters_inside(roads: Roads) -> None:
    first = await roads.answer()
    async with roads.storage.write("tests") as session:
        other: dict[str, Any] = {"type": "Feature", "id": "x", "geometry": None, "properties": {}}
        await session.create("roads", [other])
        assert session.txn is not None
        await roads.write("far", -70, -30)
        log = await roads.storage.cell_log(0)
        assert not log.is_settled
        assert (await roads.answer(first.validator)).is_unmodified
        await roads.write("b")
        roads.counts.clear()
        for tag in (None, first.validator):
            answer = await roads.answer(tag)
            assert (body(answer), answer.validator) == (b"a,b", None)
        assert roads.counts == {TileOutcome.UNSETTLED: 2}
    settled = await roads.answer(first.validator)
    assert body(settled) == b"a,b"
    assert settled.validator is not None


async def test_a_tile_with_an_unpublished_change_has_no_version(roads: Roads) -> None:
    async def overtaken() -> bytes:
        await roads.write("b")
        return await roads.rendered()

    async with roads.storage.write("tests") as session:
        other: dict[str, Any] = {"type": "Feature", "id": "x", "geometry": None, "properties": {}}
        await session.create("roads", [other])
        answer = await roads.answer(render=overtaken)
        assert (body(answer), answer.validator) == (b"a,b", None)
        assert roads.counts == {TileOutcome.UNSETTLED: 1}


async def test_the_changes_of_a_closed_storage_are_forgotten(tmp_path: Path) -> None:
    storage = await SqliteStorage.open(tmp_path / "roads.naksha")
    service = TileService(MemoryTiles(10**6))
    assert (await service.tail(storage).now()).is_settled
    tail = weakref.ref(service.tail(storage))
    await storage.close()
    del storage
    gc.collect()
    assert tail() is None


@pytest.mark.parametrize("is_fixed", [False, True])
async def test_one_request_goes_on_for_all_when_a_rendering_is_cancelled(
    roads: Roads, is_fixed: bool
) -> None:
    if is_fixed:
        roads.subject = roads.subject._replace(basis=TileBasis(("1",)))

    async def slow() -> bytes:
        await asyncio.sleep(60)
        return b""

    first = asyncio.create_task(roads.answer(render=slow))
    await asyncio.sleep(0.05)
    later = [asyncio.create_task(roads.answer()) for _ in range(20)]
    await asyncio.sleep(0.05)
    first.cancel()
    assert {body(one) for one in await asyncio.gather(*later)} == {b"a"}
    assert roads.renderings == 1
