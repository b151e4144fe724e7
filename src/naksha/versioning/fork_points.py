"""Where two lines part."""

from __future__ import annotations

from dataclasses import dataclass

from naksha.model.version import HEAD
from naksha.versioning.lines import Place, seen_at


@dataclass(frozen=True, slots=True)
class Fork:
    """Two versions and the last transaction that both have."""

    old: Place
    new: Place
    txn: int

    @property
    def sides(self) -> tuple[Place, ...]:
        """The versions that have transactions after the fork; on one line that is the later one."""
        if self.old.line.layers == self.new.line.layers:
            # Of the same version HEAD has what is not published yet.
            return (max(self.old, self.new, key=lambda it: (it.version, it.at == HEAD)),)
        return (self.old, self.new)

    @property
    def in_order(self) -> tuple[Place, Place] | None:
        """The earlier version and the later one, when the later comes from the earlier one: then
        reading the line of the later one at the fork is reading the earlier one."""
        for first, last in ((self.old, self.new), (self.new, self.old)):
            # HEAD may have more than the version that is told with it.
            if first.at != HEAD and seen_at(first)[-1][1] == self.txn:
                return first, last
        return None


def fork_of(old: Place, new: Place) -> Fork:
    """Go up from main through the layers that both have; the last of them is where they part."""
    txn = 0
    for one, other in zip(seen_at(old), seen_at(new), strict=False):
        if one[0] != other[0]:
            break
        txn = min(one[1], other[1])
        if one[1] != other[1]:
            break
    return Fork(old, new, txn)
