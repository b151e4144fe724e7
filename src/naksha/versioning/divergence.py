"""The point where two lines diverge."""

from __future__ import annotations

from dataclasses import dataclass

from naksha.model.version import HEAD
from naksha.versioning.lines import Place, visible_txns


@dataclass(frozen=True, slots=True)
class Divergence:
    """Two versions and the last transaction that both contain."""

    old: Place
    new: Place
    txn: int

    @property
    def sides(self) -> tuple[Place, ...]:
        """The versions with transactions after the divergence; on one line only the later one."""
        if self.old.line.layers == self.new.line.layers:
            # For the same version number, HEAD also contains what is not published yet.
            return (max(self.old, self.new, key=lambda it: (it.version, it.at == HEAD)),)
        return (self.old, self.new)

    @property
    def in_order(self) -> tuple[Place, Place] | None:
        """The earlier and the later version if one is the ancestor of the other, else None.

        Reading the line of the later version at `txn` then yields the earlier version.
        """
        for first, last in ((self.old, self.new), (self.new, self.old)):
            # HEAD may contain more than its version number says, so it never counts as the earlier
            # one.
            if first.at != HEAD and visible_txns(first)[-1][1] == self.txn:
                return first, last
        return None


def divergence_of(old: Place, new: Place) -> Divergence:
    """Return the point where the lines of two versions diverge.

    Compare the layers from main upwards: two lines are identical up to the lower bound of each
    layer they share, and they diverge at the first layer that differs or that one of them leaves
    earlier.
    """
    txn = 0
    for one, other in zip(visible_txns(old), visible_txns(new), strict=False):
        if one[0] != other[0]:
            break
        txn = min(one[1], other[1])
        if one[1] != other[1]:
            break
    return Divergence(old, new, txn)
