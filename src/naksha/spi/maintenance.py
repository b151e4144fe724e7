"""Maintenance rounds of a storage: their limits, and the record of what a round did.

    record = StorageRound(is_dry=True)
    await storage.maintain(record=record)
    record.done          # texts: what it would remove

The storage runs each step through `StorageRound.attempt`, so that a step which fails, is blocked or
has no time left does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any, Final, NamedTuple, Protocol

from naksha.model import limits
from naksha.model.errors import NakshaError, TimedOut
from naksha.spi.support.cancellation import check_cancelled

BACKOFF_S_MIN: Final = 60.0
BACKOFF_S_MAX: Final = 86_400.0
"""Pauses before a failed step is retried in the background; each is twice the last."""
_log = logging.getLogger(__name__)


class StepPostponed(Exception):
    """A step cannot run now, because another transaction blocks it; a later round retries it."""


class StepNote(NamedTuple):
    """A step that was postponed or failed, and why."""

    step: str
    reason: str


class StepBackoff:
    """The steps that failed in earlier rounds, and when each of them is retried."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._failed: dict[str, tuple[int, float]] = {}

    def is_due(self, step: str) -> bool:
        return step not in self._failed or self._now_s() >= self._failed[step][1]

    def failed(self, step: str) -> None:
        count = self._failed.get(step, (0, 0.0))[0] + 1
        pause = min(BACKOFF_S_MIN * 2 ** min(count - 1, 20), BACKOFF_S_MAX)
        self._failed[step] = (count, self._now_s() + pause)

    def done(self, step: str) -> None:
        self._failed.pop(step, None)


class RoundMemory:
    """State that a maintainer keeps from one round to the next."""

    def __init__(self) -> None:
        self.backoff: Final = StepBackoff()
        self.refreshed: Final[dict[str, str]] = {}
        """The server's counters of a collection when its statistics were last refreshed."""
        self.late: frozenset[str] = frozenset()
        """Steps that the last round had no time for; the next round runs them first."""


class StorageVitals(NamedTuple):
    """Measurements of a storage that show whether it needs attention; None if unknown."""

    partitions: int | None = None
    """Partitions of the history that has most of them."""
    partitioned: str = ""
    """The collection of that history."""
    oldest_pin: str = ""
    oldest_pin_ms: int | None = None
    """The day of the version that the oldest pin keeps readable."""


class StorageRound:
    """One maintenance round of a storage.

    Args:
        is_dry: Change nothing, and record what the round would remove.
        is_heavy: Also run heavy steps, such as the merge of partitions.
        seconds: Time after which no further step begins.
        memory: State of earlier rounds; without it, steps that failed just before run again.
        check: Called before each step; it raises an error if the round must stop.
    """

    def __init__(
        self,
        *,
        is_dry: bool = False,
        is_heavy: bool = True,
        seconds: float | None = None,
        memory: RoundMemory | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.is_dry: Final = is_dry
        self.memory: Final = memory or RoundMemory()
        self.done: Final[list[str]] = []
        self.postponed: Final[list[StepNote]] = []
        self.failures: Final[list[tuple[str, NakshaError]]] = []
        self.vitals = StorageVitals()
        self.is_complete = True
        """Whether no step failed, was skipped or ended early."""
        self.waits_for_window = False
        """Whether heavy steps were postponed to the daily window."""
        self._is_heavy = is_heavy
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._check = check
        self._late: set[str] = set()

    @property
    def has_time(self) -> bool:
        """Whether a further step, or a further part of one, may begin."""
        return self._deadline is None or time.monotonic() < self._deadline

    async def attempt(
        self, step: str, work: Callable[[], Awaitable[object]], *, is_heavy: bool = False
    ) -> None:
        """Run a step, and record a failure instead of raising it."""
        if self._check is not None:
            self._check()
        if not self.memory.backoff.is_due(step):
            self.skip(step, "it failed before and is retried later")
        elif is_heavy and not self._is_heavy:
            self.waits_for_window = True
            self.skip(step, "it waits for the daily window of heavy work")
        elif not self.has_time:
            self.late(step)
        else:
            await self._run(step, work)

    async def _run(self, step: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(limits.MAINTENANCE_STEP_SECONDS_MAX):
                await work()
        except StepPostponed as error:
            self.skip(step, str(error))
        except NakshaError as error:
            check_cancelled()
            self.failed(step, error)
        except TimeoutError:
            check_cancelled()
            limit = limits.MAINTENANCE_STEP_SECONDS_MAX
            self.failed(step, TimedOut(f"The step took longer than {limit:g} s"))
        else:
            self.memory.backoff.done(step)

    def did(self, text: str, *values: Any) -> None:
        """Record and log what the round has done, or would do if it were not dry."""
        self.done.append(text % values if values else text)
        _log.info(f"Maintenance {'would do' if self.is_dry else 'did'}: {text}", *values)

    def late(self, step: str) -> None:
        """Record that a step, or the rest of it, has no time left."""
        self._late.add(step)
        self.skip(step, "the time budget of the round is used up")

    def skip(self, step: str, reason: str) -> None:
        """Record that a step, or the rest of it, could not run in this round."""
        self.is_complete = False
        self.postpone(step, reason)

    def postpone(self, step: str, reason: str) -> None:
        """Record that a step, or a part of it, is left to a later round."""
        self.postponed.append(StepNote(step, reason))
        _log.info("Maintenance postponed: %s (%s)", step, reason)

    def failed(self, step: str, error: NakshaError) -> None:
        """Record a failed step; it is retried after a pause that grows with each failure."""
        self.is_complete = False
        self.memory.backoff.failed(step)
        self.failures.append((step, error))
        _log.warning("Maintenance failed: %s: %s", step, error)

    def finish(self) -> None:
        """Record the steps with which the next round begins."""
        self.memory.late = frozenset(self._late)

    def raise_failures(self) -> None:
        """Raise an error that names all failed steps, if there are any."""
        if self.failures:
            reasons = "; ".join(f"{step}: {error}" for step, error in self.failures)
            raise type(self.failures[0][1])(
                "Maintenance of the storage is incomplete and continues in the next round: "
                f"{reasons}"
            )


class MaintainedStorage(Protocol):
    """The part of a storage that removes what has expired."""

    async def maintain(
        self, now_ms: int | None = None, *, record: StorageRound | None = None
    ) -> None:
        """Expire, merge, drop and refresh what is due; safe at any time, from any process.

        `record` limits the round, and receives what it did and which steps failed. Without it, a
        failed step is raised at the end of the round.
        """

    async def refresh_partitionings(self) -> list[str]:
        """Compute outdated partitionings of collections with `optimal_partitioning` again.

        Returns their names; none while another process does this.
        """

    async def expire(self, collection: str, before: date) -> None:
        """Drop the history of a collection that ended before a day (UTC), whatever its own setting.

        Earlier versions are then Expired. Pinned history stays; a storage drops whole units only,
        so some more may stay.
        """

    async def keep_log(self, days: int) -> None:
        """Expire transactions older than this number of days, from the next maintenance on.

        Whole days of the log and its versions are removed, but never a pinned version, nor the last
        one. The default is 36500.
        """
