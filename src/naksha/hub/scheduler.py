"""Periodic scan of all realms for background work of this hub instance."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Final

from naksha.catalog.realms import RealmStatus
from naksha.hub.hub import Hub, RealmHub
from naksha.model.errors import NakshaError, RealmNotFound
from naksha.spi.support.cancellation import check_cancelled

_log: Final = logging.getLogger(__name__)


class RealmScanner:
    """Periodic task that visits all active realms in random order.

    An error in one realm does not affect the others. `serving`, if given, is called first with the
    ids of all active realms.
    """

    def __init__(
        self,
        hub: Hub,
        what: str,
        pause_seconds: float,
        *,
        serving: Callable[[Collection[str]], Awaitable[None]] | None = None,
        look: Callable[[RealmHub], Awaitable[None]],
    ) -> None:
        self._hub = hub
        self._what = what
        self._pause_seconds = pause_seconds
        self._serving = serving
        self._look = look
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._look_for_ever(), name=f"naksha-{self._what}")

    def wake(self) -> None:
        """Start the next scan immediately."""
        self._wake.set()

    async def close(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            with _log_errors(self._what):
                await self._look_everywhere()
            pause = self._pause_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    async def _look_everywhere(self) -> None:
        known = await self._hub.catalog.realms.list()
        serving = [realm.id for realm in known if realm.status is RealmStatus.ACTIVE]
        if self._serving is not None:
            await self._serving(serving)
        for id in random.sample(serving, len(serving)):
            with _log_errors(f"{self._what} of {id}"), contextlib.suppress(RealmNotFound):
                await self._look(await self._hub.realm(id))


@contextlib.contextmanager
def _log_errors(what: str) -> Iterator[None]:
    """Log any error; the next scan retries."""
    try:
        yield
    except NakshaError as error:
        check_cancelled()
        _log.warning("The periodic check of %s failed and will be retried: %s", what, error)
    except Exception:  # noqa: BLE001 - the scan of other realms continues
        check_cancelled()
        _log.exception("The periodic check of %s failed and will be retried", what)
