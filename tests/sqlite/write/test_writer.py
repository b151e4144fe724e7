"""The writer thread: groups, idle sessions, other processes, failures beside successful writes."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from naksha.model import limits
from naksha.model.errors import (
    CollectionNotFound,
    Expired,
    FeatureExists,
    NakshaError,
    Retryable,
    Unavailable,
)
from naksha.model.query import Bbox, Query
from naksha.model.version import HEAD, AtTime, AtTxn
from naksha.spi.storage import WriteSession
from naksha.sqlite import SqliteStorage
from naksha.sqlite.maintenance import rounds
from naksha.sqlite.write.writer import GRACE_LONG_S, WriterThread
from naksha.testing.storage.suite_support import DAY_MS, Handle, ids_of, point
from naksha.testing.storage.write.suite_concurrency import check_history, check_log

WRITERS = 40


async def test_concurrent_writes_are_committed_together(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    original = WriterThread._commit_group

    def counted(self: WriterThread) -> None:
        if self._ended:
            commits.append(len(self._ended))
        original(self)

    monkeypatch.setattr(WriterThread, "_commit_group", counted)
    roads = Handle(storage, "roads")
    await asyncio.gather(*(roads.create(point(f"k{n}")) for n in range(WRITERS)))
    assert sum(commits) == WRITERS
    assert len(commits) < WRITERS / 3
    assert len(await roads.live()) == WRITERS
    await check_log(storage)


async def test_a_failed_operation_does_not_fail_others(storage: SqliteStorage) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("taken"))
    calls = [roads.create(point(f"k{n}" if n % 3 else "taken")) for n in range(WRITERS)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [n for n, result in enumerate(results) if isinstance(result, FeatureExists)]
    assert failed == list(range(0, WRITERS, 3))
    assert len(await roads.live()) == WRITERS - len(failed) + 1
    await check_log(storage)


async def test_an_idle_session_lets_others_in(storage: SqliteStorage) -> None:
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    async with storage.write("app") as session:
        first = await session.create("roads", [point("mine")], returning=True)
        await places.create(point("yours"))
        assert ids_of(await places.live()) == ["yours"]
        assert await roads.live() == []
        # It goes on as if nothing had been: what it wrote is there, under the same id.
        (seen,) = [s async for s in session.states("roads", Query())]
        assert first[0].state is not None
        assert seen.raw == first[0].state.raw
        await session.create("roads", [point("more")])
    assert ids_of(await roads.live()) == ["mine", "more"]
    log = await storage.transactions(1)
    assert [t.txn for t in log] == sorted(t.txn for t in log)
    assert {s.txn for s in await roads.live()} == {log[0].txn}
    await check_log(storage)


async def test_an_idle_session_gives_the_file_free(storage: SqliteStorage, path: Path) -> None:
    async with storage.write("app") as session:
        await session.create("roads", [point("mine")])
        other = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        await session.create("roads", [point("more")])
    assert len(await Handle(storage, "roads").live()) == 2


async def test_many_sessions_that_wait_for_each_other(storage: SqliteStorage) -> None:
    """Each is open all the time, and writes whenever it is its turn."""
    roads = Handle(storage, "roads")
    async with (
        storage.write("one") as one,
        storage.write("two") as two,
        storage.write("three") as three,
    ):
        for n in range(4):
            for name, session in (("one", one), ("two", two), ("three", three)):
                await session.create("roads", [point(f"{name} {n}")])
    assert len(await roads.live()) == 12
    chains = await check_history(roads)
    assert len(chains) == 12
    await check_log(storage)


async def test_two_that_want_the_same(storage: SqliteStorage) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("x", n=0))
    with pytest.raises(Retryable):
        async with storage.write("one") as one:
            await one.update("roads", [point("x", n=1)])
            async with storage.write("two") as two:
                await two.update("roads", [point("x", n=2)])
            await one.create("roads", [point("y")])
    (left,) = await roads.live()
    assert left.feature["properties"]["n"] == 2
    await check_history(roads)
    await check_log(storage)


async def test_a_closed_storage_raises_an_error_that_says_so(storage: SqliteStorage) -> None:
    await storage.close()
    await storage.close()
    with pytest.raises(Unavailable, match="closed"):
        await Handle(storage, "roads").create(point("x"))
    with pytest.raises(Unavailable, match="closed"):
        await Handle(storage, "roads").live()


async def test_readers_do_not_wait_for_a_writer(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("x"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(5):
        assert ids_of(await roads.live()) == ["x"]
    other.execute("ROLLBACK")
    other.close()


async def test_a_task_that_fails_gives_the_file_free(storage: SqliteStorage, path: Path) -> None:
    with pytest.raises(CollectionNotFound):
        await storage.pin("x", await storage.resolve(HEAD), "nothing")
    other = sqlite3.connect(path, timeout=1, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.close()


async def test_a_task_whose_commit_fails_raises(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("naksha.sqlite.write.writer.publish", full)
    with pytest.raises(NakshaError, match="full"):
        await storage.pin("x", await storage.resolve(HEAD))
    monkeypatch.undo()
    assert await storage._read(lambda c: c.execute("SELECT * FROM naksha_pin").fetchall()) == []
    await Handle(storage, "roads").create(point("x"))


async def test_the_thread_survives_what_breaks_in_it(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    roads = Handle(storage, "roads")

    def broken(_: WriterThread) -> None:
        raise RuntimeError("broken")

    async with storage.write("app") as session:
        await session.create("roads", [point("mine")])
        monkeypatch.setattr(WriterThread, "_yield_writer", broken)
        await asyncio.sleep(0.4)
        monkeypatch.undo()
        await session.create("roads", [point("more")])
    await roads.create(point("x"))
    assert ids_of(await roads.live()) == ["mine", "more", "x"]
    await check_log(storage)


async def test_closing_while_others_wait(path: Path, storage: SqliteStorage) -> None:
    second = await SqliteStorage.open(path)
    roads = Handle(second, "roads")
    calls = [roads.create(point(f"k{n}")) for n in range(5)]
    async with asyncio.timeout(20):
        results = await asyncio.gather(
            *calls, second.close(), second.close(), roads.create(point("late")),
            return_exceptions=True,
        )  # fmt: skip
    done = {f"k{n}" for n in range(5) if not isinstance(results[n], BaseException)}
    assert all(isinstance(r, Unavailable) for r in results if isinstance(r, BaseException))
    assert done <= set(ids_of(await Handle(storage, "roads").live()))


async def test_numbers_of_a_session_that_yielded_stay_reserved(
    storage: SqliteStorage, path: Path
) -> None:
    other = await SqliteStorage.open(path)
    roads, others = Handle(storage, "roads"), Handle(other, "roads")
    await roads.create(point("first"))
    for _ in range(3):
        with pytest.raises(FeatureExists):
            await roads.create(point("first"))
    uuids: list[str | None] = []
    try:
        async with storage.write("app") as session:
            (mine,) = await session.create("roads", [point("mine")])
            uuids.append(mine.uuid)
            await asyncio.sleep(0.5)
            uuids += [o.uuid for o in await others.create(point("f", n=1))]
            uuids += [o.uuid for o in await others.update(point("f", n=2))]
    except Retryable:
        uuids.pop(0)
    assert len(set(uuids)) == len(uuids)
    await roads.update(point("f", n=3))
    await check_history(roads)
    await check_log(storage)
    await other.close()


async def test_done_again_it_must_give_the_same(storage: SqliteStorage) -> None:
    """A transaction with a lower number creates a feature that this one had reported created."""
    roads = Handle(storage, "roads")
    with pytest.raises(Retryable):
        async with storage.write("two") as two, storage.write("one") as one:
            await one.create("places", [point("number")])
            (told,) = await two.upsert("roads", [point("g", n=2)])
            assert told.action == "CREATED"
            await one.create("roads", [point("g", n=1)])
            # The inner one commits first, then the outer one is done again.
    await check_history(roads)
    await check_log(storage)


async def test_a_cursor_whose_version_is_gone(storage: SqliteStorage, path: Path) -> None:
    roads = Handle(storage, "roads")
    await roads.create(point("a"), point("b", n=1))
    query = Query(spatial=Bbox(-180, -90, 180, 90), limit=1)
    page = await storage.page("roads", query)
    await roads.update(point("b", n=2))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("UPDATE naksha_storage SET tx_log_days = 1")
    other.close()
    await storage.maintain(time.time_ns() // 1_000_000 + 5 * DAY_MS)
    with pytest.raises(Expired):
        await storage.page("roads", msgspec.structs.replace(query, cursor=page.cursor))


HUGE = 2**70


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.wait_published(HUGE, 0),
        lambda s: s.transactions(HUGE),
        lambda s: s.resolve(AtTime(-HUGE)),
        lambda s: s.resolve(AtTxn(-HUGE)),
        lambda s: s.page("roads", Query(updated_from=10**400)),
        lambda s: s.page("roads", Query(txn_to=-(10**400))),
        lambda s: s.collection("\ud800"),
        lambda s: s.run(lambda t: t.drop_collection("roads", HUGE), "app"),
        lambda s: s.run(lambda t: t.create("roads", [point("x")]), "app", at_ms=10**18),
    ],
)
async def test_numbers_and_texts_beyond_all_measure(
    storage: SqliteStorage, call: Callable[[SqliteStorage], Awaitable[object]]
) -> None:
    with contextlib.suppress(NakshaError):
        await call(storage)
    await Handle(storage, "places").create(point("after"))


async def test_one_at_the_gate_makes_room_for_what_it_waits_for(storage: SqliteStorage) -> None:
    """It keeps its place before others, but not before what is done in its own midst."""
    roads, places = Handle(storage, "roads"), Handle(storage, "places")
    attempts = 0

    async def work(session: WriteSession) -> None:
        nonlocal attempts
        attempts += 1
        await session.create("roads", [point("mine")])
        if attempts <= limits.RETRY_GATE_COUNT:
            raise Retryable("as if another writer had been faster")
        await places.create(point("inner"))
        async with storage.write("app") as inner:
            await inner.create("places", [point("inmost")])
            await storage.unpin("nobody's")
        await session.create("roads", [point("more")])

    async with asyncio.timeout(GRACE_LONG_S / 2):
        await storage.run(work, "app")
    assert attempts == limits.RETRY_GATE_COUNT + 1
    assert ids_of(await roads.live()) == ["mine", "more"]
    assert ids_of(await places.live()) == ["inmost", "inner"]
    await check_log(storage)


async def test_one_at_the_gate_keeps_its_place_before_others(storage: SqliteStorage) -> None:
    begun, attempts = asyncio.Event(), 0

    async def work(session: WriteSession) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= limits.RETRY_GATE_COUNT:
            raise Retryable("as if another writer had been faster")
        await session.create("roads", [point("x", by="gate")])
        begun.set()
        await asyncio.sleep(0.3)
        await session.create("roads", [point("y")])

    running = asyncio.create_task(storage.run(work, "app"))
    await begun.wait()
    with pytest.raises(FeatureExists):
        await Handle(storage, "roads").create(point("x", by="other"))
    await running
    assert attempts == limits.RETRY_GATE_COUNT + 1


async def test_writers_go_on_while_features_are_counted(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, counted = threading.Event(), threading.Event()
    original = rounds._estimates

    def slow(connection: sqlite3.Connection, name: str) -> tuple[int, int, int] | None:
        counting.set()
        assert counted.wait(10)
        return original(connection, name)

    monkeypatch.setattr(rounds, "_estimates", slow)
    roads = Handle(storage, "roads")
    await roads.create(point("before"))
    maintaining = asyncio.create_task(storage.maintain())
    assert await asyncio.to_thread(counting.wait, 10)
    async with asyncio.timeout(5):
        await roads.create(point("meanwhile"))
    counted.set()
    await maintaining
    info = await storage.collection("roads")
    assert info.estimated_feature_count in (1, 2)
    await storage.maintain()
    assert (await storage.collection("roads")).estimated_feature_count == 2
