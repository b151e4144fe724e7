"""Group commit: changes on one pointer wait in line, and are committed together.

Whoever finds nobody at work leads. The leader takes what waits, lets each change make its commit on
top of the one before, writes the whole chain at once and moves the pointer with one swap: one
commit for each change, in the order they came, none starved. Nobody learns of a result, nor of an
error that his change raised, before the swap has decided that the heads they stood on are true.

A swap whose outcome is unknown is looked for: when the chain is found behind the pointer, it is
done; when the pointer has moved on without it, it can never be done any more, and the changes run
again; while the pointer has not moved, the very same swap is tried again. So no change is ever
applied twice, and none is called failed that may still come true.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic

from naksha.catalog.commit_log import CommitLog
from naksha.catalog.commits import Attempt, Change, Draft, H, R, child_of, head_of
from naksha.catalog.objects import Object, ObjectRef, decode
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.catalog.retry import Retries
from naksha.model import limits
from naksha.model.errors import (
    InvalidArgument,
    NakshaError,
    OutcomeUnknown,
    Retryable,
    Unavailable,
)
from naksha.spi.catalog import ObjectRow
from naksha.spi.support.cancellation import is_cancelled

Written = list[tuple[Object[Any], list[ObjectRow]]]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """How one group of changes went."""

    outcomes: Mapping[str, int]
    """How many of them were done, retryable, unknown, or an error; done includes looks."""
    retries: int
    slept_s: float
    duration_s: float


@dataclass(slots=True, eq=False)
class _Request(Generic[H]):
    """A change that waits for its turn, and what its last attempt gave."""

    change: Change[H, Any]
    deadline: float
    answer: asyncio.Future[Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    draft: Draft = field(default_factory=Draft)
    result: Any = None
    error: BaseException | None = None
    committed: set[int] = field(default_factory=set)
    """The ids of what its last attempt put into the chain."""

    @property
    def outcome(self) -> str:
        if self.error is None:
            return "done"
        if isinstance(self.error, OutcomeUnknown):
            return "unknown"
        return "retryable" if isinstance(self.error, Retryable) else "error"

    def deliver(self) -> None:
        if self.answer.done():
            return  # nobody waits for it any more
        if isinstance(self.error, asyncio.CancelledError):
            self.answer.cancel()
        elif self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.deliver()


@dataclass(slots=True)
class _Base(Generic[H]):
    """Where the pointer stands: as it was read, or as our own last swap left it."""

    pointer: Pointer
    head: Object[H] | None
    is_fresh: bool
    """Whether it was just read."""


@dataclass(slots=True)
class _Chain(Generic[H]):
    """The commits of a group, the last one being where the pointer is to go."""

    base: _Base[H]
    requests: list[_Request[H]] = field(default_factory=list)
    """Those that were tried, also when they made no commit."""
    commits: list[Object[H]] = field(default_factory=list)
    written: Written = field(default_factory=list)
    size: int = 0

    @property
    def head(self) -> Object[H] | None:
        return self.commits[-1] if self.commits else self.base.head

    @property
    def objects(self) -> list[Object[Any]]:
        return [thing for thing, _ in self.written]

    @property
    def deadline(self) -> float:
        """Until when it is worth to find out what became of it."""
        return max(request.deadline for request in self.requests)


class Committer(Generic[H]):
    """All commits of this process on one pointer, which must exist."""

    def __init__(
        self,
        persistence: Persistence,
        name: str,
        kind: type[H],
        *,
        seconds_max: float = limits.COMMIT_SECONDS_MAX,
        retries: Callable[[], Retries] = Retries,
        observe: Callable[[CommitStatistics], None] | None = None,
    ) -> None:
        self.log = CommitLog(persistence, name, kind)
        self._persistence = persistence
        self._name = name
        self._kind = kind
        self._seconds_max = seconds_max
        self._retries = retries
        self._observe = observe
        self._waiting: deque[_Request[H]] = deque()
        self._leader: asyncio.Task[None] | None = None
        self._last: _Base[H] | None = None

    async def commit(self, change: Change[H, R]) -> R:
        """Carry a change out on top of the head; gives what it returned in the attempt that counts.

        Raises:
            Retryable: Others were faster all the time; nothing was written.
            OutcomeUnknown: It may have been committed, or may be yet.
        """
        if len(self._waiting) >= limits.COMMIT_QUEUE_MAX:
            raise Retryable(
                f"{limits.COMMIT_QUEUE_MAX:,} changes wait for pointer {self._name!r} already"
            )
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        request = _Request(change, time.monotonic() + self._seconds_max, answer)
        self._waiting.append(request)
        self._see_to_it()
        try:
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiting.remove(request)
            raise

    # ---- The leader --------------------------------------------------------------------------

    def _see_to_it(self) -> None:
        """Have somebody lead while there is somebody who waits."""
        if self._leader is None and any(not request.answer.done() for request in self._waiting):
            self._leader = asyncio.create_task(self._lead())
            self._leader.add_done_callback(self._leader_ended)

    def _leader_ended(self, _: asyncio.Task[None]) -> None:
        self._leader = None
        self._see_to_it()

    async def _lead(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), limits.COMMIT_GROUP_MAX)
            await self._commit_group([self._waiting.popleft() for _ in range(count)])

    async def _commit_group(self, group: list[_Request[H]]) -> None:
        began = time.monotonic()
        everybody = list(group)
        retries = self._retries()
        try:
            await self._try(group, retries)
        except asyncio.CancelledError:
            _fail(group, self._doubt())
            raise
        except Exception as error:  # noqa: BLE001 - it is told to everybody who waits
            _fail(group, error)
        self._tell_observer(everybody, retries, time.monotonic() - began)

    def _tell_observer(
        self, everybody: list[_Request[H]], retries: Retries, duration_s: float
    ) -> None:
        if self._observe is None:
            return
        outcomes = Counter(request.outcome for request in everybody)
        statistics = CommitStatistics(outcomes, retries.count, retries.slept_s, duration_s)
        try:
            self._observe(statistics)
        except Exception:  # noqa: BLE001 - whatever it is, commits go on
            _log.exception("An observer of commits failed")

    async def _try(self, group: list[_Request[H]], retries: Retries) -> None:
        """Let the changes of a group run until each is decided; they leave it as they are."""
        while group:
            retries.begin()
            cause: NakshaError | None = None
            try:
                if await self._try_on(self._last or await self._read(), group, retries):
                    continue
            except Unavailable as error:
                cause = error
            self._last = None
            await retries.pause(group[0].deadline)
            await self._end_late(group, retries, cause)

    async def _try_on(self, base: _Base[H], group: list[_Request[H]], retries: Retries) -> bool:
        """One attempt; whether some of the group were decided by it, and have left."""
        chain = _Chain(base)
        try:
            await self._run(chain, group)
            is_true = await self._is_true(chain, retries)
        except OutcomeUnknown as error:
            self._last = None
            del group[: len(chain.requests)]
            _fail(chain.requests, error)
            return True
        finally:
            self._persistence.release(chain.objects)
        if not is_true:
            await self._discard(commit.ref for commit in chain.commits)
            return False
        del group[: len(chain.requests)]
        for request in chain.requests:
            request.deliver()
        await self._discard(
            ref for each in chain.requests for ref in each.draft.leftovers(each.committed)
        )
        return True

    # ---- One attempt -------------------------------------------------------------------------

    async def _read(self) -> _Base[H]:
        pointer = await self._persistence.pointer_now(self._name)
        head = await head_of(self._persistence, pointer, self._kind)
        return _Base(pointer, head, is_fresh=True)

    async def _run(self, chain: _Chain[H], group: list[_Request[H]]) -> None:
        """One attempt of each change, as far as they fit into one write."""
        for request in group:
            if chain.size > limits.COMMIT_GROUP_BYTES_MAX:
                break
            chain.requests.append(request)
            request.committed = set()
            if not request.answer.done():
                await self._attempt(chain, request)

    async def _attempt(self, chain: _Chain[H], request: _Request[H]) -> None:
        attempt = Attempt(self._persistence, request.draft, chain.head)
        request.result = request.error = None
        running = asyncio.get_running_loop().create_task(
            _changed(request.change, attempt), context=request.context
        )
        limit = asyncio.timeout(max(0.0, request.deadline - time.monotonic()))
        try:
            async with limit:
                request.result = await running
            self._add(chain, attempt, request)
        except asyncio.CancelledError as error:
            if not running.cancelled() or is_cancelled():
                running.cancel()
                raise
            request.error = error  # by the change itself
        except Exception as error:  # noqa: BLE001 - it is the caller's, once it is true
            is_late = limit.expired() and isinstance(error, TimeoutError)
            late = Retryable("The change took longer than a commit may take")
            request.error = late if is_late else error

    def _add(self, chain: _Chain[H], attempt: Attempt[H], request: _Request[H]) -> None:
        """Put the commit that an attempt proposes onto the chain."""
        if attempt.proposed is None:
            if attempt.used:
                raise InvalidArgument(
                    "A change that commits nothing must not write", field="commit"
                )
            return
        if type(attempt.proposed) is not self._kind:
            raise InvalidArgument(
                f"Pointer {self._name!r} has commits that are {self._kind.__name__}, "
                f"not {type(attempt.proposed).__name__}",
                field="commit",
            )
        now = self._persistence.clock.now_us()
        commit = Object(self._persistence.new_id(), child_of(chain.head, attempt.proposed, now))
        written = self._persistence.prepared([*attempt.used, commit])
        for _, rows in written:
            decode(rows[0].type, b"".join(row.value for row in rows))  # or nobody could read it
        chain.written += written
        self._persistence.hold(thing for thing, _ in written)  # for those who follow in the chain
        chain.commits.append(written[-1][0])
        chain.size += sum(len(row.value) for _, rows in written for row in rows)
        request.committed = {thing.id for thing, _ in written}

    # ---- The swap ----------------------------------------------------------------------------

    async def _is_true(self, chain: _Chain[H], retries: Retries) -> bool:
        """Write the chain and move the pointer; whether that was done, beyond doubt."""
        if not chain.commits:
            return await self._is_still(chain.base)
        is_in_doubt = False
        while True:
            try:
                moved = await self._publish(chain)
            except OutcomeUnknown:
                is_in_doubt, moved = True, False
            except Unavailable:
                if not is_in_doubt:
                    raise
                moved = False
            if moved or not is_in_doubt:
                return moved
            found = await self._find(chain, retries)
            if found is not None:
                return found
            await self._pause_in_doubt(chain, retries)

    async def _is_still(self, base: _Base[H]) -> bool:
        """Whether nobody has moved the pointer since we left it there."""
        if base.is_fresh:
            return True
        pointer = await self._persistence.pointer_now(self._name)
        return (pointer.target, pointer.created) == (base.pointer.target, base.pointer.created)

    async def _publish(self, chain: _Chain[H]) -> bool:
        head = chain.commits[-1]
        moved = await self._persistence.publish(
            chain.written, chain.base.pointer, head.ref, head.value.seq
        )
        if moved is None:
            return False
        self._last = _Base(moved, head, is_fresh=False)
        return True

    async def _find(self, chain: _Chain[H], retries: Retries) -> bool | None:
        """Whether a chain in doubt was committed; None while the pointer has not moved, and the
        same swap decides it."""
        while True:
            try:
                return await self._look_for(chain)
            except (Unavailable, OutcomeUnknown):
                await self._pause_in_doubt(chain, retries)
            except NakshaError as error:
                raise self._doubt() from error

    async def _look_for(self, chain: _Chain[H]) -> bool | None:
        base, head = chain.base.pointer, chain.commits[-1]
        pointer = await self._persistence.pointer_as_it_is(self._name)
        if pointer is None or pointer.created != base.created:
            raise self._doubt()  # it was deleted since, and its log with it
        self._last = None
        if pointer.target is not None and head.id == pointer.target.id:
            self._persistence.moves.tell(self._persistence.realm, pointer, head.value.seq)
            return True
        if head.id in pointer.previous:
            return True
        if pointer.target == base.target:
            # Fenced meanwhile: the swap cannot come true any more.
            return None if pointer.epoch == base.epoch else False
        if base.target is not None and base.target.id in pointer.previous:
            return False  # all that it pointed to since is listed
        return await self.log.has(pointer, head.value.seq, head.id)

    async def _pause_in_doubt(self, chain: _Chain[H], retries: Retries) -> None:
        await retries.pause(chain.deadline)
        if time.monotonic() >= chain.deadline:
            raise self._doubt()

    def _doubt(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Whether pointer {self._name!r} was moved is not known; look at its log before the "
            "change is repeated"
        )

    # ---- Afterwards --------------------------------------------------------------------------

    async def _discard(self, refs: Iterable[ObjectRef]) -> None:
        """Delete what nothing points to; what cannot be deleted now, maintenance will."""
        doomed = list(refs)
        if doomed:
            with contextlib.suppress(NakshaError):
                await self._persistence.delete(doomed)

    async def _end_late(
        self, group: list[_Request[H]], retries: Retries, cause: NakshaError | None
    ) -> None:
        """Give up the changes whose time is over."""
        now = time.monotonic()
        is_over = retries.count >= limits.COMMIT_RETRIES_MAX
        late = [each for each in group if is_over or each.deadline <= now or each.answer.done()]
        for request in late:
            group.remove(request)
            request.fail(
                cause
                or Retryable(
                    f"Others moved pointer {self._name!r} all the time, "
                    f"in {retries.count} attempts; nothing was written"
                )
            )
        await self._discard(ref for each in late for ref in each.draft.leftovers())


async def _changed(change: Change[H, R], attempt: Attempt[H]) -> R:
    return await change(attempt)


def _fail(requests: Iterable[_Request[H]], error: Exception) -> None:
    for request in requests:
        request.fail(error)
