"""Merge bases: the state of a collection that two lines have in common.

Usually one version contains everything that both lines share. If two branches were merged into both
lines, or two lines into each other at the same time, there are several such versions and none
contains the others (a criss-cross merge). The base of a feature is then the three-way merge of its
states in all of them, over the base that those versions have themselves.

This is correct because everything that both lines share is in at least one of these versions:
merging them yields a virtual ancestor with all shared changes. Choosing only one would make the
other shared changes look like changes of one line, and a feature that was already reconciled would
conflict again. The recursion ends, as each level uses versions strictly older than the ones it
combines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from naksha.model.merge import same
from naksha.model.state import XYZ, State
from naksha.model.version import AtSeq, AtTxn
from naksha.spi.storage import WriteSession
from naksha.spi.support.write_merge import content_of
from naksha.versioning.ancestry import Ancestry, Contents
from naksha.versioning.diff import CHUNK, FeatureDiff, diff, lookup
from naksha.versioning.lines import Place, at
from naksha.versioning.merges.threeway import differ, merge_states
from naksha.versioning.records import UndecidedFeature


class ContestedDiff(FeatureDiff, frozen=True, gc=False):
    """A feature in which the versions of a merge base contradict each other.

    It has no common state: `old` is None, and any difference between the lines is a conflict.
    """


@dataclass(frozen=True, slots=True)
class MergeBase:
    """The latest versions that two lines share, none of which contains another one."""

    ancestry: Ancestry
    places: tuple[Place, ...]
    contents: tuple[Contents, ...]

    @classmethod
    async def of(
        cls, ancestry: Ancestry, one: Contents, other: Contents, session: WriteSession | None
    ) -> MergeBase:
        """Return the merge base of two lines with these contents."""
        found = ancestry.latest_common(one, other)
        places = [
            await at(each.line.read_in(session), AtTxn(each.txn) if each.txn > 0 else AtSeq(0))
            for each in found
        ]
        return cls(ancestry, tuple(places), tuple(each.contents for each in found))

    def read_in(self, session: WriteSession | None) -> MergeBase:
        """Return the same base, read in a session."""
        return replace(self, places=tuple(place.read_in(session) for place in self.places))

    def is_same(self, other: MergeBase) -> bool:
        """Return whether both consist of the same versions."""
        one, two = (
            [(place.line.layers, place.version) for place in base.places] for base in (self, other)
        )
        return one == two

    async def changes(self, source: Place, collection: str) -> AsyncIterator[FeatureDiff]:
        """Iterate over the features that a line changed since the base.

        With several base versions these may include features that equal their base.
        """
        first, *rest = self.places
        if not rest:
            async for change in diff(first, source, collection):
                yield change
            return
        changed: set[str] = set()
        for place in self.places:
            changed |= {change.id async for change in diff(place, source, collection)}
        ids = sorted(changed)
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            old, contested = await self._states(collection, part)
            new = await lookup(source, collection, part)
            for id_ in part:
                kind = ContestedDiff if id_ in contested else FeatureDiff
                yield kind(collection, id_, old.get(id_), new.get(id_))

    async def _states(
        self, collection: str, ids: Sequence[str]
    ) -> tuple[dict[str, State], set[str]]:
        """Return the common states of these features.

        Also return the features that have none because the base versions contradict each other.
        """
        found = await lookup(self.places[0], collection, ids)
        contested: set[str] = set()
        for number, place in enumerate(self.places[1:], 1):
            others = await lookup(place, collection, ids)
            different = [i for i in ids if differ(found.get(i), others.get(i))]
            if not different:
                continue
            below = await self._below(number)
            roots, unknown = await below._states(collection, different)
            contested |= unknown
            for id_ in different:
                sides = found.pop(id_, None), others.get(id_)
                merged = _merged(collection, id_, roots.get(id_), *sides)
                if isinstance(merged, UndecidedFeature):
                    contested.add(id_)
                elif merged is not None:
                    found[id_] = merged
        return {id_: state for id_, state in found.items() if id_ not in contested}, contested

    async def _below(self, number: int) -> MergeBase:
        """Return the merge base of one of the versions and all versions before it together.

        The versions before it were combined into one virtual version, which contains the union of
        their contents: of each overlay, the latest transaction that any of them contains.
        """
        before: Contents = {}
        for contents in self.contents[:number]:
            for overlay, txn in contents.items():
                before[overlay] = max(txn, before.get(overlay, txn))
        session = self.places[0].line.session
        return await MergeBase.of(self.ancestry, before, self.contents[number], session)


def _merged(
    collection: str, id_: str, base: State | None, ours: State | None, theirs: State | None
) -> State | UndecidedFeature | None:
    """Return the state with the changes of both; None if the merge deletes the feature."""
    write = merge_states(collection, base, ours, theirs)
    if write is None:
        return ours
    if isinstance(write, UndecidedFeature):
        return write
    if write.feature is None or (
        theirs is not None and same(content_of(write.feature), content_of(theirs.feature))
    ):
        return theirs
    assert ours is not None  # Otherwise the result is theirs.
    # The merged state was never written. A stored conflict refers to states by id, so it carries
    # the id of `ours`.
    properties = write.feature["properties"]
    namespace = {**properties[XYZ], "uuid": ours.uuid}
    feature = {**write.feature, "id": id_, "properties": {**properties, XYZ: namespace}}
    return State(id_, msgspec.json.encode(feature))
