"""The rows of one query as Arrow batches: ADBC turns binary COPY into columns, batch by batch.

ADBC blocks, so each step runs in a thread. COPY takes no parameters, and with parameters ADBC
would hold the whole answer in memory; hence statements come with literals (`naksha.psql.sql`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions

from naksha.psql import errors

if TYPE_CHECKING:
    from adbc_driver_postgresql import dbapi

T = TypeVar("T")
BATCH_BYTES: Final = 4 * 1024 * 1024
"""About how much of an answer is held at once."""


class ArrowServer:
    """Streams from one server. What ADBC learns about a database at the first connection takes it
    100 ms; further connections share it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._first: dbapi.Connection | None = None
        self._connecting = threading.Lock()

    async def batches(
        self, before: Sequence[str], query: str, schema: pa.Schema
    ) -> AsyncIterator[pa.RecordBatch]:
        """Run the statements `before` and then the query, in a transaction of their own."""
        stream = _Stream(self._connect)
        try:
            with _translated():
                await stream.step(lambda: stream.start(before, query))
                while (batch := await stream.step(stream.next_batch)) is not None:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        finally:
            await asyncio.shield(asyncio.to_thread(stream.close))

    async def close(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            with suppress(adbc_driver_manager.Error):
                await asyncio.to_thread(first.close)

    def _connect(self) -> dbapi.Connection:
        """A connection inside a transaction."""
        with self._connecting:
            if self._first is None:
                # It loads much, pandas too where that is installed, which only bulk reads need.
                from adbc_driver_postgresql import dbapi  # noqa: PLC0415

                self._first = dbapi.connect(self._dsn, autocommit=True)
        return self._first.adbc_clone()


class _Stream:
    """A connection with one running query; used by one thread at a time."""

    def __init__(self, connect: Callable[[], dbapi.Connection]) -> None:
        self._connect = connect
        self._connection: dbapi.Connection | None = None
        self._cursor: dbapi.Cursor | None = None
        self._reader: Any = None

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
        self._connection = self._connect()
        for text in before:
            with self._connection.cursor() as cursor:
                cursor.execute(text)
        self._cursor = self._connection.cursor()
        self._cursor.adbc_statement.set_options(
            **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)}
        )
        self._cursor.execute(query)
        self._reader = self._cursor.fetch_record_batch()

    def next_batch(self) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None

    def close(self) -> None:
        for part in (self._reader, self._cursor, self._connection):
            if part is not None:
                with suppress(adbc_driver_manager.Error, OSError, pa.ArrowException):
                    part.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Raise our error in place of ADBC's; what breaks inside a batch comes through Arrow."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        raise errors.of_state(error.sqlstate or "08000", str(error)) from error
    except (OSError, pa.ArrowException) as error:
        raise errors.of_state("08000", str(error)) from error
