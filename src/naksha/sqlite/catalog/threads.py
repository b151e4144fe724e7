"""The threads of a catalog file: one that writes, some that read.

The writer takes whatever waits, carries it out in one transaction, commits once and then answers
everybody: the more wait, the less each of them costs. An operation that fails is undone by itself.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from naksha.model.errors import OutcomeUnknown, Unavailable
from naksha.sqlite.catalog.file import connect
from naksha.sqlite.catalog.sql import sql
from naksha.sqlite.connection.errors import is_busy, translated

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

GROUP_MAX: Final = 256
"""Operations that are committed together."""
READERS_MAX: Final = 4
POLL_S_MIN: Final = 0.0002
POLL_S_MAX: Final = 0.005
"""How often the writer looks whether another process is done: far more often than SQLite would,
since a commit takes less than a millisecond."""
_NOTHING_WRITTEN: Final = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_READONLY")
"""Errors of a COMMIT after which nothing of it can ever come to light."""


def closed() -> Unavailable:
    return Unavailable("The catalog is closed")


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    work: Work[T]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[T]
    result: Any = None
    error: BaseException | None = None

    def tell(self) -> None:
        """In the caller's loop, once it is known how it ended."""
        if self.answer.done():
            return  # cancelled
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)


class CatalogWriter:
    """Owns the writing connection, and the thread that uses it."""

    def __init__(self, connection: sqlite3.Connection, busy_s: float) -> None:
        connection.execute(sql("busy_timeout_none"))
        self._connection = connection
        self._busy_s = busy_s
        self._queue: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="naksha-catalog-writer", daemon=True)
        self._thread.start()

    def do(self, work: Work[T]) -> asyncio.Future[T]:
        """Carry something out; it is done and durable when the answer comes.

        Whoever is cancelled before its turn is left out; later it is carried out all the same."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        with self._lock:
            if self._is_closed:
                raise closed()
            self._queue.put(job)
        return job.answer

    async def close(self) -> None:
        """End, after what was asked for before."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # ---- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        is_last = False
        while not is_last:
            jobs, is_last = self._take()
            if jobs:
                self._carry_out(jobs)
                _tell_all(jobs)
        self._connection.close()

    def _take(self) -> tuple[list[_Job[Any]], bool]:
        """All that wait, at least one; and whether nothing comes after them."""
        job = self._queue.get()
        jobs: list[_Job[Any]] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) >= GROUP_MAX:
                return jobs, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _carry_out(self, jobs: Sequence[_Job[Any]]) -> None:
        jobs = [job for job in jobs if not job.answer.cancelled()]
        if not jobs:
            return
        try:
            self._begin()
            for job in jobs:
                self._carry_out_one(job, is_alone=len(jobs) == 1)
            self._commit()
        except BaseException as error:  # noqa: BLE001 - the thread must not die
            for job in jobs:
                job.error = job.error or _as_ours(error)
            self._roll_back()

    def _begin(self) -> None:
        """Wait for our turn among the processes."""
        deadline = time.monotonic() + self._busy_s
        pause_s = POLL_S_MIN
        while True:
            try:
                self._connection.execute(sql("begin"))
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - not to meet again
            pause_s = min(pause_s * 1.5, POLL_S_MAX)

    def _carry_out_one(self, job: _Job[Any], *, is_alone: bool) -> None:
        """Raises what is the end of all of them; what is only its own stays with the job."""
        if not is_alone:
            self._connection.execute(sql("savepoint"))
        try:
            job.result = job.work(self._connection)
        except BaseException as error:
            job.error = _as_ours(error)
            if is_alone or not self._connection.in_transaction:
                raise  # After some errors SQLite undoes the whole transaction.
            self._connection.execute(sql("undo"))
        if not is_alone:
            self._connection.execute(sql("release"))

    def _commit(self) -> None:
        try:
            self._connection.execute(sql("commit"))
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith(_NOTHING_WRITTEN):
                raise
            raise OutcomeUnknown(f"The disk failed during a commit: {error}") from error

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute(sql("rollback"))


def _as_ours(error: BaseException) -> BaseException:
    try:
        with translated():
            raise error
    except BaseException as ours:  # noqa: BLE001 - it is given to the caller
        return ours


def _tell_all(jobs: Sequence[_Job[Any]]) -> None:
    """One wake-up for each event loop, however many wait in it."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[_Job[Any]]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, waiting in by_loop.items():
        with suppress(RuntimeError):  # It is closed; nobody waits.
            loop.call_soon_threadsafe(_tell, waiting)


def _tell(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.tell()


class CatalogReaders:
    """Threads that read, each with a connection of its own."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._threads = ThreadPoolExecutor(READERS_MAX, "naksha-catalog-reader")
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._is_closed = False

    async def do(self, work: Work[T]) -> T:
        """Read something, as it is now."""
        if self._is_closed:
            raise closed()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown, wait=True)
        while self._opened:
            self._opened.pop().close()

    def _run(self, work: Work[T]) -> T:
        with translated():
            return work(self._connection())

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = connect(self._path, self._busy_s)
            self._opened.append(connection)
        return connection
