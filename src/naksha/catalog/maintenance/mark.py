"""Marking: find everything that a realm still needs.

The newest commit of a pointer is walked completely. Of each older retained commit only the changes
and the stripes that no newer commit shares are marked. Marking a long log of a large index thus
costs one walk of the index, and one read of each commit.

This marks everything that an older retained commit needs: an entity of it either still exists
unchanged in the newest commit, or a later retained commit changed it and lists the old object among
its changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from naksha.catalog.commits import Commit
from naksha.catalog.entities import EntitiesCommit
from naksha.catalog.maintenance.log_horizon import LogHorizon, LogHorizonState
from naksha.catalog.maintenance.mark_set import MarkSet
from naksha.catalog.maintenance.pointer_walk import changed_refs, entity_refs, index_of, log_down
from naksha.catalog.maintenance.realm_reader import OBJECTS_BATCH, RealmReader, batches
from naksha.catalog.maintenance.retained_ids import ClaimedRealm, TypeIdentifier
from naksha.catalog.object_rows import assembled
from naksha.catalog.objects import Object, ObjectRef, known_type
from naksha.catalog.pointers import Pointer
from naksha.model.errors import NotSupported, StorageCorrupt
from naksha.spi.catalog import ScannedPointer


class MarkTimes(msgspec.Struct, frozen=True):
    """Points in time by which a run judges age."""

    now_us: int
    cutoff_us: int
    """Objects written later are not swept, and therefore everything that they need is marked."""


class RealmMarker:
    """Marks the objects that one realm needs.

    Raises:
        StorageCorrupt: Something that is needed is missing or damaged.
        NotSupported: Something refers to objects of a type that this program does not know, so
            it is unknown what else is needed.
    """

    def __init__(
        self,
        reader: RealmReader,
        claimed: ClaimedRealm,
        types: dict[str, TypeIdentifier],
        marks: MarkSet,
        times: MarkTimes,
    ) -> None:
        self.horizons: dict[str, LogHorizon] = {}
        """Possible horizon of the log of each pointer, as far as the log was walked."""
        self.condemned: list[ScannedPointer] = []
        """Pointers that are to be deleted."""
        self._reader = reader
        self._claimed = claimed
        self._types = types
        self._marks = marks
        self._times = times
        # This must be exact: references of an object in it are not marked again.
        self._seen: set[int] = set()

    async def mark(self, state: LogHorizonState) -> None:
        """Mark all objects that can be reached from pointers and roots."""
        async for row in self._reader.pointers():
            pointer = Pointer.from_row(row)
            if not await self._condemns(pointer):
                await self._mark_pointer(pointer, state)
        async for ref in self._claimed.roots(self._reader):
            await self._mark_refs([ref])

    async def extend(self, state: LogHorizonState) -> None:
        """Mark the rest of logs that were pinned after they were walked."""
        for name, horizon in list(self.horizons.items()):
            if state.oldest(name, horizon.created) < horizon.seq:
                rows = await self._reader.backend.fetch_pointers(self._reader.realm, [name])
                if name in rows and rows[name].created == horizon.created:
                    await self._mark_pointer(Pointer.from_row(rows[name]), state)

    async def _condemns(self, pointer: Pointer) -> bool:
        if self._claimed.keeps_pointer(pointer):
            return False
        if pointer.target is not None:
            head = await self._reader.fetch(pointer.target)
            if head is not None and head.created_us > self._times.cutoff_us:
                return False  # It was in use until recently.
        self.condemned.append(ScannedPointer(self._reader.realm, pointer.name, pointer.created))
        return True

    async def _mark_pointer(self, pointer: Pointer, state: LogHorizonState) -> None:
        if pointer.target is None:
            return
        head = await self._reader.fetch(pointer.target)
        if head is None:
            raise StorageCorrupt(
                f"Pointer {pointer.name!r} points to object {pointer.target.id}, which is "
                "missing; run `naksha doctor` and `naksha realm repair`"
            )
        if isinstance(head.value, Commit):
            await self._mark_log(pointer, head, state)
        else:
            await self._mark_refs([pointer.target])
            # Previous targets are required for repairs.
            before = [ObjectRef(pointer.target.type, id) for id in pointer.previous]
            await self._mark_refs(before, is_needed=False)

    # ---- A log -------------------------------------------------------------------------------

    async def _mark_log(self, pointer: Pointer, head: Object[Any], state: LogHorizonState) -> None:
        retention = self._claimed.retention(pointer.name)
        oldest = state.oldest(pointer.name, pointer.created)
        pinned = state.pinned(pointer.name, pointer.created, self._times.now_us)
        seq = head.value.seq
        stripes: set[int] = set()
        newer = head.value
        async for commit in log_down(self._reader, head, oldest):
            value = commit.value
            is_kept = (
                commit is head
                or retention.keeps(value, newer, head.value, self._times.now_us)
                or newer.at_us >= self._times.cutoff_us  # Others may still use it as the newest.
                or (pinned is not None and value.seq >= pinned)
            )
            if not is_kept:
                break
            newer = value
            if value.seq != seq:
                raise StorageCorrupt(
                    f"Commit {seq} of pointer {pointer.name!r} has the wrong number {value.seq}; "
                    "run `naksha doctor`"
                )
            seq -= 1
            await self._mark_commit(commit, stripes, is_head=commit is head)
        else:
            if seq >= oldest:
                raise StorageCorrupt(
                    f"Commit {seq} of pointer {pointer.name!r} is missing; run "
                    "`naksha doctor` and `naksha realm repair`"
                )
        self.horizons[pointer.name] = LogHorizon(
            pointer=pointer.name, created=pointer.created, seq=seq + 1
        )

    async def _mark_commit(
        self, commit: Object[Commit], stripes: set[int], *, is_head: bool
    ) -> None:
        value = commit.value
        if not isinstance(value, EntitiesCommit):
            await self._mark_refs([commit.ref])
            return
        self._marks.add(self._reader.realm, [commit.id])
        index = index_of(value, self._reader)
        parts = [ref.id async for ref in index.stripe_refs(stripes)]
        self._marks.add(self._reader.realm, parts)
        await self._mark_refs(changed_refs(value.changes))
        if is_head:
            some: list[ObjectRef] = []
            async for ref in entity_refs(index):
                some.append(ref)
                if len(some) == OBJECTS_BATCH:
                    await self._mark_refs(some)
                    some = []
            await self._mark_refs(some)

    # ---- Objects, and what they refer to -----------------------------------------------------

    async def _mark_refs(self, refs: Iterable[ObjectRef], *, is_needed: bool = True) -> None:
        """Mark objects and everything that they refer to.

        Objects of types without references are not read.
        """
        todo = list(refs)
        while todo:
            self._marks.add(self._reader.realm, [ref.id for ref in todo])
            to_read = [ref for ref in todo if self._refers(ref) and ref.id not in self._seen]
            self._seen.update(ref.id for ref in to_read)
            todo = []
            for some in batches(to_read, OBJECTS_BATCH):
                todo += await self._references(some, is_needed)
            is_needed = True

    def _refers(self, ref: ObjectRef) -> bool:
        if ref.type in self._types:
            return True
        if known_type(ref.type) is None:
            raise NotSupported(
                f"Object {ref.id} is of type {ref.type!r}, which this program does not know; run "
                "the maintenance of the catalog with a program that registers this type"
            )
        return False

    async def _references(self, refs: list[ObjectRef], is_needed: bool) -> list[ObjectRef]:
        found: list[ObjectRef] = []
        rows = await self._reader.rows(refs)
        for ref in refs:
            kept = assembled(ref, rows)
            if kept is None and is_needed:
                raise StorageCorrupt(
                    f"Object {ref.id} of type {ref.type!r} is missing; run `naksha doctor`"
                )
            if kept is not None:
                identifier = self._types[ref.type]
                found += [each async for each in identifier.references(kept, self._reader)]
        return found
