"""Waiting for the next version: many waiters, none of whom misses a version published meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class VersionSignal:
    """Last version known to an open storage, and the tasks that wait for a later one.

    Code that learns of a version calls `notify`. Versions may be published unnoticed (by another
    process, or while a connection is lost), so waiters also poll: every `poll_s` seconds one of
    them for all. To be used in one event loop.
    """

    def __init__(self, poll_s: float) -> None:
        self.last = 0
        self._poll_s = poll_s
        self._polled_s = float("-inf")
        self._next_version = asyncio.Event()

    @property
    def next_version(self) -> asyncio.Event:
        """Event set by the next version; take it before polling, so that no version is missed."""
        return self._next_version

    def notify(self, last: int) -> None:
        """Report that this version, and with it all earlier ones, is published."""
        if last > self.last:
            self.reset(last)

    def reset(self, last: int) -> None:
        """Set the last version, even back to an earlier one, and wake all waiters.

        A server that takes over may not have the versions that its predecessor reported.
        """
        self.last = last
        # A new event for later waiters: if this one were cleared, a waiter could miss it.
        next_version, self._next_version = self._next_version, asyncio.Event()
        next_version.set()

    async def wait(self, next_version: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, at most until the next poll is due; return whether it was set."""
        # Not wait_for, which swallows a cancellation that coincides with the event.
        try:
            async with asyncio.timeout(min(seconds, self._poll_s)):
                await next_version.wait()
        except TimeoutError:
            return False
        return True

    async def wait_beyond(
        self, seq_number: int, timeout_s: float, poll: Callable[[], Awaitable[int]]
    ) -> int:
        """Implement `Storage.wait_beyond`; `poll` publishes what is pending, returns the last."""
        deadline = monotonic() + timeout_s
        await self._poll(poll)
        while self.last <= seq_number:
            left = deadline - monotonic()
            if left <= 0:
                break
            came = await self.wait(self._next_version, left)
            if not came and monotonic() - self._polled_s >= self._poll_s:
                await self._poll(poll)
        return self.last

    async def _poll(self, poll: Callable[[], Awaitable[int]]) -> None:
        # Set the time first, so that other waiters do not poll too; reset it on failure.
        before, self._polled_s = self._polled_s, monotonic()
        try:
            self.notify(await poll())
        except BaseException:
            self._polled_s = before
            raise
