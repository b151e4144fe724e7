"""The writer thread: runs one transaction at a time and commits them in groups.

The active transaction has its own savepoint. When it ends, the next one starts behind it in the
same SQLite transaction. The group is committed with one write to disk as soon as no other job is
waiting, or after some time. Callers of `commit` are answered only after that.

An active transaction that is idle must yield when others wait: it is undone, others run, and when
its next step arrives all of its earlier steps are repeated, under the numbers they had. If later
transactions changed what it read in the meantime, that fails (`Retryable`), as on every storage.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from naksha.model.errors import NakshaError, ReadOnly, Retryable, Unavailable
from naksha.model.state import WriteOutcome
from naksha.sqlite.connection.errors import of, translated
from naksha.sqlite.schema.shell import complete, is_incomplete, record_cells
from naksha.sqlite.sql import queries
from naksha.sqlite.write.transaction import INT8_MAX, AllocatedNumbers, WriteTransaction, publish

T = TypeVar("T")
_GRACE_S: Final = 0.005
"""How long the active transaction may be idle while others wait."""
_GRACE_ALONE_S: Final = 0.2
"""The same while no job waits in this process; another process may be waiting."""
GRACE_LONG_S: Final = 5.0
"""The same for a transaction that keeps its place."""
GROUP_MAX: Final = 256
_GROUP_S: Final = 0.02
"""Maximum number of transactions committed together, and maximum wait of the first of them."""
_LOOK_UP_INSTRUCTIONS: Final = 100_000
"""Number of SQLite VM instructions (some milliseconds) between checks for a cancelled caller."""

Kind = Literal["step", "look", "commit", "rollback", "task", "close"]


@dataclass(slots=True, eq=False)
class QueuedTransaction:
    """A transaction in the writer: its steps, each with its result."""

    transaction: WriteTransaction
    steps: list[tuple[Callable[[WriteTransaction], Any], Any]] = field(default_factory=list)
    holds_writer: bool = False
    """Whether it yields only after GRACE_LONG_S: it is large, or has been retried too often."""
    outer: QueuedTransaction | None = None
    """The transaction inside which this one was begun."""
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)


WITHIN: Final[ContextVar[QueuedTransaction | None]] = ContextVar(
    "naksha_sqlite_within", default=None
)
"""The transaction inside which the current code runs, or inside which its task was started."""


def within() -> QueuedTransaction | None:
    """Return the transaction that waits for the current code to continue, if there is one.

    A transaction that only started the current task does not count: it can continue on its own, so
    other transactions are kept out.
    """
    entry = WITHIN.get()
    return entry if entry is not None and entry.task is asyncio.current_task() else None


@dataclass(slots=True, eq=False)
class _WriterCall:
    kind: Kind
    entry: QueuedTransaction | None
    work: Callable[[Any], Any] | None
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    within: QueuedTransaction | None = field(default_factory=within)
    is_given_up: bool = False
    """Whether the caller was cancelled."""

    def is_within(self, entry: QueuedTransaction) -> bool:
        """Return whether the transaction waits for this job before it continues."""
        outer = self.within
        while outer is not None and outer is not entry:
            outer = outer.outer
        return outer is entry


class WriterThread:
    """Owner of the writing connection and its thread. Methods may be called from any thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        published: Callable[[int], None],
        *,
        is_read_only: bool = False,
    ) -> None:
        self.counters = AllocatedNumbers()
        self.is_read_only = is_read_only
        connection.execute(queries()["writer_cache"])
        connection.execute(queries()["stage_table"])
        self._connection = connection
        self._published = published
        self._queue: queue.SimpleQueue[_WriterCall] = queue.SimpleQueue()
        self._waiting: deque[_WriterCall] = deque()
        self._inside: QueuedTransaction | None = None
        self._idle_since = 0.0
        self._ended: list[_WriterCall] = []
        self._group_since = 0.0
        self._is_open = False
        self._is_first = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="naksha-sqlite-writer", daemon=True)
        self._thread.start()

    # ---- For callers -------------------------------------------------------------------------

    async def step(self, entry: QueuedTransaction, work: Callable[[WriteTransaction], T]) -> T:
        """Run one step of a transaction."""
        result: T = await self._submit("step", entry, work)
        return result

    async def look(self, entry: QueuedTransaction, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read on the state that a transaction sees."""
        result: T = await self._submit("look", entry, work)
        return result

    async def commit(self, entry: QueuedTransaction) -> None:
        """Commit the transaction; return when it is durable."""
        await self._submit("commit", entry, None)

    async def rollback(self, entry: QueuedTransaction) -> None:
        """Roll the transaction back; does nothing after the storage was closed."""
        if not self._closed:
            await self._submit("rollback", entry, None)

    async def task(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run an operation of the storage itself; return when it is durable."""
        result: T = await self._submit("task", None, work)
        return result

    async def close(self) -> None:
        """Stop the thread after all jobs that are already queued."""
        if not self._closed:
            self._closed = True
            await self._enqueue("close", None, None)

    async def _submit(
        self, kind: Kind, entry: QueuedTransaction | None, work: Callable[[Any], Any] | None
    ) -> Any:
        if self._closed:
            raise Unavailable("The storage is closed; open it again")
        if self.is_read_only and kind != "rollback":
            raise ReadOnly(
                "The storage is read-only: it was opened with the option read_only; open it "
                "without this option to write"
            )
        return await self._enqueue(kind, entry, work)

    def _enqueue(
        self, kind: Kind, entry: QueuedTransaction | None, work: Callable[[Any], Any] | None
    ) -> asyncio.Future[Any]:
        job = _WriterCall(kind, entry, work)
        self._queue.put(job)

        def note(future: asyncio.Future[Any]) -> None:
            job.is_given_up = future.cancelled()

        # Cancelling the caller must not cancel the job: the caller rolls back next.
        requested = asyncio.shield(asyncio.wrap_future(job.future))
        requested.add_done_callback(note)
        return requested

    # ---- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        is_running = True
        while is_running:
            try:
                is_running = self._round()
            except BaseException as error:  # noqa: BLE001 - the thread must not die
                self._fail(error)
        self._waiting += self._receive()
        for job in self._waiting:
            job.future.set_exception(Unavailable("The storage is closed; open it again"))

    def _round(self) -> bool:
        """Process one job; return False after the last one."""
        job = self._next()
        if job is None:
            return True
        if job.kind != "close":
            self._do(job)
            return True
        self._yield_writer()
        self._commit_group()
        self._connection.close()
        job.future.set_result(None)
        return False

    def _fail(self, error: BaseException) -> None:
        """Roll everything back after an error of the file; fail all uncommitted transactions."""
        self._roll_back_all()
        ended, self._ended = self._ended, []
        for job in ended:
            job.future.set_exception(
                Unavailable(
                    "The storage file could not be written; its operator has to correct the disk: "
                    f"{error}"
                )
            )

    def _receive(self) -> Iterator[_WriterCall]:
        while True:
            try:
                yield self._queue.get_nowait()
            except queue.Empty:
                return

    def _next(self) -> _WriterCall | None:
        """Return the next job that can run; None after yielding or committing instead."""
        while True:
            job = self._pick()
            if job is not None:
                return job
            patience = self._patience()
            if patience is not None and patience <= 0:
                self._make_room()
                return None
            try:
                self._waiting.append(self._queue.get(timeout=patience))
            except queue.Empty:
                self._make_room()
                return None

    def _pick(self) -> _WriterCall | None:
        """Take the arrived jobs and choose one; jobs of the active transaction go first."""
        self._waiting += self._receive()
        if self._inside is None:
            if len(self._ended) >= GROUP_MAX:
                return None
            return self._waiting.popleft() if self._waiting else None
        for position, job in enumerate(self._waiting):
            # A rollback costs nothing, and the active transaction may wait for it.
            if job.entry is self._inside or job.kind == "rollback":
                del self._waiting[position]
                return job
        return None

    def _patience(self) -> float | None:
        """Return how many seconds to wait for the next job; None for no limit."""
        if self._inside is None:
            return 0.0 if self._ended else None
        grace = _GRACE_S if self._waiting or self._ended else _GRACE_ALONE_S
        inside = self._inside
        if inside.holds_writer and not any(job.is_within(inside) for job in self._waiting):
            grace = GRACE_LONG_S
        return max(0.0, self._idle_since + grace - time.monotonic())

    def _make_room(self) -> None:
        """Make the active transaction yield, then commit the group."""
        self._yield_writer()
        self._commit_group()

    def _do(self, job: _WriterCall) -> None:
        try:
            result = getattr(self, f"_do_{job.kind}")(job)
        except BaseException as error:  # noqa: BLE001 - it is passed to the caller
            if job.kind == "commit" and job.entry is not None:
                job.entry.transaction.end()
            self._abandon()
            job.future.set_exception(of(error) if isinstance(error, sqlite3.Error) else error)
        else:
            if job.kind not in ("commit", "task"):
                job.future.set_result(result)
        self._idle_since = time.monotonic()
        if self._ended and (
            len(self._ended) >= GROUP_MAX or self._idle_since - self._group_since > _GROUP_S
        ):
            self._make_room()

    def _do_step(self, job: _WriterCall) -> Any:
        assert job.entry is not None
        assert job.work is not None
        entry = job.entry
        self._enter(entry)
        try:
            with self._ending_with(job), translated():
                result = job.work(entry.transaction)
        except BaseException:
            self._undo()
            raise
        entry.steps.append((job.work, result))
        return result

    def _do_look(self, job: _WriterCall) -> Any:
        assert job.entry is not None
        assert job.work is not None
        self._enter(job.entry)
        with self._ending_with(job), translated():
            return job.work(self._connection)

    @contextmanager
    def _ending_with(self, job: _WriterCall) -> Iterator[None]:
        """Interrupt statements of a cancelled caller, because others wait for the connection."""
        self._connection.set_progress_handler(lambda: job.is_given_up, _LOOK_UP_INSTRUCTIONS)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)

    def _do_commit(self, job: _WriterCall) -> None:
        assert job.entry is not None
        entry = job.entry
        self._enter(entry)
        try:
            entry.transaction.write_log()
        except BaseException:
            self._undo()
            raise
        self._leave()
        entry.transaction.end()
        self._end(job)

    def _do_rollback(self, job: _WriterCall) -> None:
        assert job.entry is not None
        if self._inside is job.entry:
            self._undo()
        job.entry.transaction.end()
        self._abandon()

    def _do_task(self, job: _WriterCall) -> None:
        assert job.work is not None
        self._begin()
        self._open_savepoint()
        try:
            with translated():
                job.result = job.work(self._connection)
        except BaseException:
            self._undo()
            raise
        self._leave()
        self._end(job)
        self._commit_group()

    def _end(self, job: _WriterCall) -> None:
        """Add a finished job to the group; its caller is answered after the group commit."""
        if not self._ended:
            self._group_since = time.monotonic()
        self._ended.append(job)

    # ---- SQLite's transaction ----------------------------------------------------------------

    def _begin(self) -> None:
        if self._is_open:
            return
        self._connection.execute(queries()["begin"])
        self._is_open = True
        try:
            self._connection.execute(queries()["managed"], (1,))
            if is_incomplete(self._connection):
                complete(self._connection)
            record_cells(self._connection)
        except BaseException:
            self._roll_back_all()
            raise

    def _enter(self, entry: QueuedTransaction) -> None:
        """Make a transaction active; repeat its earlier steps if it had yielded."""
        if self._inside is entry:
            return
        assert self._inside is None
        if entry.holds_writer and self._ended:
            self._commit_group()  # Finished transactions should not wait for a large one.
        self._begin()
        self._open_savepoint()
        self._inside = entry
        entry.transaction.connection = self._connection
        try:
            self._repeat_steps(entry)
        except BaseException:
            self._undo()
            raise

    def _repeat_steps(self, entry: QueuedTransaction) -> None:
        entry.transaction.begin_again()
        for step, result in entry.steps:
            try:
                with translated():
                    again = step(entry.transaction)
            except Retryable:
                raise
            except NakshaError as error:
                raise Retryable(
                    f"Other writers changed data that the transaction read; repeat it ({error})"
                ) from error
            if _comparable_result(again) != _comparable_result(result):
                raise Retryable(
                    "Other writers changed data that the transaction read; repeat the transaction"
                )

    def _open_savepoint(self) -> None:
        """Open a savepoint, except for the first of a group.

        Without a savepoint SQLite does not copy every page that the transaction touches.
        """
        self._is_first = not self._ended
        if not self._is_first:
            self._connection.execute(queries()["savepoint"])

    def _leave(self) -> None:
        """Keep the changes of the active transaction and end it."""
        if not self._is_first:
            self._connection.execute(queries()["release"])
        self._inside = None

    def _undo(self) -> None:
        """Undo the changes of the active transaction and end it."""
        self._inside = None
        if self._is_first or not self._connection.in_transaction:
            # Either the transaction is the first of its group, so nothing else is lost, or a full
            # or broken disk made SQLite roll back everything, also transactions that had ended.
            self._fail(
                Unavailable(
                    "SQLite rolled back the transaction, because the disk failed or is full; "
                    "correct the disk and repeat the transaction"
                )
            )
            return
        self._connection.execute(queries()["rollback_to"])
        self._connection.execute(queries()["release"])

    def _yield_writer(self) -> None:
        """Undo the active transaction, but reserve its numbers in the file for all processes."""
        if self._inside is not None:
            self._undo()
            self._begin()
            self.counters.keep(self._connection)

    def _commit_group(self) -> None:
        """Publish and commit the group, then answer all of its callers."""
        ended, self._ended = self._ended, []
        if not self._is_open:
            return
        try:
            with translated():
                published = publish(
                    self._connection,
                    min(self.counters.open, default=INT8_MAX),
                    time.time_ns() // 1_000_000,
                )
                self._connection.execute(queries()["managed"], (0,))
                self._connection.execute(queries()["commit"])
        except BaseException as error:  # noqa: BLE001 - it is passed to the callers
            self._roll_back_all()
            for job in ended:
                job.future.set_exception(error)
            return
        self._is_open = False
        for job in ended:
            job.future.set_result(job.result)
        if published:
            self._published(published)

    def _abandon(self) -> None:
        """Release the file's write lock when there is nothing to commit."""
        if self._is_open and self._inside is None and not self._ended:
            self._roll_back_all()

    def _roll_back_all(self) -> None:
        self._is_open = False
        self._inside = None
        if self._connection.in_transaction:
            self._connection.execute(queries()["rollback"])


def _comparable_result(result: object) -> object:
    """Convert the result of a step to a form that can be compared."""
    if isinstance(result, list):
        return [_comparable_result(each) for each in result]
    if isinstance(result, WriteOutcome):
        return (result.id, result.action, result.uuid, result.version)
    return result
