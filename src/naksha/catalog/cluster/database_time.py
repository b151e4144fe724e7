"""The time of the database, which all instances of a catalog share.

The clocks of machines differ, but instances judge each other's writes by their time. Every instance
therefore measures the offset of its machine from the database and corrects its clock by it. The
offset is published with the lease of the instance, and maintenance deletes nothing while one is too
large.
"""

from __future__ import annotations

import asyncio
import logging

from naksha.catalog.cluster.clock import MonotonicClock
from naksha.model import limits
from naksha.model.errors import Unavailable
from naksha.spi.catalog import CatalogBackend

logger = logging.getLogger(__name__)


class DatabaseTime:
    """Keeps a clock synchronized with the time of the database."""

    def __init__(self, backend: CatalogBackend, clock: MonotonicClock) -> None:
        self._backend = backend
        self._clock = clock
        self._measured: list[int] = []
        self._due_ms = 0

    @property
    def skew_ms(self) -> int:
        """Offset of the machine from the database; positive if the machine is ahead.

        It is the larger of the last two measurements, because writes made before a correction may
        still be in flight.
        """
        return max(self._measured, key=abs, default=0)

    async def start(self) -> None:
        """Measure for the first time, before the clock is used."""
        await self._measure(sets_back=True)

    async def check(self) -> None:
        """Measure if a measurement is due."""
        if self._clock.now_ms() >= self._due_ms:
            await self._measure(sets_back=False)

    async def _measure(self, *, sets_back: bool) -> None:
        ahead_ns, took_ns = await self._read()
        for _ in range(limits.CLOCK_READ_ATTEMPTS - 1):
            if took_ns <= limits.CLOCK_SKEW_IGNORED_SECONDS * 1e9:
                break
            ahead_ns, took_ns = min((ahead_ns, took_ns), await self._read(), key=lambda x: x[1])
        self._clock.follow(ahead_ns, sets_back=sets_back)
        self._due_ms = self._clock.now_ms() + limits.CLOCK_CHECK_SECONDS * 1_000
        skew_ms = ahead_ns // 1_000_000
        if abs(skew_ms) > limits.CLOCK_SKEW_SECONDS_MAX * 1_000:
            logger.warning(
                "The clock of this machine is %.1f s %s the clock of the catalog's database. The"
                " catalog uses the database's time and deletes no garbage until the clock is"
                " corrected; synchronize it",
                *(abs(skew_ms) / 1_000, "ahead of" if skew_ms > 0 else "behind"),
            )
        self._measured = [*self._measured[-1:], skew_ms]

    async def _read(self) -> tuple[int, int]:
        """Return the offset of the machine and the duration of the call, which bounds its error."""
        began_ns = self._clock.machine_ns()
        try:
            async with asyncio.timeout(limits.LEASE_CALL_SECONDS_MAX):
                database_us = await self._backend.now_us()
        except TimeoutError:
            raise Unavailable(
                "The time of the catalog's database could not be read in time; retry later"
            ) from None
        ended_ns = self._clock.machine_ns()
        return (began_ns + ended_ns) // 2 - database_us * 1_000, abs(ended_ns - began_ns)
