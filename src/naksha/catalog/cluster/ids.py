"""Generates ids: strictly increasing, and only with timestamps for which their node is leased."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Final

from naksha.catalog.cluster.snowflake import IdSpec
from naksha.model import limits
from naksha.model.errors import Unavailable
from naksha.spi.clock import Clock

_PAUSE_SECONDS: Final = 0.0002
"""While a millisecond has no more ids."""


class IdGenerator:
    """Gives ids for a node, while its lease lasts. May be used from any thread.

    What counts is the timestamp inside the id, not the time at which it is handed out: the next
    holder of the node only uses timestamps after this lease. So an id is unique however long its
    thread sleeps between looking at the clock and returning.
    """

    def __init__(self, spec: IdSpec, clock: Clock) -> None:
        self._spec = spec
        self._now_ms = clock.now_ms
        self._shift = spec.node_bits + spec.sequence_bits
        self._lock = threading.Lock()
        self._ms = spec.epoch_ms - 1  # the timestamp in use; only ever greater
        self._next = 0
        self._left = 0  # how many ids this timestamp has left, from `_next` on
        self._node = 0
        self._end_ms = 0
        self._refusal = "this process has leased no node id yet"
        _GENERATORS.add(self)

    @property
    def node(self) -> int | None:
        """The node in whose name ids are given now."""
        return self._node if self._end_ms else None

    def next_id(self) -> int:
        """A new id. Blocks for less than a millisecond when this one has no more; raises
        `Unavailable` when no node is leased for this time."""
        id = self._take()
        if id is None:
            deadline = self._deadline()
            while id is None:
                time.sleep(self._pause(deadline))
                id = self._take()
        return id

    def begin(self, node: int, start_ms: int, end_ms: int) -> None:
        """Give ids of this node with timestamps from `start_ms` to before `end_ms`."""
        with self._lock:
            # Nothing more with the timestamp in use: the next id is greater, whatever its node.
            self._ms = max(self._ms, start_ms - 1)
            self._left = 0
            self._node = node
            self._end_ms = min(end_ms, self._spec.end_ms)
            self._refusal = (
                "the lease of this process's node id is over and could not be renewed; "
                "it goes on when the catalog can be reached"
            )

    def extend(self, end_ms: int) -> None:
        """The lease was renewed."""
        with self._lock:
            if self._end_ms:
                self._end_ms = min(max(self._end_ms, end_ms), self._spec.end_ms)

    def stop(self, reason: str) -> int:
        """Give no ids any more; later calls raise `reason`. All timestamps that were used are
        before the returned one."""
        with self._lock:
            self._end_ms = self._left = 0
            self._refusal = reason
            return self._ms + 1

    def _take(self) -> int | None:
        """The next id; None while there is none left with this timestamp."""
        with self._lock:
            ms = self._now_ms()
            if ms > self._ms:
                if ms >= self._end_ms:
                    raise self._refused()
                self._ms = ms
                since = ms - self._spec.epoch_ms
                self._next = since << self._shift | self._node << self._spec.sequence_bits
                self._left = self._spec.sequences
            elif not self._left:
                if not self._end_ms:
                    raise self._refused()
                return None
            self._left -= 1
            id = self._next
            self._next = id + 1
            return id

    def _refused(self) -> Unavailable:
        return Unavailable(f"No id can be given: {self._refusal}")

    @staticmethod
    def _deadline() -> float:
        return time.monotonic() + limits.ID_WAIT_SECONDS_MAX

    @staticmethod
    def _pause(deadline: float) -> float:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"No id can be given: the clock stood still for {limits.ID_WAIT_SECONDS_MAX} s"
            )
        return _PAUSE_SECONDS

    def _forget(self) -> None:
        """In a forked process, where the lease and the next ids are those of the parent."""
        self._lock = threading.Lock()
        self.stop("the process was forked from the one that has leased the node id; open anew")


_GENERATORS: Final[weakref.WeakSet[IdGenerator]] = weakref.WeakSet()


def _forget_all() -> None:
    for generator in _GENERATORS:
        generator._forget()


os.register_at_fork(after_in_child=_forget_all)
