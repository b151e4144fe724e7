"""What a line has in it: which overlays, up to which transaction, by layers, merges and rebases.

Two lines have in common what both have in them; the latest of that is the base of a merge between
them (`naksha.versioning.merges.bases`). All of it is told by the records of the branches, so nobody
walks through the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

from naksha.model.limits import INT8_MAX
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD
from naksha.spi.storage import Layer, Reader, Storage, WriteSession
from naksha.versioning.lines import Line, Place, line_of_branch, line_on
from naksha.versioning.records import MAIN_LAYERS, Branch, Epoch, everywhere, gone_branches
from naksha.versioning.version_refs import MAIN_BRANCH

Contents = dict[int, int]
"""By overlay, the last transaction of it that is in a line."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Transaction `txn` of one overlay brought another one, up to a transaction of that."""

    txn: int
    source: int
    source_txn: int


@dataclass(frozen=True, slots=True)
class CommonVersion:
    """A version that two lines have in common, and all that it contains."""

    line: Line
    txn: int
    contents: Contents


class Ancestry:
    """All branches of a storage, and what went from one to the other; or of these what is known
    about some overlays only."""

    def __init__(self, storage: Storage, live: Iterable[Branch], gone: Iterable[Branch]) -> None:
        self._storage = storage
        self._owners: dict[int, tuple[Branch, Epoch]] = {}
        self._merges: dict[int, list[Merge]] = {}
        for branch in (*live, *gone):
            for epoch in branch.epochs:
                self._owners[epoch.overlay] = (branch, epoch)
                self._note(epoch)
        self._gone = {epoch.overlay for branch in gone for epoch in branch.epochs}

    @classmethod
    async def of(cls, storage: Storage, reader: Reader) -> Ancestry:
        """As it is now, or as somebody sees it who reads inside a session."""
        records = [known.record for known in await everywhere(reader)]
        live = [each for each in records if isinstance(each, Branch)]
        return cls(storage, live, await gone_branches(reader))

    def _note(self, epoch: Epoch) -> None:
        own = epoch.overlay
        for target, point in epoch.merged_into.items():
            merges = [Merge(theirs, own, ours) for ours, theirs in point.all]
            self._merges.setdefault(target, []).extend(merges)
        for source, point in epoch.merged_from.items():
            merges = [Merge(ours, source, theirs) for ours, theirs in point.all]
            self._merges.setdefault(own, []).extend(merges)
        if epoch.replayed is not None:
            # A rebase brought all that the branch had on its former base.
            former, txn = epoch.replayed
            self._merges.setdefault(own, []).append(Merge(epoch.since, former, txn))

    def about(self, overlays: frozenset[int]) -> Ancestry:
        """The same for a collection that only these overlays can have: a merge with another one
        did not bring it."""
        found = copy(self)
        found._merges = {
            target: [merge for merge in merges if merge.source in overlays]
            for target, merges in self._merges.items()
            if target in overlays
        }
        return found

    async def overlays_of(
        self, reader: WriteSession | Storage, names: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Which overlays can have states of a collection: those of branches that are about it and
        were made since it is there."""
        found = {name: {MAIN} for name in names}
        unseen = set(names)
        by_base: dict[int, list[int]] = {}
        for overlay, (_, epoch) in self._owners.items():
            by_base.setdefault(epoch.below[-1].txn or 0, []).append(overlay)
        for _, overlays in sorted(by_base.items()):
            if unseen:
                # What one base has the later ones have, too, so most often it is asked for once.
                layers = self._owners[overlays[0]][1].layers
                unseen -= {info.id for info in await reader.on_branch(layers).collections()}
            for overlay in overlays:
                scope = self._owners[overlay][0].scope
                for name in names:
                    if name not in unseen and scope.covers(name):
                        found[name].add(overlay)
        return {name: frozenset(overlays) for name, overlays in found.items()}

    def brings(self, branch: Branch) -> set[int]:
        """The overlays of other branches, still there, that came along where this one was merged
        into."""
        found: Contents = {}
        if any(epoch.merged_into for epoch in branch.epochs):
            self._add(found, branch.now.layers, INT8_MAX, INT8_MAX)
        own = {epoch.overlay for epoch in branch.epochs}
        return (found.keys() & self._owners.keys()) - self._gone - own

    def latest_common(self, one: Contents, other: Contents) -> list[CommonVersion]:
        """The latest versions that two lines have in common, none of which contains another one;
        the one that contains most comes first."""
        shared = {
            overlay: min(txn, other[overlay])
            for overlay, txn in one.items()
            if overlay in other and (overlay == MAIN or self._is_there(overlay))
        }
        inside: dict[int, Contents] = {overlay: {} for overlay in shared}
        for overlay, txn in shared.items():
            self._add(inside[overlay], self._line(overlay).layers, txn, txn)

        def lateness(overlay: int) -> tuple[int, int, int]:
            # The one that has all the others in it, be its number larger or not; two lines that
            # were merged without a change have the same last transaction.
            found = inside[overlay]
            has = sum(found.get(other, -1) >= txn for other, txn in shared.items())
            return has, shared[overlay], overlay

        latest: list[int] = []
        for overlay in sorted(shared, key=lateness, reverse=True):
            if all(inside[each].get(overlay, -1) < shared[overlay] for each in latest):
                latest.append(overlay)
        return [CommonVersion(self._line(it), shared[it], inside[it]) for it in latest]

    def _is_there(self, overlay: int) -> bool:
        return overlay in self._owners and overlay not in self._gone

    def _line(self, overlay: int) -> Line:
        if overlay == MAIN:
            return line_on(self._storage, MAIN_BRANCH, MAIN_LAYERS)
        return line_of_branch(self._storage, *self._owners[overlay])

    def contents(self, place: Place) -> Contents:
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
