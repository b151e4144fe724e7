"""Waiting for the next version: many at once, none of whom misses what comes while it looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class News:
    """The last version that an open storage knows of, and those who wait for a later one.

    Whoever hears of a version tells it. For news that nobody hears (of another process, or over a
    connection that is lost) those who wait look for themselves: every `look_s` seconds one of them
    for all. To be used in one event loop."""

    def __init__(self, look_s: float) -> None:
        self.last = 0
        self._look_s = look_s
        self._looked_s = float("-inf")
        self._coming = asyncio.Event()

    @property
    def coming(self) -> asyncio.Event:
        """What the next news sets. Taken before looking, it tells what came meanwhile too."""
        return self._coming

    def tell(self, last: int) -> None:
        """This version is published, and with it all before."""
        if last > self.last:
            self.correct(last)

    def correct(self, last: int) -> None:
        """This is the last version, even if a later one was told: a server that takes over may not
        know it. Whoever waits looks again."""
        self.last = last
        # Another one for those who come from now on: an event that is cleared could be missed.
        coming, self._coming = self._coming, asyncio.Event()
        coming.set()

    async def wait(self, coming: asyncio.Event, seconds: float) -> bool:
        """Whether the news came, within a time that is never longer than between two looks."""
        # Not wait_for, which forgets a cancellation that comes together with the event.
        try:
            async with asyncio.timeout(min(seconds, self._look_s)):
                await coming.wait()
        except TimeoutError:
            return False
        return True

    async def beyond(
        self, seq_number: int, timeout_s: float, look: Callable[[], Awaitable[int]]
    ) -> int:
        """See `Storage.wait_beyond`. `look` publishes what can be, and gives the last version."""
        deadline = monotonic() + timeout_s
        await self._look(look)
        while self.last <= seq_number:
            left = deadline - monotonic()
            if left <= 0:
                break
            came = await self.wait(self._coming, left)
            if not came and monotonic() - self._looked_s >= self._look_s:
                await self._look(look)
        return self.last

    async def _look(self, look: Callable[[], Awaitable[int]]) -> None:
        # From its beginning on others need not look; if it fails, the next one does.
        before, self._looked_s = self._looked_s, monotonic()
        try:
            self.tell(await look())
        except BaseException:
            self._looked_s = before
            raise
