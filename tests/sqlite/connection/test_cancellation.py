"""Cancelled calls: no statement keeps running on a thread and connection used by others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from naksha.sqlite import SqliteStorage
from naksha.sqlite.write.session import SqliteSession
from naksha.sqlite.write.transaction import WriteTransaction
from naksha.testing.storage.suite_support import Handle, ids_of, point

ENDLESS = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
             SELECT count(*) FROM n"""


class Work:
    """A statement without an end, begun when it is let go."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.has_begun.set()
        self.may_go_on.wait()
        connection.execute(ENDLESS).fetchone()

    async def begun(self) -> None:
        await asyncio.to_thread(self.has_begun.wait)


async def give_up(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_reader_ends_its_statement(storage: SqliteStorage, is_running: bool) -> None:
    """Also one that it begins only then."""
    work = Work()
    if is_running:
        work.may_go_on.set()
    task = asyncio.create_task(storage._read(work))
    await work.begun()
    asyncio.get_running_loop().call_later(0.02, work.may_go_on.set)
    await give_up(task)


async def test_time_is_up(storage: SqliteStorage) -> None:
    work = Work()
    work.may_go_on.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await storage._read(work)


@pytest.mark.parametrize("kind", ["look", "step"])
async def test_the_writer_ends_it_and_goes_on(storage: SqliteStorage, kind: str) -> None:
    work = Work()
    work.may_go_on.set()

    def step(transaction: WriteTransaction) -> None:
        work(transaction.connection)

    async def write() -> None:
        async with storage.write("app") as session:
            assert isinstance(session, SqliteSession)
            await session.create("roads", [point("given-up")])
            await (session._look(work) if kind == "look" else session._step(step))

    task = asyncio.create_task(write())
    await work.begun()
    await give_up(task)
    roads = Handle(storage, "roads")
    await roads.create(point("x"))
    assert ids_of(await roads.live()) == ["x"]
