"""Checks whether what many saw of one pointer can have happened in some order.

Every swap has a target of its own, so those that won form a chain, and each value has its place in
it. A history is linearizable when every swap and read can be given one moment between its start and
its end, so that the pointer goes along the chain.
"""

from __future__ import annotations

from typing import NamedTuple


class Swap(NamedTuple):
    """One compare-and-swap, and when it was under way."""

    start: float
    end: float
    expected: bytes
    target: bytes
    won: bool


class Read(NamedTuple):
    """One read, and when it was under way."""

    start: float
    end: float
    target: bytes


class History:
    """What was done to one pointer that began at `first`."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        self.swaps: list[Swap] = []
        self.reads: list[Read] = []

    def check(self) -> bytes:
        """Where the pointer ends; an AssertionError names what cannot have happened."""
        chain = self._chain()
        places = {self.first: 0} | {swap.target: n for n, swap in enumerate(chain, 1)}
        # When each value came to be at the earliest, and was gone at the latest; a value is there
        # until the next one comes, and none comes before the one before it.
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

    def _chain(self) -> list[Swap]:
        """The swaps that won, each after the one that it expected."""
        after: dict[bytes, Swap] = {}
        for swap in self.swaps:
            if swap.won:
                assert swap.expected not in after, f"two won: {swap}, {after[swap.expected]}"
                after[swap.expected] = swap
        chain: list[Swap] = []
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
        """Who lost must have met a moment at which something else was there."""
        for swap in self.swaps:
            if swap.won:
                continue
            place = places.get(swap.expected)
            if place is None:
                continue
            came_late = place > 0 and swap.start <= ends[place - 1]
            gone = place + 1 < len(starts) and swap.end >= starts[place + 1]
            assert came_late or gone, f"lost against nobody: {swap}"
