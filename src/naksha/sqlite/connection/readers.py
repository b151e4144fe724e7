"""Pool of connections for reading, each with its own snapshot, beside the writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from naksha.model.errors import Unavailable
from naksha.spi.support.stream_limit import StreamLimit
from naksha.sqlite.connection.errors import translated
from naksha.sqlite.schema.file import connect
from naksha.sqlite.schema.shell import is_incomplete
from naksha.sqlite.sql import queries

T = TypeVar("T")
READERS_MAX: Final = 8
WAIT_S: Final = 30.0
"""Timeout for getting a connection: a caller that holds all of them would wait for ever."""

_INTERRUPT_AGAIN_S: Final = 0.05


class PoolExhausted(Unavailable):
    """All connections are in use, perhaps by the caller itself, so an immediate retry is futile."""


class ReadSnapshot:
    """A connection in a read transaction, so that all of its reads see the same snapshot."""

    def __init__(self, connection: sqlite3.Connection, threads: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._threads = threads
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read in a thread.

        When the caller is cancelled the read is interrupted and waited for, because the connection
        must not be used again before it has ended.
        """

        def run() -> T:
            with translated():
                return work(self._connection)

        async with self._turn:
            return await self._wait_for(run)

    async def _wait_for(self, run: Callable[[], T]) -> T:
        task = asyncio.get_running_loop().run_in_executor(self._threads, run)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The thread must release the connection first, even if this task is cancelled again.
            # An interrupt has no effect before or between statements, so it is repeated.
            while not task.done():
                self._connection.interrupt()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task], timeout=_INTERRUPT_AGAIN_S)
            if not task.cancelled():
                task.exception()  # Retrieve it, so that asyncio does not log it as never retrieved.
            raise


class ReaderPool:
    """The pool of reading connections."""

    def __init__(
        self,
        path: Path,
        busy_s: float,
        most: int,
        complete: Callable[[], Awaitable[None]],
        *,
        read_only: bool = False,
    ) -> None:
        """Create the pool; `complete` processes edits that plain SQL left incomplete."""
        self._complete = complete
        self._path = path
        self._read_only = read_only
        self._busy_s = busy_s
        self._free: list[sqlite3.Connection] = []
        self._places = asyncio.Semaphore(most)
        self.streams: Final = StreamLimit(most, WAIT_S)
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="naksha-sqlite-reader")
        self._closed = False

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[ReadSnapshot]:
        """Open a snapshot of the committed state."""
        if self._closed:
            raise Unavailable("The storage is closed; open it again")
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise PoolExhausted(
                f"No connection for reading was available within {WAIT_S:g} s; retry later"
            ) from None
        try:
            connection = self._free.pop() if self._free else self._open()
            try:
                await self._begin(connection)
                yield ReadSnapshot(connection, self._threads)
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    async def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a read transaction, after `complete` has processed incomplete edits."""
        with translated():
            connection.execute(queries()["begin_reading"])
            if not is_incomplete(connection):
                return
            connection.execute(queries()["rollback"])
        await self._complete()
        with translated():
            connection.execute(queries()["begin_reading"])

    def _open(self) -> sqlite3.Connection:
        with translated():
            return connect(self._path, self._busy_s, read_only=self._read_only)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute(queries()["rollback"])
        except sqlite3.Error:
            connection.close()
            return
        if self._closed:
            connection.close()
        else:
            self._free.append(connection)

    def close(self) -> None:
        self._closed = True
        for connection in self._free:
            connection.close()
        self._free.clear()
        self._threads.shutdown(wait=False)
