"""Who is served when: so many requests at once, and of each actor only some of them.

What is over a limit waits in the line of its actor. When a place gets free the lines take turns, so
that one actor with a thousand requests holds up nobody but himself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, NamedTuple

from naksha.model.errors import Busy


class TurnLimits(NamedTuple):
    """How many at once, and how many wait for how long."""

    parallel: int
    actor_parallel: int
    actor_queue: int
    queue_seconds: float


class Turn:
    """The place of one request. It may be left before the request ends, and is left once."""

    def __init__(self, turns: Turns, actor: Hashable) -> None:
        self._turns = turns
        self._actor = actor
        self._is_in = False

    async def enter(self) -> None:
        """See `Turns.enter`."""
        await self._turns.enter(self._actor)
        self._is_in = True

    def leave(self) -> None:
        """What is done from now on takes nobody's place: it only waits, or is counted otherwise."""
        if self._is_in:
            self._is_in = False
            self._turns.leave(self._actor)


class Turns:
    """For one event loop."""

    def __init__(self, limits: TurnLimits) -> None:
        self.limits: Final = limits
        self.running = 0
        self.waiting = 0
        self._running_of: dict[Hashable, int] = {}
        # The next one to be served stands first.
        self._lines: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def enter(self, actor: Hashable) -> None:
        """Wait for a place; whoever got one has to leave it.

        Raises:
            Busy: Too many wait already, or it took too long.
        """
        if self._has_place(actor) and actor not in self._lines:
            self._take(actor)
        else:
            await self._wait(actor)

    def leave(self, actor: Hashable) -> None:
        """Give the place to the next one."""
        self.running -= 1
        left = self._running_of[actor] - 1
        if left:
            self._running_of[actor] = left
        else:
            del self._running_of[actor]
        self._call_next()

    def _has_place(self, actor: Hashable) -> bool:
        return (
            self.running < self.limits.parallel
            and self._running_of.get(actor, 0) < self.limits.actor_parallel
        )

    def _take(self, actor: Hashable) -> None:
        self.running += 1
        self._running_of[actor] = self._running_of.get(actor, 0) + 1

    def _call_next(self) -> None:
        """Serve as many of those who wait as there are places, one of each line; a line that had
        its turn goes to the end."""
        for actor in list(self._lines):
            if self.running >= self.limits.parallel:
                return
            if not self._has_place(actor):
                continue
            line = self._lines[actor]
            while line:
                place = line.popleft()
                self.waiting -= 1
                if not place.done():  # else whoever waited has gone
                    place.set_result(None)
                    self._take(actor)
                    break
            self._lines.move_to_end(actor)
            self._forget_empty(actor)

    async def _wait(self, actor: Hashable) -> None:
        line = self._lines.setdefault(actor, deque())
        if len(line) >= self.limits.actor_queue:
            self._forget_empty(actor)
            raise Busy(
                f"{self.limits.actor_parallel} of your requests are being served and {len(line)} "
                "wait; come again when some of them are done"
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(place)
        self.waiting += 1
        try:
            async with asyncio.timeout(self.limits.queue_seconds):
                await place
        except BaseException as error:
            self._give_up(actor, place)
            if isinstance(error, TimeoutError):
                raise Busy(
                    f"It was not your turn within {self.limits.queue_seconds:g} seconds; "
                    "come again later"
                ) from None
            raise

    def _give_up(self, actor: Hashable, place: asyncio.Future[None]) -> None:
        """Leave the line; or the place, if it was given in the same moment."""
        if place.done() and not place.cancelled():
            self.leave(actor)
            return
        line = self._lines.get(actor, ())
        if place in line:
            self._lines[actor].remove(place)
            self.waiting -= 1
            self._forget_empty(actor)

    def _forget_empty(self, actor: Hashable) -> None:
        if not self._lines[actor]:
            del self._lines[actor]
