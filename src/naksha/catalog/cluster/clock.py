"""A clock that never goes back; ids and leases are based on its milliseconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from naksha.model import limits

logger = logging.getLogger(__name__)


class MonotonicClock:
    """Wall clock that never goes back.

    It follows the wall clock forward, including jumps. While the wall clock is behind because it
    was set back, time continues at its normal pace until the wall clock has caught up. `follow`
    corrects the wall clock by its measured offset from another clock, that of the database.

    It may be read from any thread. Two processes on one machine may differ by the jumps that only
    one of them has seen.
    """

    __slots__ = ("_correction_ns", "_lock", "_monotonic_ns", "_offset_ns", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self._correction_ns = 0
        wall = wall_ns()
        self._offset_ns = wall - monotonic_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since 1970, never less than any earlier result."""
        # Read the wall clock first: a pause between the two readings then makes the difference too
        # small, which the next reading corrects. Too large a difference would never be corrected.
        wall = self._wall_ns() + self._correction_ns
        monotonic = self._monotonic_ns()
        if wall - monotonic > self._offset_ns:
            self._adopt(wall - monotonic)
        return monotonic + self._offset_ns

    def now_us(self) -> int:
        return self.now_ns() // 1_000

    def now_ms(self) -> int:
        return self.now_ns() // 1_000_000

    def machine_ns(self) -> int:
        """Return the uncorrected wall clock of the machine."""
        return self._wall_ns()

    def follow(self, ahead_ns: int, *, sets_back: bool = False) -> None:
        """Treat the machine's wall clock as `ahead_ns` ahead of the time to keep.

        Time goes back only with `sets_back`, which must precede the first id.
        """
        if abs(ahead_ns + self._correction_ns) < limits.CLOCK_SKEW_IGNORED_SECONDS * 1e9:
            return
        with self._lock:
            self._correction_ns = -ahead_ns
            if sets_back:
                self._offset_ns = self._wall_ns() - ahead_ns - self._monotonic_ns()

    def _adopt(self, offset_ns: int) -> None:
        with self._lock:
            jump_ns = offset_ns - self._offset_ns
            if jump_ns > 0:  # Otherwise another thread has adopted a later reading.
                self._offset_ns = offset_ns
        if jump_ns > limits.CLOCK_JUMP_WARNING_SECONDS * 1e9:
            logger.warning(
                "The clock of this machine jumped forward by %.1f s, and ids and leases with "
                "it; check its synchronization",
                jump_ns / 1e9,
            )
