"""Pins that keep undelivered changes of a subscription for a limited time."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

from naksha.model import limits
from naksha.model.errors import Expired, NakshaError
from naksha.model.version import AtSeq
from naksha.spi.storage import Storage
from naksha.versioning import FeedPosition

_log: Final = logging.getLogger(__name__)
_DAY_MS: Final = 86_400_000


def pin_name(realm_id: str, progress_id: int) -> str:
    """Return the name of a subscription's pin, unique to its creation."""
    return f"subscription/{realm_id}/{progress_id}"


class SubscriptionPin:
    """Moves the pin of a subscription along with its position.

    Removes the pin when the subscription is too far behind: then history may expire, and the
    subscription with it.
    """

    def __init__(self, storage: Storage, name: str, keep_days: int) -> None:
        self._storage = storage
        self._name = name
        self._keep_ms = keep_days * _DAY_MS
        self._pinned: int | None = None
        self._looked_at = 0.0
        self.is_given_up = False
        """Whether the pin was removed because the subscription is too far behind."""

    async def advance(self, position: FeedPosition, moved_ms: int) -> None:
        """Move the pin to the position from time to time; keeping too much does no harm.

        `moved_ms` is the time of the last change of the position.
        """
        is_due = time.monotonic() - self._looked_at >= limits.SUBSCRIPTION_PIN_SECONDS
        if self._looked_at and not is_due:
            return
        self._looked_at = time.monotonic()
        try:
            await self._follow(position, moved_ms)
        except NakshaError as error:
            # The old pin still protects the history; retried later.
            _log.warning("Moving the pin %s failed, will retry: %s", self._name, error)

    async def drop(self) -> None:
        """Remove the pin."""
        with contextlib.suppress(NakshaError):
            await self._storage.unpin(self._name)
            self._pinned = None

    async def _follow(self, position: FeedPosition, moved_ms: int) -> None:
        at = position.seq_number
        last = await self._storage.wait_beyond(0, 0)
        self.is_given_up = at < last and await self._is_too_late(at + 1, moved_ms)
        if self.is_given_up:
            await self.drop()
        elif self._pinned != at:
            await self._storage.pin(self._name, await self._storage.resolve(AtSeq(at)))
            self._pinned = at

    async def _is_too_late(self, waiting: int, moved_ms: int) -> bool:
        """Whether the subscription has undelivered changes and is stalled for too long."""
        try:
            published_ms = (await self._storage.resolve(AtSeq(waiting))).published_ms
        except Expired:
            return True
        return time.time_ns() // 1_000_000 - max(published_ms, moved_ms) > self._keep_ms
