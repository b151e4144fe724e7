"""Admission control: limits on parallel requests, in total and per actor.

A request over a limit waits in the queue of its actor. Free slots are assigned to the queues in
round-robin order, so that an actor with a thousand requests delays no other actor.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, NamedTuple

from naksha.model.errors import Busy


class AdmissionLimits(NamedTuple):
    """Limits on parallel requests, on the queue of each actor, and on the time in the queue."""

    parallel: int
    actor_parallel: int
    actor_queue: int
    queue_seconds: float


class AdmissionSlot:
    """The slot of one request. It can be released before the request ends, and only once."""

    def __init__(self, admission: AdmissionController, actor: Hashable) -> None:
        self._admission = admission
        self._actor = actor
        self._is_in = False

    async def enter(self) -> None:
        """Acquire the slot; see `AdmissionController.enter`."""
        await self._admission.enter(self._actor)
        self._is_in = True

    def leave(self) -> None:
        """Release the slot early: from now on the request only waits, or is limited otherwise."""
        if self._is_in:
            self._is_in = False
            self._admission.leave(self._actor)


class AdmissionController:
    """Admission controller of one event loop."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits: Final = limits
        self.running = 0
        self.waiting = 0
        self._running_of: dict[Hashable, int] = {}
        # In round-robin order: the queue to be served next is the first.
        self._lines: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def enter(self, actor: Hashable) -> None:
        """Wait for a slot; the caller must release it with `leave`.

        Raises:
            Busy: The actor's queue is full, or the request waited too long.
        """
        if self._has_slot(actor) and actor not in self._lines:
            self._take(actor)
        else:
            await self._wait(actor)

    def leave(self, actor: Hashable) -> None:
        """Release the slot and pass it to the next request."""
        self.running -= 1
        left = self._running_of[actor] - 1
        if left:
            self._running_of[actor] = left
        else:
            del self._running_of[actor]
        self._call_next()

    def _has_slot(self, actor: Hashable) -> bool:
        return (
            self.running < self.limits.parallel
            and self._running_of.get(actor, 0) < self.limits.actor_parallel
        )

    def _take(self, actor: Hashable) -> None:
        self.running += 1
        self._running_of[actor] = self._running_of.get(actor, 0) + 1

    def _call_next(self) -> None:
        """Assign free slots to waiting requests, at most one per queue.

        A queue that got a slot moves to the end.
        """
        for actor in list(self._lines):
            if self.running >= self.limits.parallel:
                return
            if not self._has_slot(actor):
                continue
            line = self._lines[actor]
            while line:
                waiter = line.popleft()
                self.waiting -= 1
                if not waiter.done():  # else its request was cancelled while it waited
                    waiter.set_result(None)
                    self._take(actor)
                    break
            self._lines.move_to_end(actor)
            self._forget_empty(actor)

    async def _wait(self, actor: Hashable) -> None:
        line = self._lines.setdefault(actor, deque())
        if len(line) >= self.limits.actor_queue:
            self._forget_empty(actor)
            raise Busy(
                f"Too many parallel requests: {self.limits.actor_parallel} of this client are "
                f"running and {len(line)} are queued; retry when some of them have ended"
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(waiter)
        self.waiting += 1
        try:
            async with asyncio.timeout(self.limits.queue_seconds):
                await waiter
        except BaseException as error:
            self._give_up(actor, waiter)
            if isinstance(error, TimeoutError):
                raise Busy(
                    f"Server is busy: the request waited {self.limits.queue_seconds:g} seconds "
                    "for a slot; retry later"
                ) from None
            raise

    def _give_up(self, actor: Hashable, waiter: asyncio.Future[None]) -> None:
        """Leave the queue, or release the slot if it was assigned at the same moment."""
        if waiter.done() and not waiter.cancelled():
            self.leave(actor)
            return
        line = self._lines.get(actor, ())
        if waiter in line:
            self._lines[actor].remove(waiter)
            self.waiting -= 1
            self._forget_empty(actor)

    def _forget_empty(self, actor: Hashable) -> None:
        if not self._lines[actor]:
            del self._lines[actor]
