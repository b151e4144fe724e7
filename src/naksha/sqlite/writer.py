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
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from naksha.model.errors import NakshaError, Retryable, Unavailable
from naksha.sqlite.errors import of, translated
from naksha.sqlite.sql import queries
from naksha.sqlite.transaction import INT8_MAX, Counters, Transaction, publish

T = TypeVar("T")
GRACE_S: Final = 0.005
"""How long a transaction that is in may do nothing while others wait."""
GRACE_ALONE_S: Final = 0.2
"""The same when nobody waits in this process; but perhaps in another one."""
GROUP_MAX: Final = 256
GROUP_S: Final = 0.02
"""How many transactions are committed together, and how long the first of them waits."""

Kind = Literal["step", "look", "commit", "rollback", "task", "close"]


@dataclass(slots=True, eq=False)
class Entry:
    """A transaction as the writer knows it."""

    transaction: Transaction
    steps: list[Callable[[Transaction], Any]] = field(default_factory=list)
    keeps_place: bool = False
    """Whether it does not step aside: it has been overtaken too often."""


@dataclass(slots=True, eq=False)
class _Job:
    kind: Kind
    entry: Entry | None
    work: Callable[[Any], Any] | None
    answer: Future[Any] = field(default_factory=Future)


class Writer:
    """Owns the writing connection. All methods may be called from any thread."""

    def __init__(self, connection: sqlite3.Connection, committed: Callable[[], None]) -> None:
        self.counters = Counters()
        connection.execute(queries()["stage_table"])
        self._connection = connection
        self._committed = committed
        self._queue: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waiting: deque[_Job] = deque()
        self._inside: Entry | None = None
        self._idle_since = 0.0
        self._ended: list[_Job] = []
        self._group_since = 0.0
        self._is_open = False
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
        await self._ask("rollback", entry, None)

    async def task(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something of the storage's own, in a transaction of SQLite's."""
        result: T = await self._ask("task", None, work)
        return result

    async def close(self) -> None:
        """End the thread, after what was asked for before."""
        if not self._closed:
            await self._ask("close", None, None)
            self._closed = True

    async def _ask(self, kind: Kind, entry: Entry | None, work: Callable[[Any], Any] | None) -> Any:
        if self._closed:
            raise Unavailable("The storage is closed")
        job = _Job(kind, entry, work)
        self._queue.put(job)
        # Not to be cancelled half-way: whoever is cancelled rolls back next.
        return await asyncio.shield(asyncio.wrap_future(job.answer))

    # ---- The thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            job = self._next()
            if job is None:
                continue
            if job.kind == "close":
                self._step_aside()
                self._commit_group()
                self._connection.close()
                job.answer.set_result(None)
                return
            self._do(job)

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
        while True:
            try:
                self._waiting.append(self._queue.get_nowait())
            except queue.Empty:
                break
        if self._inside is None:
            if self._ended and len(self._ended) >= GROUP_MAX:
                return None
            return self._waiting.popleft() if self._waiting else None
        for position, job in enumerate(self._waiting):
            if job.entry is self._inside:
                del self._waiting[position]
                return job
        return None

    def _patience(self) -> float | None:
        """How long to wait for more; None: as long as it takes."""
        now = time.monotonic()
        if self._inside is None:
            return 0.0 if self._ended else None
        if self._inside.keeps_place:
            return None
        grace = GRACE_S if self._waiting or self._ended else GRACE_ALONE_S
        return max(0.0, self._idle_since + grace - now)

    def _make_room(self) -> None:
        """Whoever is inside and idle steps aside; what has ended is committed."""
        self._step_aside()
        self._commit_group()

    def _do(self, job: _Job) -> None:
        try:
            result = getattr(self, f"_do_{job.kind}")(job)
        except sqlite3.Error as error:
            job.answer.set_exception(of(error))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            job.answer.set_exception(error)
        else:
            if job.kind != "commit":
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
            result = job.work(entry.transaction)
        except BaseException:
            self._undo()
            raise
        entry.steps.append(job.work)
        return result

    def _do_look(self, job: _Job) -> Any:
        assert job.entry is not None
        assert job.work is not None
        self._enter(job.entry)
        return job.work(self._connection)

    def _do_commit(self, job: _Job) -> None:
        assert job.entry is not None
        entry = job.entry
        self._enter(entry)
        try:
            entry.transaction.write_log()
        except BaseException:
            self._undo()
            raise
        self._connection.execute(queries()["release"])
        self._inside = None
        entry.transaction.end()
        if not self._ended:
            self._group_since = time.monotonic()
        self._ended.append(job)

    def _do_rollback(self, job: _Job) -> None:
        assert job.entry is not None
        if self._inside is job.entry:
            self._undo()
        job.entry.transaction.end()
        if not self._ended:
            self._abandon()

    def _do_task(self, job: _Job) -> Any:
        assert job.work is not None
        self._begin()
        self._connection.execute(queries()["savepoint"])
        try:
            result = job.work(self._connection)
        except BaseException:
            self._undo()
            raise
        self._connection.execute(queries()["release"])
        self._commit_group()
        return result

    # ---- SQLite's transaction ----------------------------------------------------------------

    def _begin(self) -> None:
        if not self._is_open:
            self._connection.execute(queries()["begin"])
            self._is_open = True
            self._connection.execute(queries()["managed"], (1,))

    def _enter(self, entry: Entry) -> None:
        """Let a transaction in, doing again what it did before it stepped aside."""
        if self._inside is entry:
            return
        assert self._inside is None
        self._begin()
        self._connection.execute(queries()["savepoint"])
        self._inside = entry
        entry.transaction.connection = self._connection
        try:
            entry.transaction.begin_again()
            for step in entry.steps:
                step(entry.transaction)
        except (NakshaError, sqlite3.IntegrityError) as error:
            self._undo()
            if isinstance(error, Retryable) or not entry.steps:
                raise
            raise Retryable(f"A later transaction changed what was read: {error}") from error
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        """Forget what the transaction inside has done."""
        self._inside = None
        if self._connection.in_transaction:
            self._connection.execute(queries()["rollback_to"])
            self._connection.execute(queries()["release"])
            return
        # A full or broken disk made SQLite forget everything, also what had ended already.
        self._is_open = False
        ended, self._ended = self._ended, []
        for job in ended:
            job.answer.set_exception(Unavailable("The disk failed; nothing was written"))

    def _step_aside(self) -> None:
        if self._inside is not None:
            self._undo()

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
            job.answer.set_result(None)
        if published or ended:
            self._committed()

    def _abandon(self) -> None:
        """Give the file free when there is nothing to commit."""
        if self._is_open and self._inside is None and not self._ended:
            self._roll_back_all()

    def _roll_back_all(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute(queries()["rollback"])
        self._is_open = False
        self._inside = None
