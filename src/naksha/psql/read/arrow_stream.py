"""Rows of a query as Arrow batches: ADBC converts binary COPY into columns, batch by batch.

ADBC blocks, so each step runs in a thread. COPY takes no parameters, and with parameters ADBC would
hold the whole result in memory; hence statements contain literals (`naksha.psql.sql`).
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
    """Source of Arrow streams from one server.

    At its first connection ADBC spends 100 ms on reading metadata of the database, which further
    connections share. A connection that has read its stream to the end is kept for the next stream,
    which then finds PostGIS and the storage's functions loaded.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._first: dbapi.Connection | None = None
        self._spare: dbapi.Connection | None = None
        self._connecting = threading.Lock()

    async def batches(
        self, before: Sequence[str], query: str, schema: pa.Schema
    ) -> AsyncIterator[pa.RecordBatch]:
        """Run the statements `before` and then the query, in a transaction of their own."""
        stream = _ArrowStream(self._spare_one, self._connect)
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
            # After `close` the connection would leak, so it is not kept.
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
                # The import loads much, including pandas if installed, which only bulk reads need.
                from adbc_driver_postgresql import dbapi  # noqa: PLC0415

                self._first = dbapi.connect(self._dsn, autocommit=True)
            first = self._first
        return first.adbc_clone()


class _ArrowStream:
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
        """Run one step in a thread.

        A cancellation cancels the query, too, and then waits for the thread, whose connection must
        not be closed while it is in use.
        """
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._cursor is not None:
                with suppress(adbc_driver_manager.Error):
                    self._cursor.adbc_cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # Retrieved, so that asyncio does not log it as never retrieved.
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
        """Return a connection inside a transaction; a kept one may be broken by now."""
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
        """End the transaction after all rows were read, so that the connection can be reused."""
        assert self._connection is not None
        assert self._cursor is not None
        with suppress(adbc_driver_manager.Error, OSError, pa.ArrowException):
            self._reader.close()
            self._cursor.close()
            self._connection.adbc_connection.set_autocommit(True)
            self._is_released = True

    def taken(self) -> dbapi.Connection | None:
        """Hand the connection over to the caller, if it was released."""
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
    """Run work that may block in a thread, to its end.

    At the end of the process the executor accepts no more work; then the work runs here, since
    nothing else waits for the loop.
    """
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
    """Raise a Naksha error in place of ADBC's; errors inside a batch come through Arrow."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        raise errors.of_state(error.sqlstate or "08000", str(error)) from error
    except (OSError, pa.ArrowException) as error:
        raise errors.of_state("08000", str(error)) from error
