"""Where two lines part."""

from __future__ import annotations

from dataclasses import dataclass

from naksha.versioning.places import Place


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
            return (max(self.old, self.new, key=lambda place: place.version),)
        return (self.old, self.new)


def fork_of(old: Place, new: Place) -> Fork:
    """Go up from main through the layers that both have; the last of them is where they part."""
    txn = 0
    for one, other in zip(_upwards(old), _upwards(new), strict=False):
        if one[0] != other[0]:
            break
        txn = min(one[1], other[1])
        if one[1] != other[1]:
            break
    return Fork(old, new, txn)


def _upwards(place: Place) -> list[tuple[int, int]]:
    """(overlay, last transaction seen of it), main first; nothing is seen beyond the version."""
    last = place.version.txn
    return [
        (layer.overlay, last if layer.txn is None else min(layer.txn, last))
        for layer in reversed(place.line.layers)
    ]
