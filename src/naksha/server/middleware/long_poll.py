"""Requests that wait for something to happen: counted by themselves, since they take no turns, and
ended when the server is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from naksha.model import limits
from naksha.model.errors import Busy
from naksha.server.metrics import WATCHERS

T = TypeVar("T")


class Watchers:
    """Those of one worker."""

    def __init__(
        self,
        most: int = limits.FEED_WATCHERS_MAX,
        most_of_actor: int = limits.FEED_WATCHERS_PER_ACTOR_MAX,
    ) -> None:
        self._most: Final = most
        self._most_of_actor: Final = most_of_actor
        self._of: Counter[Hashable] = Counter()
        self._end = asyncio.Event()

    @property
    def number(self) -> int:
        """How many there are."""
        return self._of.total()

    @property
    def is_ending(self) -> bool:
        """Whether nobody should wait any more."""
        return self._end.is_set()

    def end(self) -> None:
        """The server stops: whoever waits is told so."""
        self._end.set()

    def _enter(self, actor: Hashable) -> None:
        if self._of[actor] >= self._most_of_actor:
            raise Busy(
                f"You have {self._of[actor]} streams and requests that wait; end some of them"
            )
        if self.number >= self._most:
            raise Busy(f"{self._most} streams and requests wait already; come again later")
        self._of[actor] += 1
        WATCHERS.inc()

    def _leave(self, actor: Hashable) -> None:
        self._of[actor] -= 1
        WATCHERS.dec()
        if not self._of[actor]:
            del self._of[actor]

    @contextmanager
    def place(self, actor: Hashable) -> Iterator[None]:
        """One more for the block.

        Raises:
            Busy: They are too many.
        """
        self._enter(actor)
        try:
            yield
        finally:
            self._leave(actor)

    async def unless_ending(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What somebody waits for; None when the server stops before."""
        waiting = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            for task in (waiting, ending):
                task.cancel()
            await asyncio.gather(waiting, ending, return_exceptions=True)
