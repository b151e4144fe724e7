"""Merges that wait for a decision, and the storage of their conflicts.

A conflict stores, for each feature, the ids of its states in the base and on both sides. These
states are pinned, so the features can be read again, and a conflict may be of any size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from operator import attrgetter
from typing import Any, Final

import msgspec

from naksha.model.errors import MergeConflict, NotFound
from naksha.model.state import XYZ, State
from naksha.model.transaction import MAIN
from naksha.model.version import AtSeq
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, StorageReader, WriteSession
from naksha.versioning.diff import lookup
from naksha.versioning.lines import Line, Place, at, line_on
from naksha.versioning.merges.resolution_branch import (
    ResolutionPlan,
    create_resolution_branch,
    drop_resolution_branch,
    store_resolution_branch,
)
from naksha.versioning.merges.threeway import conflict_between
from naksha.versioning.records import (
    CONFLICT,
    CONFLICT_PART,
    Attribution,
    Branch,
    NameScope,
    StoredConflict,
    StoredPosition,
    StoredUndecided,
    UndecidedFeature,
    as_json_value,
    branch_with,
    change_branch,
    pins_of,
    stored_conflict,
)
from naksha.versioning.version_refs import SOLVING

PART_MAX: Final = 1_000
"""Features per stored object; each is five short texts."""
_SIDES: Final = (attrgetter("base"), attrgetter("ours"), attrgetter("theirs"))


async def conflicts(reader: StorageReader) -> list[StoredConflict]:
    """List the merges that wait for a decision."""
    return [stored_conflict(each) for each in await reader.stored_objects(CONFLICT)]


async def conflict_of(reader: StorageReader, id: str) -> StoredConflict:
    """Return the conflict with this id, else raise NotFound."""
    found = await reader.stored_object(CONFLICT, id)
    if found is None:
        raise _unknown(id)
    return stored_conflict(found)


async def undecided_of(storage: Storage, id: str) -> AsyncIterator[UndecidedFeature]:
    """Iterate over the features of a conflict, with the base, ours and theirs it arose from."""
    stored = await conflict_of(storage, id)
    for number in range(stored.parts):
        kept = await storage.stored_object(CONFLICT_PART, _part_id(id, number))
        if kept is None:
            raise _unknown(id)
        part = msgspec.convert(kept.value, list[StoredUndecided])
        base, ours, theirs = [
            await _states(
                storage, spot, [(each.collection, each.id, uuid_of(each)) for each in part]
            )
            for spot, uuid_of in zip(stored.spots, _SIDES, strict=True)
        ]
        for each, *sides in zip(part, base, ours, theirs, strict=True):
            yield conflict_between(each.collection, each.id, sides)


async def give_up_conflict(storage: Storage, id: str, signed: Attribution) -> None:
    """Remove a conflict without merging, even if its branches no longer exist."""
    stored = await conflict_of(storage, id)

    async def work(session: WriteSession) -> None:
        await end_conflict(session, stored)

    await storage.run(work, signed.app_id, signed.author)


async def store_conflict(
    storage: Storage,
    places: tuple[Place, Place, Place],
    open_: list[UndecidedFeature],
    signed: Attribution,
    *,
    kind: str = "merge",
    onto: str | None = None,
    solving: ResolutionPlan | None = None,
) -> MergeConflict:
    """Store a conflict between a source and a target, and return the error that reports it.

    With `solving`, a branch to resolve the conflict on is created as well.
    """
    source, target = places[0].line, places[1].line
    owner = source.branch or target.branch
    assert owner is not None
    parts = [open_[start : start + PART_MAX] for start in range(0, len(open_), PART_MAX)]
    stored = StoredConflict(
        id=conflict_id(kind, source, target),
        source=_number(source),
        target=_number(target),
        onto=onto,
        scope=owner.scope,
        kind=kind,
        count=len(open_),
        parts=len(parts),
        spots=(_spot(places[2]), _spot(places[1]), _spot(places[0])),
        author=signed.author,
        app_id=signed.app_id,
        created_ms=SystemClock().now_ms(),
    )

    async def work(session: WriteSession) -> None:
        known = await branch_with(session, owner.number)
        if known is None:
            raise NotFound(f"Branch {owner.name!r} does not exist", field="branch")
        branch, revision = known
        if target.branch is not None and target.branch.number != owner.number:
            # Rewrite the record of the target so that a concurrent deletion fails: it would remove
            # the conflicts of the branch, but miss the one that is being stored.
            other = await branch_with(session, target.branch.number)
            if other is None:
                raise NotFound(f"Branch {target.name!r} does not exist", field="branch")
            await change_branch(session, *other)
        resolution = None
        if solving is not None:
            resolution = await create_resolution_branch(session, solving, branch, stored.id, signed)
        await forget_conflict(session, stored.id)
        if resolution is not None and solving is not None:
            await store_resolution_branch(session, resolution, solving)
        resolution_number = None if resolution is None else resolution.number
        conflict = msgspec.structs.replace(stored, solving=resolution_number)
        await session.store_object(CONFLICT, stored.id, as_json_value(conflict))
        for number, part in enumerate(parts):
            kept = [_contested(each) for each in part]
            await session.store_object(
                CONFLICT_PART, _part_id(stored.id, number), as_json_value(kept)
            )
        await _pin(session, stored, places)
        ids = tuple(sorted({*branch.conflicts, stored.id}))
        await change_branch(session, msgspec.structs.replace(branch, conflicts=ids), revision)

    await storage.run(work, signed.app_id, signed.author)
    place = "" if solving is None else f" (on branch {SOLVING + owner.name!r}, for example)"
    return MergeConflict(
        f"{source.name!r} and {target.name!r} changed the same places of {len(open_)} feature(s); "
        f"resolve conflict {stored.id!r}{place}, give it up, or merge with a policy",
        undecided=[msgspec.to_builtins(each) for each in open_],
        id=stored.id,
    )


async def end_conflict(session: WriteSession, stored: StoredConflict) -> None:
    """Remove a conflict, also from its branch if that still exists."""
    await forget_conflict(session, stored.id)
    known = await branch_with(session, stored.source or stored.target)
    if known is not None:
        branch, revision = known
        await change_branch(session, without_conflict(branch, stored.id), revision)


async def forget_conflict(session: WriteSession, id: str) -> None:
    """Remove a conflict with its parts, pins and resolving branch, if it exists."""
    found = await session.stored_object(CONFLICT, id)
    if found is None:
        return
    stored = stored_conflict(found)
    await session.remove_object(CONFLICT, id)
    for number in range(stored.parts):
        await session.remove_object(CONFLICT_PART, _part_id(id, number))
    for name, _ in _pins(id, stored.scope):
        await session.unpin(name)
    if stored.solving is not None:
        await drop_resolution_branch(session, stored.solving)


def conflict_id(kind: str, source: Line, target: Line) -> str:
    """Return the id of a conflict.

    It is the same for the same two branches, so a later attempt replaces an earlier one.
    """
    return f"{kind}-{_number(source)}-{_number(target)}"


def without_conflict(branch: Branch, conflict: str) -> Branch:
    """Return a branch without one of its conflicts."""
    left = tuple(each for each in branch.conflicts if each != conflict)
    return msgspec.structs.replace(branch, conflicts=left)


async def _pin(session: WriteSession, stored: StoredConflict, places: Iterable[Place]) -> None:
    """Pin the states of all sides; a pin on the earliest version keeps everything since."""
    versions = [each.version for each in places if each.version.seq_number > 0]
    if versions:
        for name, collection in _pins(stored.id, stored.scope):
            await session.pin(name, min(versions), collection, guards=True)


def _pins(id: str, scope: NameScope) -> list[tuple[str, str | None]]:
    return pins_of(f"conflict:{id}", scope)


def _spot(place: Place) -> StoredPosition:
    return StoredPosition(place.line.layers, place.version.seq_number)


def _contested(report: UndecidedFeature) -> StoredUndecided:
    sides = (report.base, report.ours, report.theirs)
    base, ours, theirs = (None if each is None else _uuid(each) for each in sides)
    return StoredUndecided(
        collection=report.collection, id=report.id, base=base, ours=ours, theirs=theirs
    )


def _uuid(feature: dict[str, Any]) -> str:
    return str(feature["properties"][XYZ]["uuid"])


async def _states(
    storage: Storage, spot: StoredPosition, wanted: list[tuple[str, str, str | None]]
) -> list[State | None]:
    """Return the states of features given as (collection, id, state id).

    Nearly all of them belong to the version; those that were not published then are looked up by
    id.
    """
    place = await at(line_on(storage, "", spot.layers), AtSeq(spot.seq_number))
    found: dict[str, State] = {}
    for name in {name for name, _, uuid in wanted if uuid is not None}:
        ids = [id_ for each, id_, uuid in wanted if each == name and uuid is not None]
        found |= {state.uuid: state for state in (await lookup(place, name, ids)).values()}
    return [
        None if uuid is None else found.get(uuid) or await storage.state(uuid)
        for _, _, uuid in wanted
    ]


def _part_id(id: str, number: int) -> str:
    return f"{id}:{number}"


def _unknown(id: str) -> NotFound:
    return NotFound(
        f"Conflict {id!r} does not exist; it may have been resolved or given up", field="conflict"
    )


def _number(line: Line) -> int:
    return MAIN if line.branch is None else line.branch.number
