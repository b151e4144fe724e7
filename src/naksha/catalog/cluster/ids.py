"""Generator of strictly increasing ids whose timestamps lie in the lease of their node."""

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
"""Pause while the current millisecond has no more ids."""


class IdGenerator:
    """Generates ids for a node while its lease lasts. May be used from any thread.

    An id is unique because of the timestamp inside it, not because of the time at which it is
    returned: the next holder of the node only uses timestamps after this lease. So an id is unique
    however long its thread sleeps between reading the clock and returning.
    """

    def __init__(self, spec: IdSpec, clock: Clock) -> None:
        self._spec = spec
        self._now_ms = clock.now_ms
        self._shift = spec.node_bits + spec.sequence_bits
        self._lock = threading.Lock()
        self._ms = spec.epoch_ms - 1  # The timestamp in use; it only grows.
        self._next = 0
        self._left = 0  # Ids left for this timestamp, from `_next` on.
        self._node = 0
        self._end_ms = 0
        self._refusal = "this process has not leased a node id yet"
        _GENERATORS.add(self)

    @property
    def node(self) -> int | None:
        """The node that ids are generated for now."""
        return self._node if self._end_ms else None

    def next_id(self) -> int:
        """Return a new id.

        It blocks for less than a millisecond if the current one has no more ids.

        Raises:
            Unavailable: No node is leased for this time.
        """
        id = self._take()
        if id is None:
            deadline = self._deadline()
            while id is None:
                time.sleep(self._pause(deadline))
                id = self._take()
        return id

    def begin(self, node: int, start_ms: int, end_ms: int) -> None:
        """Generate ids of this node with timestamps from `start_ms` to before `end_ms`."""
        with self._lock:
            # Do not use the current timestamp again: the next id must be greater, whatever its
            # node.
            self._ms = max(self._ms, start_ms - 1)
            self._left = 0
            self._node = node
            self._end_ms = min(end_ms, self._spec.end_ms)
            self._refusal = (
                "the lease of this process's node id has expired and could not be renewed; "
                "check that the catalog's database is reachable"
            )

    def extend(self, end_ms: int) -> None:
        """Extend the lease after its renewal."""
        with self._lock:
            if self._end_ms:
                self._end_ms = min(max(self._end_ms, end_ms), self._spec.end_ms)

    def stop(self, reason: str) -> int:
        """Stop generating ids; later calls raise `reason`.

        Returns a timestamp that is after all used ones.
        """
        with self._lock:
            self._end_ms = self._left = 0
            self._refusal = reason
            return self._ms + 1

    def _take(self) -> int | None:
        """Return the next id; None while this timestamp has none left."""
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
        return Unavailable(f"No id can be generated: {self._refusal}")

    @staticmethod
    def _deadline() -> float:
        return time.monotonic() + limits.ID_WAIT_SECONDS_MAX

    @staticmethod
    def _pause(deadline: float) -> float:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"No id can be generated: the clock stood still for {limits.ID_WAIT_SECONDS_MAX} "
                "s; correct the clock of this machine"
            )
        return _PAUSE_SECONDS

    def _forget(self) -> None:
        """Stop in a forked process: the lease and the next ids belong to the parent."""
        self._lock = threading.Lock()
        self.stop(
            "the process was forked from the one that leased the node id; open the catalog after"
            " forking"
        )


_GENERATORS: Final[weakref.WeakSet[IdGenerator]] = weakref.WeakSet()


def _forget_all() -> None:
    for generator in _GENERATORS:
        generator._forget()


os.register_at_fork(after_in_child=_forget_all)
