"""The one thread that writes: it lets one transaction in at a time and commits them in groups.

The transaction that is in has a savepoint of its own. When it ends, the next one goes on behind it,
and what ended is committed with one write to the disk as soon as nobody else comes, or some time
has passed. Nobody is told of a commit before that.

A transaction that is in and does nothing may be asked to step aside: it is undone, others go on,
and when it continues its steps are done once more, under the numbers they had. What later
transactions changed in the meantime makes that fail (`Retryable`), as on every storage.
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
from naksha.model.state import Outcome
from naksha.sqlite.connection.errors import of, translated
from naksha.sqlite.schema.shell import complete, is_incomplete
from naksha.sqlite.sql import queries
from naksha.sqlite.write.transaction import INT8_MAX, Counters, Transaction, publish

T = TypeVar("T")
GRACE_S: Final = 0.005
"""How long a transaction that is in may do nothing while others wait."""
GRACE_ALONE_S: Final = 0.2
"""The same when nobody waits in this process; but perhaps in another one."""
GRACE_LONG_S: Final = 5.0
"""The same for one that has been overtaken too often."""
GROUP_MAX: Final = 256
GROUP_S: Final = 0.02
"""How many transactions are committed together, and how long the first of them waits."""
LOOK_UP_INSTRUCTIONS: Final = 100_000
"""How many instructions of SQLite's machine, some milliseconds, go by before a statement looks up
whether anybody waits for it."""

Kind = Literal["step", "look", "commit", "rollback", "task", "close"]


@dataclass(slots=True, eq=False)
class Entry:
    """A transaction as the writer knows it: its steps, each with what it gave."""

    transaction: Transaction
    steps: list[tuple[Callable[[Transaction], Any], Any]] = field(default_factory=list)
    keeps_place: bool = False
    """Whether it steps aside late: it is large, or has been overtaken too often."""
    outer: Entry | None = None
    """The one in whose midst it was begun."""
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)


WITHIN: Final[ContextVar[Entry | None]] = ContextVar("naksha_sqlite_within", default=None)
"""The transaction in whose midst the caller is, or the task was started that it is in."""


def within() -> Entry | None:
    """The transaction that does not go on before the caller does. One that has started a task is
    not that: it may go on, and others are to be kept out."""
    entry = WITHIN.get()
    return entry if entry is not None and entry.task is asyncio.current_task() else None


@dataclass(slots=True, eq=False)
class _Job:
    kind: Kind
    entry: Entry | None
    work: Callable[[Any], Any] | None
    answer: Future[Any] = field(default_factory=Future)
    result: Any = None
    within: Entry | None = field(default_factory=within)
    is_given_up: bool = False
    """Whether nobody waits for it any more."""

    def is_within(self, entry: Entry) -> bool:
        """Whether the transaction waits for this before it goes on."""
        outer = self.within
        while outer is not None and outer is not entry:
            outer = outer.outer
        return outer is entry


class Writer:
    """Owns the writing connection. All methods may be called from any thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        published: Callable[[int], None],
        *,
        is_read_only: bool = False,
    ) -> None:
        self.counters = Counters()
        self.is_read_only = is_read_only
        connection.execute(queries()["writer_cache"])
        connection.execute(queries()["stage_table"])
        self._connection = connection
        self._published = published
        self._queue: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waiting: deque[_Job] = deque()
        self._inside: Entry | None = None
        self._idle_since = 0.0
        self._ended: list[_Job] = []
        self._group_since = 0.0
        self._is_open = False
        self._is_first = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="naksha-sqlite-writer", daemon=True)
        self._thread.start()

    # ---- For callers -------------------------------------------------------------------------

    async def step(self, entry: Entry, work: Callable[[Transaction], T]) -> T:
        """Do one step of a transaction."""
        result: T = await self._ask("step", entry, work)
        return result

    async def look(self, entry: Entry, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read what a transaction sees."""
        result: T = await self._ask("look", entry, work)
        return result

    async def commit(self, entry: Entry) -> None:
        """End the transaction; returns when it is on the disk."""
        await self._ask("commit", entry, None)

    async def rollback(self, entry: Entry) -> None:
        """Give the transaction up; a closed storage has done so already."""
        if not self._closed:
            await self._ask("rollback", entry, None)

    async def task(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something of the storage's own; returns when it is on the disk."""
        result: T = await self._ask("task", None, work)
        return result

    async def close(self) -> None:
        """End the thread, after what was asked for before."""
        if not self._closed:
            self._closed = True
            await self._enqueue("close", None, None)

    async def _ask(self, kind: Kind, entry: Entry | None, work: Callable[[Any], Any] | None) -> Any:
        if self._closed:
            raise Unavailable("The storage is closed")
        if self.is_read_only and kind != "rollback":
            raise ReadOnly("The storage was opened read-only")
        return await self._enqueue(kind, entry, work)

    def _enqueue(
        self, kind: Kind, entry: Entry | None, work: Callable[[Any], Any] | None
    ) -> asyncio.Future[Any]:
        job = _Job(kind, entry, work)
        self._queue.put(job)

        def note(answer: asyncio.Future[Any]) -> None:
            job.is_given_up = answer.cancelled()

        # Not to be cancelled half-way: whoever is cancelled rolls back next.
        asked = asyncio.shield(asyncio.wrap_future(job.answer))
        asked.add_done_callback(note)
        return asked

    # ---- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        is_running = True
        while is_running:
            try:
                is_running = self._round()
            except BaseException as error:  # noqa: BLE001 - the thread must not die
                self._fail(error)
        self._waiting += self._arrived()
        for job in self._waiting:
            job.answer.set_exception(Unavailable("The storage is closed"))

    def _round(self) -> bool:
        """Do one thing; whether there is more to come."""
        job = self._next()
        if job is None:
            return True
        if job.kind != "close":
            self._do(job)
            return True
        self._step_aside()
        self._commit_group()
        self._connection.close()
        job.answer.set_result(None)
        return False

    def _fail(self, error: BaseException) -> None:
        """Something broke that is nobody's: what is not on the disk is lost, and told so."""
        self._roll_back_all()
        ended, self._ended = self._ended, []
        for job in ended:
            job.answer.set_exception(Unavailable(f"The file could not be written: {error}"))

    def _arrived(self) -> Iterator[_Job]:
        while True:
            try:
                yield self._queue.get_nowait()
            except queue.Empty:
                return

    def _next(self) -> _Job | None:
        """The next job that can be done now; None when something else was done instead."""
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

    def _pick(self) -> _Job | None:
        """Take over what has come, and choose: the one inside goes first."""
        self._waiting += self._arrived()
        if self._inside is None:
            if len(self._ended) >= GROUP_MAX:
                return None
            return self._waiting.popleft() if self._waiting else None
        for position, job in enumerate(self._waiting):
            # To give up costs nothing, and somebody inside may wait for it.
            if job.entry is self._inside or job.kind == "rollback":
                del self._waiting[position]
                return job
        return None

    def _patience(self) -> float | None:
        """How long to wait for more; None: as long as it takes."""
        if self._inside is None:
            return 0.0 if self._ended else None
        grace = GRACE_S if self._waiting or self._ended else GRACE_ALONE_S
        inside = self._inside
        if inside.keeps_place and not any(job.is_within(inside) for job in self._waiting):
            grace = GRACE_LONG_S
        return max(0.0, self._idle_since + grace - time.monotonic())

    def _make_room(self) -> None:
        """Whoever is inside and idle steps aside; what has ended is committed."""
        self._step_aside()
        self._commit_group()

    def _do(self, job: _Job) -> None:
        try:
            result = getattr(self, f"_do_{job.kind}")(job)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            if job.kind == "commit" and job.entry is not None:
                job.entry.transaction.end()
            self._abandon()
            job.answer.set_exception(of(error) if isinstance(error, sqlite3.Error) else error)
        else:
            if job.kind not in ("commit", "task"):
                job.answer.set_result(result)
        self._idle_since = time.monotonic()
        if self._ended and (
            len(self._ended) >= GROUP_MAX or self._idle_since - self._group_since > GROUP_S
        ):
            self._make_room()

    def _do_step(self, job: _Job) -> Any:
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

    def _do_look(self, job: _Job) -> Any:
        assert job.entry is not None
        assert job.work is not None
        self._enter(job.entry)
        with self._ending_with(job), translated():
            return job.work(self._connection)

    @contextmanager
    def _ending_with(self, job: _Job) -> Iterator[None]:
        """Statements end when nobody waits for them any more: others wait for the connection."""
        self._connection.set_progress_handler(lambda: job.is_given_up, LOOK_UP_INSTRUCTIONS)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)

    def _do_commit(self, job: _Job) -> None:
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

    def _do_rollback(self, job: _Job) -> None:
        assert job.entry is not None
        if self._inside is job.entry:
            self._undo()
        job.entry.transaction.end()
        self._abandon()

    def _do_task(self, job: _Job) -> None:
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

    def _end(self, job: _Job) -> None:
        """It is done, and will be told when it is on the disk."""
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
        except BaseException:
            self._roll_back_all()
            raise

    def _enter(self, entry: Entry) -> None:
        """Let a transaction in, doing again what it did before it stepped aside."""
        if self._inside is entry:
            return
        assert self._inside is None
        if entry.keeps_place and self._ended:
            self._commit_group()  # Nobody else is to wait for it.
        self._begin()
        self._open_savepoint()
        self._inside = entry
        entry.transaction.connection = self._connection
        try:
            self._do_again(entry)
        except BaseException:
            self._undo()
            raise

    def _do_again(self, entry: Entry) -> None:
        entry.transaction.begin_again()
        for step, result in entry.steps:
            try:
                with translated():
                    again = step(entry.transaction)
            except Retryable:
                raise
            except NakshaError as error:
                raise Retryable(f"Others changed what was read: {error}") from error
            if told(again) != told(result):
                raise Retryable("Others changed what was read; repeat the transaction")

    def _open_savepoint(self) -> None:
        """The first of a group needs none, which spares it a copy of every page it touches."""
        self._is_first = not self._ended
        if not self._is_first:
            self._connection.execute(queries()["savepoint"])

    def _leave(self) -> None:
        """What the transaction inside has done stays."""
        if not self._is_first:
            self._connection.execute(queries()["release"])
        self._inside = None

    def _undo(self) -> None:
        """Forget what the transaction inside has done."""
        self._inside = None
        if self._is_first or not self._connection.in_transaction:
            # A full or broken disk made SQLite forget everything, also what had ended already.
            self._fail(Unavailable("the disk failed"))
            return
        self._connection.execute(queries()["rollback_to"])
        self._connection.execute(queries()["release"])

    def _step_aside(self) -> None:
        """Written the one inside; the numbers it was given stay its own, in every process."""
        if self._inside is not None:
            self._undo()
            self._begin()
            self.counters.keep(self._connection)

    def _commit_group(self) -> None:
        """Publish, commit and tell everybody."""
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
        except BaseException as error:  # noqa: BLE001 - it is everybody's who waits
            self._roll_back_all()
            for job in ended:
                job.answer.set_exception(error)
            return
        self._is_open = False
        for job in ended:
            job.answer.set_result(job.result)
        if published:
            self._published(published)

    def _abandon(self) -> None:
        """Give the file free when there is nothing to commit."""
        if self._is_open and self._inside is None and not self._ended:
            self._roll_back_all()

    def _roll_back_all(self) -> None:
        self._is_open = False
        self._inside = None
        if self._connection.in_transaction:
            self._connection.execute(queries()["rollback"])


def told(result: object) -> object:
    """What a step told its caller, in a form that can be compared."""
    if isinstance(result, list):
        return [told(each) for each in result]
    if isinstance(result, Outcome):
        return (result.id, result.action, result.uuid, result.version)
    return result
