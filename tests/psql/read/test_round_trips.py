"""Round trips of reads, counted in the messages of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from naksha.model.errors import (
    CollectionNotFound,
    Expired,
    NotFound,
    NotYetPublished,
    VersionNotFound,
)
from naksha.model.geo.tiles import VectorTile
from naksha.model.query import Bbox, Query, States
from naksha.model.version import HEAD, AtSeq, AtTime, AtTxn, Version, VersionSelector
from naksha.psql import PsqlStorage
from naksha.psql.read.checked_statement import KnownFacts
from naksha.spi.storage import StorageReader, WriteSession
from naksha.spi.support import chunks
from naksha.testing.servers.postgres import PostgresCluster
from naksha.testing.storage.suite_support import point
from tests.psql.proxy import Proxy, proxy_to
from tests.psql.read.branches import new_branch, put

FIRST_DAY = datetime(2031, 3, 1, 12, tzinfo=UTC)
MANY = 3 * chunks.FIRST
QUIET_S = 0.1
TILE = VectorTile.web(0, 0, 0)
Read = Callable[[StorageReader, VersionSelector], Awaitable[object]]


class CountingProxy(Proxy):
    """Counts round trips: each begins with a message of the client after one of the server."""

    def __init__(self, socket: Path, mark: bytes) -> None:
        super().__init__(socket, mark)
        self.trips = 0
        self._answered: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await super().serve(_Requests(reader, lambda: self._request(writer)), writer)

    def _request(self, writer: asyncio.StreamWriter) -> None:
        if writer in self._answered:
            self._answered.remove(writer)
            self.trips += 1

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self._answered.add(sink)
                sink.write(data)
                await sink.drain()
        sink.close()


class _Requests(asyncio.StreamReader):
    """The messages that a client sends; calls back for each part."""

    def __init__(self, source: asyncio.StreamReader, received: Callable[[], None]) -> None:
        super().__init__()
        self._source = source
        self._received = received

    async def read(self, n: int = -1) -> bytes:
        data = await self._source.read(n)
        self._received()
        return data


class Watched:
    """A storage behind such a proxy, whose clock goes on by a day with each version."""

    def __init__(self, proxy: CountingProxy) -> None:
        self.proxy = proxy
        self.day = 0
        self.storage: PsqlStorage

    def now_ms(self) -> int:
        return int((FIRST_DAY + timedelta(days=self.day)).timestamp() * 1000)

    async def write(self, *ids: str) -> Version:
        self.day += 1
        features = [point(id, n / 1000, n / 1000, n=self.day) for n, id in enumerate(ids)]
        await put(self.storage, *features)
        return await self.storage.resolve(HEAD)

    async def trips(self, read: Awaitable[object]) -> int:
        """The round trips of a read, when nothing goes on in the background."""
        before = -1
        while before != self.proxy.trips:
            before = self.proxy.trips
            await asyncio.sleep(QUIET_S)
        await read
        return self.proxy.trips - before

    async def trips_again(self, read: Callable[[], Awaitable[object]]) -> int:
        """The same for a statement that the connection has prepared."""
        await read()
        return await self.trips(read())


@pytest.fixture
async def watched(postgres_cluster: PostgresCluster, bare: str) -> AsyncIterator[Watched]:
    name = bare.split("@/")[1].split("?", maxsplit=1)[0]
    socket = postgres_cluster.directory / f".s.PGSQL.{postgres_cluster.port}"
    async with proxy_to(socket, kind=CountingProxy) as proxy:
        assert isinstance(proxy, CountingProxy)
        watched = Watched(proxy)
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
        watched.storage = await PsqlStorage.open(dsn, "test", clock=watched)
        yield watched
        await watched.storage.close()


async def by_page(reader: StorageReader, at: VersionSelector) -> object:
    return await reader.page("roads", Query(ids=("a",)), at)


async def by_box(reader: StorageReader, at: VersionSelector) -> object:
    return [c async for c in reader.chunks("roads", Query(spatial=Bbox(0, 0, 1, 1)), at)]


async def by_empty_box(reader: StorageReader, at: VersionSelector) -> object:
    return [c async for c in reader.chunks("roads", Query(spatial=Bbox(80, 80, 81, 81)), at)]


async def by_found(reader: StorageReader, at: VersionSelector) -> object:
    return await reader.matching_states("roads", Query(), at)


async def by_count(reader: StorageReader, at: VersionSelector) -> object:
    return await reader.count("roads", Query(states=States.ALL), at)


async def by_tile(reader: StorageReader, at: VersionSelector) -> object:
    return await reader.tile("roads", Query(), at, TILE)


async def by_statistics(reader: StorageReader, at: VersionSelector) -> object:
    return await reader.statistics("roads", at)


READS: dict[str, Read] = {
    "page": by_page,
    "box": by_box,
    "empty box": by_empty_box,
    "found": by_found,
    "count": by_count,
    "tile": by_tile,
    "statistics": by_statistics,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_read_is_one_statement(watched: Watched, read: Read) -> None:
    one = await watched.write("a", "b")
    await watched.write("a")
    selectors: list[VersionSelector] = [HEAD, AtTxn(one.txn), AtSeq(one.seq_number), AtSeq(0)]
    for at in selectors:
        assert await watched.trips_again(partial(read, watched.storage, at)) == 1, at


async def test_an_author_is_planned_for(watched: Watched) -> None:
    """The statement is prepared each time, and not kept."""
    one = await watched.write("a", "b")
    query = Query(authors=("test",))
    for at in (HEAD, AtTxn(one.txn)):
        assert await watched.trips_again(partial(watched.storage.count, "roads", query, at)) == 2


async def test_an_unknown_version_is_resolved_first(watched: Watched) -> None:
    one = await watched.write("a", "b")
    two = await watched.write("a")
    await watched.storage.count("roads", Query(), AtTxn(one.txn))
    await watched.storage.resolve(AtSeq(two.seq_number))
    watched.storage._facts = KnownFacts()
    counted = watched.storage.count("roads", Query(), AtSeq(one.seq_number))
    assert await watched.trips(counted) == 2


async def test_a_time_is_resolved_first(watched: Watched) -> None:
    """Nothing is published before, if the time is earlier than the last version."""
    one = await watched.write("a", "b")
    await asyncio.sleep(0.002)
    await watched.write("a")
    at = AtTime(one.published_ms)
    assert await watched.trips_again(lambda: watched.storage.count("roads", Query(), at)) == 2


async def test_a_page_of_head_is_read_at_the_version_that_is_published_first(
    watched: Watched,
) -> None:
    await watched.write("a", "b")
    page = Query(limit=1)
    assert await watched.trips_again(lambda: watched.storage.page("roads", page)) == 2


async def test_a_state_is_one_statement(watched: Watched) -> None:
    await watched.write("a")
    ((state,),) = [c async for c in watched.storage.chunks("roads", Query(ids=("a",)))]
    await watched.write("a")
    uuid = state.heading().uuid
    assert await watched.trips_again(lambda: watched.storage.state(uuid)) == 1


async def test_a_large_result_adds_a_cursor_in_a_transaction(watched: Watched) -> None:
    one = await watched.write(*(f"r{n}" for n in range(MANY)))
    await watched.write("r0")
    selectors: list[VersionSelector] = [HEAD, AtSeq(one.seq_number)]
    for at in selectors:
        found: list[int] = []

        async def read(at: VersionSelector = at, found: list[int] = found) -> None:
            found[:] = [len(c) async for c in watched.storage.chunks("roads", Query(), at)]

        trips = await watched.trips_again(read)
        assert sum(found) == MANY
        # The first part, BEGIN, opening the cursor, all parts, COMMIT.
        assert trips == 3 + len(found) + 1


async def test_a_branch_is_one_statement_once_its_tables_are_known(watched: Watched) -> None:
    await watched.write("a", "b")
    branch = await new_branch(watched.storage)
    await put(branch.storage, point("a", n="branch"))
    at = await watched.storage.resolve(HEAD)
    selectors: list[VersionSelector] = [HEAD, AtTxn(at.txn)]
    for selector in selectors:
        counting = partial(branch.storage.count, "roads", Query(), selector)
        assert await watched.trips_again(counting) == 1


@pytest.mark.parametrize("states", States)
async def test_a_new_day_of_the_history_costs_no_second_look(
    watched: Watched, states: States
) -> None:
    """A connection notices it before it plans, and what reads no history depends on no day."""
    one = await watched.write("a", "b")
    branch = await new_branch(watched.storage)
    await put(branch.storage, point("a", n="branch"))
    query = Query(states=states)
    reads = [
        partial(reader.count, "roads", query, at)
        for reader in (watched.storage, branch.storage)
        for at in (HEAD, AtTxn(one.txn))
    ]
    for read in reads:
        await read()
    await watched.write("a")
    watched.day += 1
    await put(branch.storage, point("a", n="branch again"))
    for read in reads:
        assert await watched.trips(read()) == 1


async def test_a_session_asks_once_whether_a_collection_exists(watched: Watched) -> None:
    one = await watched.write("a", "b")
    async with watched.storage.write("app") as session:
        for at in (HEAD, AtTxn(one.txn)):
            await session.count("roads", Query(), at)
            assert await watched.trips(session.count("roads", Query(), at)) == 1


# ---- What a statement was built for has changed --------------------------------------------------


@pytest.fixture
async def other(bare: str, watched: Watched) -> AsyncIterator[PsqlStorage]:
    """Another process on the same storage, which the first one knows nothing of."""
    opened = await PsqlStorage.open(bare, "test", clock=watched)
    yield opened
    await opened.close()


async def test_a_collection_that_is_dropped_and_removed(
    watched: Watched, other: PsqlStorage
) -> None:
    version = await watched.write("a")
    selectors: list[VersionSelector] = [HEAD, AtTxn(version.txn)]

    async def is_missing() -> None:
        for at in selectors:
            for read in READS.values():
                with pytest.raises(CollectionNotFound):
                    await read(watched.storage, at)
            with pytest.raises(CollectionNotFound):
                _ = [s async for s in watched.storage.states("roads", Query(), at)]

    for at in selectors:
        await by_page(watched.storage, at)
    await other.run(lambda s: s.drop_collection("roads"), "app")
    await is_missing()
    await other.maintain(other._now_ms())
    await is_missing()


async def test_a_session_that_knows_a_collection_which_is_gone(
    watched: Watched, other: PsqlStorage
) -> None:
    """Its transaction has failed then; the next one knows better."""
    await watched.write("a")
    await watched.storage.collection("roads")
    await other.run(lambda s: s.drop_collection("roads"), "app")
    await other.maintain(other._now_ms())

    async def work(session: WriteSession) -> int:
        await session.message("m", "text")
        return await session.count("roads", Query())

    with pytest.raises(CollectionNotFound):
        await watched.storage.run(work, "app")


async def test_a_version_that_is_not_published(watched: Watched) -> None:
    version = await watched.write("a")
    cases: list[tuple[VersionSelector, type[Exception]]] = [
        (AtSeq(version.seq_number + 1), NotYetPublished),
        (AtTxn(version.txn + 1), NotYetPublished),
        (AtTxn(version.txn - 1), VersionNotFound),
        (AtTxn(0), VersionNotFound),
        (AtTime(version.published_ms + 10**9), NotYetPublished),
    ]
    for at, error in cases:
        for read in READS.values():
            with pytest.raises(error):
                await read(watched.storage, at)


async def test_a_version_that_is_removed_from_the_log(watched: Watched, other: PsqlStorage) -> None:
    one = await watched.write("a")
    selectors: list[VersionSelector] = [AtSeq(one.seq_number), AtTxn(one.txn)]
    for at in selectors:
        assert await watched.storage.count("roads", Query(), at) == 1
    watched.day += 30
    await watched.write("a")
    await other.keep_log(5)
    await other.maintain(other._now_ms())
    for at in selectors:
        for read in READS.values():
            with pytest.raises(Expired, match="the oldest version kept is"):
                await read(watched.storage, at)


async def test_a_history_that_expires(watched: Watched, other: PsqlStorage) -> None:
    one = await watched.write("a")
    await watched.write("a")
    assert await watched.storage.count("roads", Query(), AtTxn(one.txn)) == 1
    watched.day += 30
    await watched.write("a")
    await other.expire("roads", (FIRST_DAY + timedelta(days=20)).date())
    for read in READS.values():
        with pytest.raises(Expired, match="of 'roads' has expired"):
            await read(watched.storage, AtTxn(one.txn))


async def test_a_branch_that_gets_tables_and_is_dropped(
    watched: Watched, other: PsqlStorage
) -> None:
    await watched.write("a", "b")
    branch = await new_branch(watched.storage)
    base = branch.layers[1].txn
    assert base is not None
    assert await branch.storage.count("roads", Query()) == 2
    await put(other.on_branch(branch.layers), point("c"))
    assert await branch.storage.count("roads", Query()) == 3
    await other.run(lambda s: s.drop_overlay(branch.overlay), "app")
    with pytest.raises(NotFound, match=rf"in use \(overlay {branch.overlay}\)"):
        await branch.storage.count("roads", Query())
    assert await branch.storage.count("roads", Query(), AtTxn(base)) == 2
