"""Waiting for the next version: many waiters, none of whom misses a version published meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class VersionSignal:
    """Last version known to an open storage, and the tasks that wait for a later one.

    Code that learns of a version calls `tell`. Versions may be published unnoticed (by another
    process, or while a connection is lost), so waiters also poll: every `look_s` seconds one of
    them for all. To be used in one event loop.
    """

    def __init__(self, look_s: float) -> None:
        self.last = 0
        self._look_s = look_s
        self._looked_s = float("-inf")
        self._coming = asyncio.Event()

    @property
    def coming(self) -> asyncio.Event:
        """Event set by the next version; take it before polling, so that no version is missed."""
        return self._coming

    def tell(self, last: int) -> None:
        """Report that this version, and with it all earlier ones, is published."""
        if last > self.last:
            self.correct(last)

    def correct(self, last: int) -> None:
        """Set the last version, even back to an earlier one, and wake all waiters.

        A server that takes over may not have the versions that its predecessor reported.
        """
        self.last = last
        # A new event for later waiters: if this one were cleared, a waiter could miss it.
        coming, self._coming = self._coming, asyncio.Event()
        coming.set()

    async def wait(self, coming: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, at most until the next poll is due; return whether it was set."""
        # Not wait_for, which swallows a cancellation that coincides with the event.
        try:
            async with asyncio.timeout(min(seconds, self._look_s)):
                await coming.wait()
        except TimeoutError:
            return False
        return True

    async def beyond(
        self, seq_number: int, timeout_s: float, look: Callable[[], Awaitable[int]]
    ) -> int:
        """Implement `Storage.wait_beyond`; `look` publishes what is pending, returns the last."""
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
        # Set the time first, so that other waiters do not poll too; reset it on failure.
        before, self._looked_s = self._looked_s, monotonic()
        try:
            self.tell(await look())
        except BaseException:
            self._looked_s = before
            raise
