"""The writing thread: groups, idle sessions, other processes, failures beside others."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from naksha.model.errors import FeatureExists, Retryable, Unavailable
from naksha.model.query import Query
from naksha.sqlite import SqliteStorage
from naksha.sqlite.writer import Writer
from naksha.testing.suite_concurrency import check_history, check_log
from naksha.testing.suite_support import Handle, ids_of, point

WRITERS = 40


async def test_what_comes_together_is_committed_together(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    original = Writer._commit_group

    def counted(self: Writer) -> None:
        if self._ended:
            commits.append(len(self._ended))
        original(self)

    monkeypatch.setattr(Writer, "_commit_group", counted)
    roads = Handle(storage, "roads")
    await asyncio.gather(*(roads.create(point(f"k{n}")) for n in range(WRITERS)))
    assert sum(commits) == WRITERS
    assert len(commits) < WRITERS / 3
    assert len(await roads.live()) == WRITERS
    await check_log(storage)


async def test_one_that_fails_takes_nobody_along(storage: SqliteStorage) -> None:
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


async def test_a_closed_storage_says_so(storage: SqliteStorage) -> None:
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
