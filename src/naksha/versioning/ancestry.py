"""Contents of a line: the overlays it contains, and up to which transaction of each.

A line obtains contents from its layers, from merges and from rebases. The latest contents that two
lines share are the base of a merge between them (`naksha.versioning.merges.bases`). Everything is
derived from the records of the branches; the history itself is never scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

from naksha.model.limits import INT8_MAX
from naksha.model.transaction import MAIN
from naksha.model.version import HEAD
from naksha.spi.storage import BranchLayer, Storage, StorageReader, WriteSession
from naksha.versioning.lines import Line, Place, line_of_branch, line_on
from naksha.versioning.records import (
    MAIN_LAYERS,
    Branch,
    BranchEpoch,
    all_records,
    deleted_branches,
)
from naksha.versioning.version_refs import MAIN_BRANCH

Contents = dict[int, int]
"""For each overlay, the last transaction of it that a line contains."""


@dataclass(frozen=True, slots=True)
class OverlayMerge:
    """A merge in transaction `txn` of one overlay that brought in overlay `source`.

    It brought everything of `source` up to transaction `source_txn`.
    """

    txn: int
    source: int
    source_txn: int


@dataclass(frozen=True, slots=True)
class CommonVersion:
    """A version that two lines share, with everything that it contains."""

    line: Line
    txn: int
    contents: Contents


class Ancestry:
    """The branches of a storage and the merges between them.

    `about` narrows it to the merges between some of the overlays.
    """

    def __init__(self, storage: Storage, live: Iterable[Branch], gone: Iterable[Branch]) -> None:
        self._storage = storage
        self._owners: dict[int, tuple[Branch, BranchEpoch]] = {}
        self._merges: dict[int, list[OverlayMerge]] = {}
        for branch in (*live, *gone):
            for epoch in branch.epochs:
                self._owners[epoch.overlay] = (branch, epoch)
                self._note(epoch)
        self._gone = {epoch.overlay for branch in gone for epoch in branch.epochs}

    @classmethod
    async def of(cls, storage: Storage, reader: StorageReader) -> Ancestry:
        """Read the branch records; inside a session, as that session sees them."""
        records = [known.record for known in await all_records(reader)]
        live = [each for each in records if isinstance(each, Branch)]
        return cls(storage, live, await deleted_branches(reader))

    def _note(self, epoch: BranchEpoch) -> None:
        own = epoch.overlay
        for target, point in epoch.merged_into.items():
            merges = [OverlayMerge(theirs, own, ours) for ours, theirs in point.all]
            self._merges.setdefault(target, []).extend(merges)
        for source, point in epoch.merged_from.items():
            merges = [OverlayMerge(ours, source, theirs) for ours, theirs in point.all]
            self._merges.setdefault(own, []).extend(merges)
        if epoch.replayed is not None:
            # A rebase replays everything that the branch had on its former base, so it counts as a
            # merge of the former overlay.
            former, txn = epoch.replayed
            self._merges.setdefault(own, []).append(OverlayMerge(epoch.since, former, txn))

    def about(self, overlays: frozenset[int]) -> Ancestry:
        """Return the ancestry for a collection that can exist only on these overlays.

        A merge with any other overlay did not bring the collection, so it is ignored.
        """
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
        """Return, for each collection, the overlays that can have states of it.

        These are main and the overlays of the branches whose scope covers the collection and that
        were created after the collection.
        """
        found = {name: {MAIN} for name in names}
        unseen = set(names)
        by_base: dict[int, list[int]] = {}
        for overlay, (_, epoch) in self._owners.items():
            by_base.setdefault(epoch.below[-1].txn or 0, []).append(overlay)
        for _, overlays in sorted(by_base.items()):
            if unseen:
                # A collection that exists at one base also exists at the later ones, so a name is
                # usually looked up only once.
                layers = self._owners[overlays[0]][1].layers
                unseen -= {info.id for info in await reader.on_branch(layers).collections()}
            for overlay in overlays:
                scope = self._owners[overlay][0].scope
                for name in names:
                    if name not in unseen and scope.covers(name):
                        found[name].add(overlay)
        return {name: frozenset(overlays) for name, overlays in found.items()}

    def merged_overlays(self, branch: Branch) -> set[int]:
        """Return the live overlays of other branches that a merge of this branch brought along."""
        found: Contents = {}
        if any(epoch.merged_into for epoch in branch.epochs):
            self._add(found, branch.now.layers, INT8_MAX, INT8_MAX)
        own = {epoch.overlay for epoch in branch.epochs}
        return (found.keys() & self._owners.keys()) - self._gone - own

    def latest_common(self, one: Contents, other: Contents) -> list[CommonVersion]:
        """Return the latest versions that two lines share, the one that contains the most first.

        None of the returned versions contains another one.
        """
        shared = {
            overlay: min(txn, other[overlay])
            for overlay, txn in one.items()
            if overlay in other and (overlay == MAIN or self._is_there(overlay))
        }
        inside: dict[int, Contents] = {overlay: {} for overlay in shared}
        for overlay, txn in shared.items():
            self._add(inside[overlay], self._line(overlay).layers, txn, txn)

        def lateness(overlay: int) -> tuple[int, int, int]:
            # Order by the number of other candidates that a version contains, not by its
            # transaction: a version may contain one with a larger transaction, and two lines that
            # were merged without a change end at the same transaction. A version is therefore
            # always visited before the ones it contains, which the loop below then drops.
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
        """Return what a version of a line contains.

        HEAD contains every recorded merge, published or not.
        """
        found: Contents = {}
        until = INT8_MAX if place.at == HEAD else place.version.txn
        self._add(found, place.line.layers, place.version.txn, until)
        return found

    def _add(self, found: Contents, layers: tuple[BranchLayer, ...], txn: int, until: int) -> None:
        for layer in layers:
            last = txn if layer.txn is None else min(layer.txn, txn)
            if found.get(layer.overlay, -1) >= last and layer.txn is not None:
                continue
            found[layer.overlay] = max(last, found.get(layer.overlay, 0))
            for merge in self._merges.get(layer.overlay, ()):
                if merge.txn <= (until if layer.txn is None else last):
                    self._add_merge(found, merge)

    def _add_merge(self, found: Contents, merge: OverlayMerge) -> None:
        if found.get(merge.source, -1) >= merge.source_txn:
            return
        layers: tuple[BranchLayer, ...] = MAIN_LAYERS
        if merge.source != MAIN:
            if merge.source not in self._owners:
                return
            layers = self._owners[merge.source][1].layers
        self._add(found, layers, merge.source_txn, merge.source_txn)
