"""Threads of a catalog file: one writer and several readers (group commit).

The writer takes all queued operations, runs them in one transaction, commits once and then
completes all of their futures: the longer the queue, the less each operation costs. An operation
that fails is rolled back alone.
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
"""Maximum number of operations that are committed together."""
READERS_MAX: Final = 4
_POLL_S_MIN: Final = 0.0002
_POLL_S_MAX: Final = 0.005
"""Bounds of the pause between attempts to get the write lock from another process: much shorter
than in SQLite's own busy handler, because a commit takes less than a millisecond."""
_NOTHING_WRITTEN: Final = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_READONLY")
"""Errors of a COMMIT after which it is certain that nothing was written."""


def closed() -> Unavailable:
    return Unavailable("The catalog is closed; open it again")


@dataclass(slots=True, eq=False)
class _CatalogCall(Generic[T]):
    work: Work[T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    result: Any = None
    error: BaseException | None = None

    def complete(self) -> None:
        """Complete the caller's future; runs in the caller's event loop."""
        if self.future.done():
            return  # cancelled
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class CatalogWriter:
    """Owner of the writing connection and of the thread that uses it."""

    def __init__(self, connection: sqlite3.Connection, busy_s: float) -> None:
        connection.execute(sql("busy_timeout_none"))
        self._connection = connection
        self._busy_s = busy_s
        self._queue: queue.SimpleQueue[_CatalogCall[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="naksha-catalog-writer", daemon=True)
        self._thread.start()

    def do(self, work: Work[T]) -> asyncio.Future[T]:
        """Queue an operation; its future completes when the result is committed and durable.

        An operation that is cancelled while it is queued is skipped; one that has been taken from
        the queue is carried out all the same.
        """
        loop = asyncio.get_running_loop()
        job = _CatalogCall(work, loop, loop.create_future())
        with self._lock:
            if self._is_closed:
                raise closed()
            self._queue.put(job)
        return job.future

    async def close(self) -> None:
        """Stop the thread after all operations that are already queued."""
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
                _complete_all(jobs)
        self._connection.close()

    def _take(self) -> tuple[list[_CatalogCall[Any]], bool]:
        """Take the queued jobs, waiting for the first; also return whether they are the last."""
        job = self._queue.get()
        jobs: list[_CatalogCall[Any]] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) >= GROUP_MAX:
                return jobs, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _carry_out(self, jobs: Sequence[_CatalogCall[Any]]) -> None:
        jobs = [job for job in jobs if not job.future.cancelled()]
        if not jobs:
            return
        try:
            self._begin()
            for job in jobs:
                self._carry_out_one(job, is_alone=len(jobs) == 1)
            self._commit()
        except BaseException as error:  # noqa: BLE001 - the thread must not die
            for job in jobs:
                job.error = job.error or _naksha_error(error)
            self._roll_back()

    def _begin(self) -> None:
        """Begin a transaction, polling for the write lock while another process holds it."""
        deadline = time.monotonic() + self._busy_s
        pause_s = _POLL_S_MIN
        while True:
            try:
                self._connection.execute(sql("begin"))
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - jitter
            pause_s = min(pause_s * 1.5, _POLL_S_MAX)

    def _carry_out_one(self, job: _CatalogCall[Any], *, is_alone: bool) -> None:
        """Run one job; keep its own error in the job.

        Raises only what ends the whole group.
        """
        if not is_alone:
            self._connection.execute(sql("savepoint"))
        try:
            job.result = job.work(self._connection)
        except BaseException as error:
            job.error = _naksha_error(error)
            if is_alone or not self._connection.in_transaction:
                raise  # After some errors SQLite rolls back the whole transaction.
            self._connection.execute(sql("undo"))
        if not is_alone:
            self._connection.execute(sql("release"))

    def _commit(self) -> None:
        try:
            self._connection.execute(sql("commit"))
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith(_NOTHING_WRITTEN):
                raise
            raise OutcomeUnknown(
                "The disk failed during a commit, which may or may not be stored; read the "
                f"object back before you repeat the write: {error}"
            ) from error

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute(sql("rollback"))


def _naksha_error(error: BaseException) -> BaseException:
    try:
        with translated():
            raise error
    except BaseException as ours:  # noqa: BLE001 - it is passed to the caller
        return ours


def _complete_all(jobs: Sequence[_CatalogCall[Any]]) -> None:
    """Complete the jobs' futures, with one wake-up per event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[_CatalogCall[Any]]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, waiting in by_loop.items():
        with suppress(RuntimeError):  # The loop is closed; no caller waits any more.
            loop.call_soon_threadsafe(_complete, waiting)


def _complete(jobs: Sequence[_CatalogCall[Any]]) -> None:
    for job in jobs:
        job.complete()


class CatalogReaders:
    """Pool of reading threads, each with its own connection."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._threads = ThreadPoolExecutor(READERS_MAX, "naksha-catalog-reader")
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._is_closed = False

    async def do(self, work: Work[T]) -> T:
        """Run a read on the current state of the file."""
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
