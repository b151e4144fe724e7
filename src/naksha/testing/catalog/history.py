"""Linearizability check of the recorded operations on one pointer.

Every swap has a unique target, so the successful swaps form a chain in which each value has its
position. A history is linearizable if every swap and read can be assigned one moment between its
start and its end, so that the pointer moves along the chain.
"""

from __future__ import annotations

from typing import NamedTuple


class SwapCall(NamedTuple):
    """One compare-and-swap with its start and end time."""

    start: float
    end: float
    expected: bytes
    target: bytes
    won: bool


class ReadCall(NamedTuple):
    """One read with its start and end time."""

    start: float
    end: float
    target: bytes


class PointerHistory:
    """The operations on one pointer whose first value is `first`."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        self.swaps: list[SwapCall] = []
        self.reads: list[ReadCall] = []

    def check(self) -> bytes:
        """Return the pointer's last value; an AssertionError names the impossible operation."""
        chain = self._chain()
        places = {self.first: 0} | {swap.target: n for n, swap in enumerate(chain, 1)}
        # Earliest start and latest end of each value's validity. A value is valid until the swap
        # to the next one, and swaps happen in the order of the chain.
        starts, ends = [float("-inf")], []
        for swap in chain:
            starts.append(max(starts[-1], swap.start))
            ends.append(swap.end)
        ends.append(float("inf"))
        for place in range(len(ends) - 2, -1, -1):
            ends[place] = min(ends[place], ends[place + 1])
        for place, swap in enumerate(chain, 1):
            assert starts[place] <= ends[place - 1], f"{swap} came before its predecessor"
        self._check_reads(places, starts, ends)
        self._check_lost(places, starts, ends)
        return chain[-1].target if chain else self.first

    def _chain(self) -> list[SwapCall]:
        """Return the successful swaps, each after the one whose target it expected."""
        after: dict[bytes, SwapCall] = {}
        for swap in self.swaps:
            if swap.won:
                assert swap.expected not in after, f"two won: {swap}, {after[swap.expected]}"
                after[swap.expected] = swap
        chain: list[SwapCall] = []
        value = self.first
        while value in after:
            chain.append(after.pop(value))
            value = chain[-1].target
        assert not after, f"won, but nothing led there: {list(after.values())}"
        return chain

    def _check_reads(
        self, places: dict[bytes, int], starts: list[float], ends: list[float]
    ) -> None:
        latest = 0
        ended = sorted(self.reads, key=lambda read: read.end)
        position = 0
        for read in sorted(self.reads, key=lambda read: read.start):
            place = places.get(read.target)
            assert place is not None, f"never written: {read}"
            assert read.end >= starts[place], f"read before it was written: {read}"
            assert read.start <= ends[place], f"read after it was gone: {read}"
            while position < len(ended) and ended[position].end < read.start:
                latest = max(latest, places[ended[position].target])
                position += 1
            assert place >= latest, f"went back: {read}"

    def _check_lost(self, places: dict[bytes, int], starts: list[float], ends: list[float]) -> None:
        """Check that every failed swap could meet a value other than the one it expected."""
        for swap in self.swaps:
            if swap.won:
                continue
            place = places.get(swap.expected)
            if place is None:
                continue
            came_late = place > 0 and swap.start <= ends[place - 1]
            gone = place + 1 < len(starts) and swap.end >= starts[place + 1]
            assert came_late or gone, f"lost against nobody: {swap}"
