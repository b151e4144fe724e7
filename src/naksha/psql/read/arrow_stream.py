"""The rows of one query as Arrow batches: ADBC turns binary COPY into columns, batch by batch.

ADBC blocks, so each step runs in a thread. COPY takes no parameters, and with parameters ADBC
would hold the whole answer in memory; hence statements come with literals (`naksha.psql.sql`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions

from naksha.model import limits
from naksha.psql.connection import errors

if TYPE_CHECKING:
    from adbc_driver_postgresql import dbapi

T = TypeVar("T")


class ArrowServer:
    """Streams from one server. What ADBC learns about a database at the first connection takes it
    100 ms; further connections share it. One that has read its stream to the end is kept for the
    next, which then finds PostGIS and our functions loaded."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._first: dbapi.Connection | None = None
        self._spare: dbapi.Connection | None = None
        self._connecting = threading.Lock()

    async def batches(
        self, before: Sequence[str], query: str, schema: pa.Schema
    ) -> AsyncIterator[pa.RecordBatch]:
        """Run the statements `before` and then the query, in a transaction of their own."""
        stream = _Stream(self._spare_one, self._connect)
        try:
            with _translated():
                await stream.step(lambda: stream.start(before, query))
                while (batch := await stream.step(stream.next_batch)) is not None:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                await stream.step(stream.release)
            if (connection := stream.taken()) is not None:
                await _apart(lambda: self._keep(connection))
        finally:
            await _apart(stream.close)

    async def close(self) -> None:
        kept, self._spare, self._first = (self._spare, self._first), None, None
        for connection in kept:
            if connection is not None:
                with suppress(adbc_driver_manager.Error):
                    await _apart(connection.close)

    def _keep(self, connection: dbapi.Connection) -> None:
        with self._connecting:
            # Nobody would close it any more when we are closed.
            if self._first is not None and self._spare is None:
                self._spare = connection
                return
        with suppress(adbc_driver_manager.Error):
            connection.close()

    def _spare_one(self) -> dbapi.Connection | None:
        with self._connecting:
            spare, self._spare = self._spare, None
        return spare

    def _connect(self) -> dbapi.Connection:
        with self._connecting:
            if self._first is None:
                # It loads much, pandas too where that is installed, which only bulk reads need.
                from adbc_driver_postgresql import dbapi  # noqa: PLC0415

                self._first = dbapi.connect(self._dsn, autocommit=True)
            first = self._first
        return first.adbc_clone()


class _Stream:
    """A connection with one running query; used by one thread at a time."""

    def __init__(
        self,
        spare: Callable[[], dbapi.Connection | None],
        connect: Callable[[], dbapi.Connection],
    ) -> None:
        self._spare = spare
        self._connect = connect
        self._connection: dbapi.Connection | None = None
        self._cursor: dbapi.Cursor | None = None
        self._reader: Any = None
        self._is_released = False

    async def step(self, work: Callable[[], T]) -> T:
        """Run one step in a thread. When we are cancelled the query is too, and the thread is
        waited for: nobody may close what it uses."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._cursor is not None:
                with suppress(adbc_driver_manager.Error):
                    self._cursor.adbc_cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # Seen, so that nobody complains that it was not.
            raise

    def start(self, before: Sequence[str], query: str) -> None:
        self._connection = self._begun(before)
        self._cursor = self._connection.cursor()
        self._cursor.adbc_statement.set_options(
            **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(limits.BULK_BATCH_BYTES)}
        )
        self._cursor.execute(query)
        self._reader = self._cursor.fetch_record_batch()

    def _begun(self, before: Sequence[str]) -> dbapi.Connection:
        """A connection inside a transaction; one that was kept may be broken meanwhile."""
        self._connection = spare = self._spare()
        if spare is not None:
            try:
                spare.adbc_connection.set_autocommit(False)
                _execute(spare, before)
                return spare
            except adbc_driver_manager.Error:
                self.close()
        self._connection = made = self._connect()
        _execute(made, before)
        return made

    def next_batch(self) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None

    def release(self) -> None:
        """End the transaction, all of which was read; the connection may be used again then."""
        assert self._connection is not None
        assert self._cursor is not None
        with suppress(adbc_driver_manager.Error, OSError, pa.ArrowException):
            self._reader.close()
            self._cursor.close()
            self._connection.adbc_connection.set_autocommit(True)
            self._is_released = True

    def taken(self) -> dbapi.Connection | None:
        """The connection, if it was released; it is somebody else's then."""
        if not self._is_released:
            return None
        connection, self._connection = self._connection, None
        return connection

    def close(self) -> None:
        for part in (self._reader, self._cursor, self._connection):
            if part is not None:
                with suppress(adbc_driver_manager.Error, OSError, pa.ArrowException):
                    part.close()


async def _apart(work: Callable[[], None]) -> None:
    """Do what may block in a thread, to its end. What is closed when the process ends finds that
    no thread takes anything any more; but then nobody else waits for the loop."""
    try:
        done = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        work()
        return
    await asyncio.shield(done)


def _execute(connection: dbapi.Connection, statements: Sequence[str]) -> None:
    for text in statements:
        with connection.cursor() as cursor:
            cursor.execute(text)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise our error in place of ADBC's; what breaks inside a batch comes through Arrow."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        raise errors.of_state(error.sqlstate or "08000", str(error)) from error
    except (OSError, pa.ArrowException) as error:
        raise errors.of_state("08000", str(error)) from error
