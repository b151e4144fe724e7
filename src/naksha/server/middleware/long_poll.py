"""Limits on long-polling requests and event streams.

They hold no admission slot, so they are counted here, and they end when the server shuts down.
"""

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


class LongPolls:
    """Long-polling requests and streams of one worker."""

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
        """The number of waiting requests."""
        return self._of.total()

    def end(self) -> None:
        """Wake all waiting requests: the server is shutting down."""
        self._end.set()

    def _enter(self, actor: Hashable) -> None:
        if self._of[actor] >= self._most_of_actor:
            raise Busy(
                f"This client has {self._of[actor]} open streams and long-polling requests, the "
                "maximum; close some of them"
            )
        if self.number >= self._most:
            raise Busy(
                f"The server has {self._most} open streams and long-polling requests, the "
                "maximum; retry later"
            )
        self._of[actor] += 1
        WATCHERS.inc()

    def _leave(self, actor: Hashable) -> None:
        self._of[actor] -= 1
        WATCHERS.dec()
        if not self._of[actor]:
            del self._of[actor]

    @contextmanager
    def place(self, actor: Hashable) -> Iterator[None]:
        """Count one waiting request for the block.

        Raises:
            Busy: The limit of the actor or of the worker is reached.
        """
        self._enter(actor)
        try:
            yield
        finally:
            self._leave(actor)

    async def unless_ending(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or None if the server shuts down first."""
        waiting = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            for task in (waiting, ending):
                task.cancel()
            await asyncio.gather(waiting, ending, return_exceptions=True)
