"""What a line has in it: which overlays, up to which transaction, by layers, merges and rebases.

Two lines have in common what both have in them; the latest of that is the base of a merge between
them. All of it is told by the records of the branches, so nobody walks through the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from naksha.model.limits import INT8_MAX
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD
from naksha.spi.storage import Layer, Reader, Storage
from naksha.versioning.places import Line, Place, line_of_branch, line_on
from naksha.versioning.records import MAIN_LAYERS, Branch, Epoch, everywhere
from naksha.versioning.refs import MAIN_BRANCH

Contents = dict[int, int]
"""By overlay, the last transaction of it that is in a line."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Transaction `txn` of one overlay brought another one, up to a transaction of that."""

    txn: int
    source: int
    source_txn: int


class Ancestry:
    """All branches of a storage, and what went from one to the other."""

    def __init__(self, storage: Storage, branches: Iterable[Branch]) -> None:
        self._storage = storage
        self._owners: dict[int, tuple[Branch, Epoch]] = {}
        self._merges: dict[int, list[Merge]] = {}
        for branch in branches:
            for epoch in branch.epochs:
                self._owners[epoch.overlay] = (branch, epoch)
                self._note(epoch)

    @classmethod
    async def of(cls, storage: Storage, reader: Reader) -> Ancestry:
        """As it is now, or as somebody sees it who reads inside a session."""
        records = [known.record for known in await everywhere(reader)]
        return cls(storage, [each for each in records if isinstance(each, Branch)])

    def _note(self, epoch: Epoch) -> None:
        own = epoch.overlay
        for target, point in epoch.merged_into.items():
            self._merges.setdefault(target, []).append(Merge(point.theirs, own, point.ours))
        for source, point in epoch.merged_from.items():
            self._merges.setdefault(own, []).append(Merge(point.ours, source, point.theirs))
        if epoch.replayed is not None:
            # A rebase brought all that the branch had on its former base.
            former, txn = epoch.replayed
            self._merges.setdefault(own, []).append(Merge(epoch.since, former, txn))

    def latest_common(self, source: Place, target: Place) -> tuple[Line, int]:
        """The latest transaction that both have in them, and the line that it is on."""
        one, other = self._contents(source), self._contents(target)
        shared = {
            overlay: min(txn, other[overlay])
            for overlay, txn in one.items()
            if overlay in other and (overlay == MAIN or overlay in self._owners)
        }

        def lateness(overlay: int) -> tuple[int, int, int]:
            # The one that has all the others in it, be its number larger or not; two lines that
            # were merged without a change have the same last transaction.
            found: Contents = {}
            layers = self._line(overlay).layers
            self._add(found, layers, shared[overlay], shared[overlay])
            has = sum(found.get(other, -1) >= txn for other, txn in shared.items())
            return has, shared[overlay], overlay

        overlay = max(shared, key=lateness)
        return self._line(overlay), shared[overlay]

    def _line(self, overlay: int) -> Line:
        if overlay == MAIN:
            return line_on(self._storage, MAIN_BRANCH, MAIN_LAYERS)
        return line_of_branch(self._storage, *self._owners[overlay])

    def _contents(self, place: Place) -> Contents:
        """HEAD has all merges that are recorded, published or not."""
        found: Contents = {}
        until = INT8_MAX if place.at == HEAD else place.version.txn
        self._add(found, place.line.layers, place.version.txn, until)
        return found

    def _add(self, found: Contents, layers: tuple[Layer, ...], txn: int, until: int) -> None:
        for layer in layers:
            last = txn if layer.txn is None else min(layer.txn, txn)
            if found.get(layer.overlay, -1) >= last and layer.txn is not None:
                continue
            found[layer.overlay] = max(last, found.get(layer.overlay, 0))
            for merge in self._merges.get(layer.overlay, ()):
                if merge.txn <= (until if layer.txn is None else last):
                    self._bring(found, merge)

    def _bring(self, found: Contents, merge: Merge) -> None:
        if found.get(merge.source, -1) >= merge.source_txn:
            return
        layers: tuple[Layer, ...] = MAIN_LAYERS
        if merge.source != MAIN:
            if merge.source not in self._owners:
                return
            layers = self._owners[merge.source][1].layers
        self._add(found, layers, merge.source_txn, merge.source_txn)
