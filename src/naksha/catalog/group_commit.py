"""Group commit: concurrent changes of one pointer are queued and committed together.

A change that finds no leader at work starts one. The leader takes the queued changes, lets each
make its commit on top of the one before, writes the whole chain at once and moves the pointer with
one compare-and-swap: one commit for each change, in order of arrival, so none is starved. No caller
receives a result, or an error that its change raised, before the swap has confirmed that the heads
the change was based on are current.

A swap with an unknown outcome is resolved by reading the pointer. If the chain is found behind it,
the changes are committed. If the pointer has moved on without the chain, the swap can no longer
succeed, and the changes run again. While the pointer has not moved, the identical swap is repeated.
So no change is ever applied twice, and none is reported as failed that may still take effect.
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
from naksha.catalog.commits import Change, CommitAttempt, Draft, H, R, child_of, head_of
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
    """Statistics of one group of changes."""

    outcomes: Mapping[str, int]
    """Number of changes that were done, retryable, unknown, or an error; done includes reads."""
    retries: int
    slept_s: float
    duration_s: float


@dataclass(slots=True, eq=False)
class _Request(Generic[H]):
    """A queued change, with the result of its last attempt."""

    change: Change[H, Any]
    deadline: float
    answer: asyncio.Future[Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    draft: Draft = field(default_factory=Draft)
    result: Any = None
    error: BaseException | None = None
    committed: set[int] = field(default_factory=set)
    """The ids of the objects that its last attempt added to the chain."""

    @property
    def outcome(self) -> str:
        if self.error is None:
            return "done"
        if isinstance(self.error, OutcomeUnknown):
            return "unknown"
        return "retryable" if isinstance(self.error, Retryable) else "error"

    def deliver(self) -> None:
        if self.answer.done():
            return  # The caller no longer waits for it.
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
    """The state of the pointer, as it was read or as the last swap of this process left it."""

    pointer: Pointer
    head: Object[H] | None
    is_fresh: bool
    """Whether it was just read."""


@dataclass(slots=True)
class _Chain(Generic[H]):
    """The commits of a group; the pointer is to be moved to the last one."""

    base: _Base[H]
    requests: list[_Request[H]] = field(default_factory=list)
    """The changes that were tried, including those that made no commit."""
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
        """The time until which resolving an unknown outcome is worthwhile."""
        return max(request.deadline for request in self.requests)


class Committer(Generic[H]):
    """All commits of this process to one pointer, which must exist."""

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
        """Apply a change on top of the head, and return the result of the attempt that counts.

        Raises:
            Retryable: Other writers moved the pointer each time; nothing was written.
            OutcomeUnknown: The change may be committed, or may still be.
        """
        if len(self._waiting) >= limits.COMMIT_QUEUE_MAX:
            raise Retryable(
                f"Server is busy: {limits.COMMIT_QUEUE_MAX:,} changes already wait for pointer "
                f"{self._name!r}; retry later"
            )
        response: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        request = _Request(change, time.monotonic() + self._seconds_max, response)
        self._waiting.append(request)
        self._ensure_leader()
        try:
            return await response
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiting.remove(request)
            raise

    # ---- The leader --------------------------------------------------------------------------

    def _ensure_leader(self) -> None:
        """Start a leader if changes are waiting and there is none."""
        if self._leader is None and any(not request.answer.done() for request in self._waiting):
            self._leader = asyncio.create_task(self._lead())
            self._leader.add_done_callback(self._leader_ended)

    def _leader_ended(self, _: asyncio.Task[None]) -> None:
        self._leader = None
        self._ensure_leader()

    async def _lead(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), limits.COMMIT_GROUP_MAX)
            await self._commit_group([self._waiting.popleft() for _ in range(count)])

    async def _commit_group(self, group: list[_Request[H]]) -> None:
        began = time.monotonic()
        requests = list(group)
        retries = self._retries()
        try:
            await self._try(group, retries)
        except asyncio.CancelledError:
            _fail(group, self._doubt())
            raise
        except Exception as error:  # noqa: BLE001 - it is reported to all waiting callers
            _fail(group, error)
        self._notify_observer(requests, retries, time.monotonic() - began)

    def _notify_observer(
        self, requests: list[_Request[H]], retries: Retries, duration_s: float
    ) -> None:
        if self._observe is None:
            return
        outcomes = Counter(request.outcome for request in requests)
        statistics = CommitStatistics(outcomes, retries.count, retries.slept_s, duration_s)
        try:
            self._observe(statistics)
        except Exception:  # noqa: BLE001 - commits must continue
            _log.exception(
                "The callback that records statistics of commits raised an exception; the "
                "commits are not affected"
            )

    async def _try(self, group: list[_Request[H]], retries: Retries) -> None:
        """Run the changes of a group until each is decided and removed from the group."""
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
            await self._fail_expired(group, retries, cause)

    async def _try_on(self, base: _Base[H], group: list[_Request[H]], retries: Retries) -> bool:
        """Make one attempt, and return whether it decided some changes, which are then removed."""
        chain = _Chain(base)
        try:
            await self._run(chain, group, retries)
            is_true = await self._is_committed(chain, retries)
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

    async def _run(self, chain: _Chain[H], group: list[_Request[H]], retries: Retries) -> None:
        """Make one attempt of each change, as long as they fit into one write."""
        for request in group:
            if chain.size > limits.COMMIT_GROUP_BYTES_MAX:
                break
            chain.requests.append(request)
            request.committed = set()
            if not request.answer.done():
                await self._attempt(chain, request, retries)

    async def _attempt(self, chain: _Chain[H], request: _Request[H], retries: Retries) -> None:
        attempt = CommitAttempt(self._persistence, request.draft, chain.head)
        request.result = request.error = None
        running = asyncio.get_running_loop().create_task(
            _changed(request.change, attempt), context=request.context
        )
        left = request.deadline - time.monotonic()
        limit = asyncio.timeout(max(0.0, left))
        try:
            if left > 0:
                await asyncio.sleep(0)  # Most changes end without waiting, and need no timer.
            if running.done():
                request.result = running.result()
            else:
                async with limit:
                    request.result = await running
            self._add(chain, attempt, request)
        except asyncio.CancelledError as error:
            if not running.cancelled() or is_cancelled():
                running.cancel()
                raise
            request.error = error  # The change itself was cancelled.
        except Exception as error:  # noqa: BLE001 - for the caller, once the head is confirmed
            is_late = limit.expired() and isinstance(error, TimeoutError)
            request.error = self._late(retries) if is_late else error

    def _add(self, chain: _Chain[H], attempt: CommitAttempt[H], request: _Request[H]) -> None:
        """Append the commit that an attempt proposes to the chain."""
        if attempt.proposed is None:
            if attempt.used:
                raise InvalidArgument(
                    f"The change to pointer {self._name!r} wrote {len(attempt.used)} objects but"
                    " did not commit; call commit, or write no objects",
                    field="commit",
                )
            return
        if type(attempt.proposed) is not self._kind:
            raise InvalidArgument(
                f"Commits of pointer {self._name!r} must be {self._kind.__name__}, "
                f"not {type(attempt.proposed).__name__}",
                field="commit",
            )
        now = self._persistence.clock.now_us()
        commit = Object(self._persistence.new_id(), child_of(chain.head, attempt.proposed, now))
        written = self._persistence.prepared([*attempt.used, commit])
        for _, rows in written:
            decode(rows[0].type, b"".join(row.value for row in rows))  # Must be readable.
        chain.written += written
        self._persistence.hold(thing for thing, _ in written)  # For later changes.
        chain.commits.append(written[-1][0])
        chain.size += sum(len(row.value) for _, rows in written for row in rows)
        request.committed = {thing.id for thing, _ in written}

    # ---- The swap ----------------------------------------------------------------------------

    async def _is_committed(self, chain: _Chain[H], retries: Retries) -> bool:
        """Write the chain and move the pointer; return whether that is certain to have happened.

        A chain without commits only read the head: it holds if the pointer is still there.
        """
        if not chain.commits:
            return await self._is_unmoved(chain.base)
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

    async def _is_unmoved(self, base: _Base[H]) -> bool:
        """Return whether the pointer is still where this process last saw it."""
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
        """Return whether a chain with an unknown outcome was committed.

        None means that the pointer has not moved yet and the same swap must be repeated.
        """
        while True:
            try:
                return await self._find_once(chain)
            except (Unavailable, OutcomeUnknown):
                await self._pause_in_doubt(chain, retries)
            except NakshaError as error:
                raise self._doubt() from error

    async def _find_once(self, chain: _Chain[H]) -> bool | None:
        """Look once for a chain with an unknown outcome; see `_find`.

        Every commit has a new id, so commits never return a pointer to an earlier target. The swap
        compares target, life and epoch; a pending one can therefore only take effect while the
        pointer is still at the base. Repeating it there is safe: whichever of the two takes effect,
        the pointer moves to the same head, and the other one fails. Once the pointer has left the
        base, its log decides: the head is either part of it or never will be.
        """
        base, head = chain.base.pointer, chain.commits[-1]
        pointer = await self._persistence.pointer_of_any_epoch(self._name)
        if pointer is None or pointer.created != base.created:
            raise self._doubt()  # The pointer was deleted since, together with its log.
        self._last = None
        if pointer.target is not None and head.id == pointer.target.id:
            self._persistence.moves.report_move(self._persistence.realm, pointer, head.value.seq)
            return True
        if head.id in pointer.previous:
            return True
        if pointer.target == base.target:
            # With another epoch the pointer was fenced, and the swap cannot take effect any more.
            return None if pointer.epoch == base.epoch else False
        if base.target is not None and base.target.id in pointer.previous:
            return False  # All targets since the base are listed, and the head is not among them.
        return await self.log.has(pointer, head.value.seq, head.id)

    async def _pause_in_doubt(self, chain: _Chain[H], retries: Retries) -> None:
        await retries.pause(chain.deadline)
        if time.monotonic() >= chain.deadline:
            raise self._doubt()

    def _doubt(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"It is unknown whether pointer {self._name!r} was moved; check its log before"
            " retrying the change"
        )

    # ---- Afterwards --------------------------------------------------------------------------

    async def _discard(self, refs: Iterable[ObjectRef]) -> None:
        """Delete objects that nothing refers to; maintenance deletes those that remain."""
        doomed = list(refs)
        if doomed:
            with contextlib.suppress(NakshaError):
                await self._persistence.delete(doomed)

    async def _fail_expired(
        self, group: list[_Request[H]], retries: Retries, cause: NakshaError | None
    ) -> None:
        """Fail the changes whose time or number of attempts is exhausted."""
        now = time.monotonic()
        is_over = retries.count >= limits.COMMIT_RETRIES_MAX
        late = [each for each in group if is_over or each.deadline <= now or each.answer.done()]
        for request in late:
            group.remove(request)
            request.fail(cause or self._late(retries))
        await self._discard(ref for each in late for ref in each.draft.leftovers())

    def _late(self, retries: Retries) -> Retryable:
        if retries.count:
            return Retryable(
                f"Other writers moved pointer {self._name!r} during {retries.count} attempts;"
                " nothing was written, retry later"
            )
        return Retryable(
            f"The change to pointer {self._name!r} took longer than {self._seconds_max} s;"
            " retry, or make the change smaller"
        )


async def _changed(change: Change[H, R], attempt: CommitAttempt[H]) -> R:
    return await change(attempt)


def _fail(requests: Iterable[_Request[H]], error: Exception) -> None:
    for request in requests:
        request.fail(error)
