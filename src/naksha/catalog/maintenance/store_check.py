"""Consistency check of the whole store, realm by realm, and repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from naksha.catalog.maintenance.log_horizon import POINTER as HISTORY
from naksha.catalog.maintenance.log_horizon import (
    LogHorizon,
    LogHorizons,
    LogHorizonState,
    read_log_horizons,
)
from naksha.catalog.maintenance.mark_set import MarkLimits, MarkSet
from naksha.catalog.maintenance.realm_reader import OBJECTS_BATCH, RealmReader, batches
from naksha.catalog.maintenance.retained_ids import TypeIdentifier
from naksha.catalog.maintenance.verification import (
    DAMAGE,
    Consistency,
    FindingKind,
    PointerCheck,
    RealmChecker,
)
from naksha.catalog.objects import ObjectRef
from naksha.catalog.persistence import Persistence
from naksha.catalog.pointers import Pointer
from naksha.model import limits
from naksha.model.errors import Conflict, PointerNotFound, StorageCorrupt
from naksha.spi.catalog import CatalogBackend, PointerRow, ScannedObject


class RealmCheck(msgspec.Struct, kw_only=True):
    """Result of checking a realm."""

    realm: str
    pointers: list[PointerCheck]
    orphans: int = 0
    """Unreferenced rows, which maintenance will delete once they are old enough."""

    @property
    def consistency(self) -> Consistency:
        """The consistency of its worst pointer."""
        classes = {check.consistency for check in self.pointers}
        if Consistency.COMMIT_MISSING in classes:
            return Consistency.COMMIT_MISSING
        is_whole = Consistency.CONTENT_MISSING not in classes
        return Consistency.CONSISTENT if is_whole else Consistency.CONTENT_MISSING


async def check_realm(
    reader: RealmReader, types: Iterable[TypeIdentifier] = (), marks: MarkSet | None = None
) -> RealmCheck:
    """Check everything that the pointers of a realm lead to. Orphans are not counted."""
    checker = await _checker(reader, types, marks or MarkSet())
    checks = [await checker.check(row) async for row in reader.pointers()]
    return RealmCheck(realm=reader.realm, pointers=checks)


async def check_store(
    backend: CatalogBackend,
    realms: Sequence[str],
    now_us: int,
    types: Iterable[TypeIdentifier] = (),
) -> list[RealmCheck]:
    """Check several realms and count their orphans. Other clients may write meanwhile."""
    marks = MarkSet(MarkLimits(exact_max=limits.MARKS_FILTER_MAX))
    types = list(types)
    checks = [await check_realm(RealmReader(backend, realm), types, marks) for realm in realms]
    orphans = await _count_orphans(backend, set(realms), marks, now_us)
    for check in checks:
        check.orphans = orphans[check.realm]
    return checks


async def _count_orphans(
    backend: CatalogBackend, realms: set[str], marks: MarkSet, now_us: int
) -> Counter[str]:
    """Count unreferenced objects.

    Conditional objects are not counted, nor are objects young enough to belong to a commit in
    progress.
    """
    cutoff_us = now_us - int(limits.MAINTENANCE_GRACE_SECONDS_MIN * 1_000_000)
    orphans: Counter[str] = Counter()
    async for page in backend.scan():
        for realm in realms.intersection(row.realm for row in page):
            old = [
                row
                for row in page
                if isinstance(row, ScannedObject)
                and row.realm == realm
                and row.created_us <= cutoff_us
            ]
            marked = marks.has(realm, [row.key.id for row in old]).tolist()
            loose = [row.key for row, is_marked in zip(old, marked, strict=True) if not is_marked]
            for keys in batches(loose, OBJECTS_BATCH):
                rows = await backend.fetch(realm, keys)
                orphans[realm] += sum(row.token is None for row in rows.values())
    return orphans


async def _checker(
    reader: RealmReader, types: Iterable[TypeIdentifier], marks: MarkSet
) -> RealmChecker:
    try:
        state = await read_log_horizons(reader)
    except DAMAGE:
        state = LogHorizonState()  # The check reports the damaged pointer `history` itself.
    return RealmChecker(reader, state, {each.type: each for each in types}, marks)


# ---- Repair --------------------------------------------------------------------------------------


async def repair_head(
    reader: RealmReader, name: str, types: Iterable[TypeIdentifier] = ()
) -> Pointer:
    """Move a damaged pointer back to its newest previous target that is intact.

    Later commits are lost.

    Raises:
        Conflict: It is not damaged, or was moved concurrently.
        StorageCorrupt: None of its previous targets is intact.
    """
    row = await _pointer_row(reader, name)
    checker = await _checker(reader, types, MarkSet())
    if (await checker.check(row)).consistency is Consistency.CONSISTENT:
        raise Conflict(f"Pointer {name!r} is not damaged and needs no repair", field="pointer")
    for candidate in _previous(Pointer.from_row(row)):
        fresh = await _checker(reader, types, MarkSet())
        if (await fresh.check(candidate.to_row())).consistency is not Consistency.CONSISTENT:
            continue
        if not await reader.backend.swap_pointer(reader.realm, row, candidate.to_row()):
            raise Conflict(
                f"Pointer {name!r} was moved concurrently; check it again", field="pointer"
            )
        return candidate
    raise StorageCorrupt(
        f"Pointer {name!r} cannot be repaired: none of its previous targets is intact; restore "
        "the catalog from a backup"
    )


async def repair_log(persistence: Persistence, name: str) -> LogHorizon:
    """Let a log begin after its newest missing commit.

    The ancestors of that commit cannot be reached any more; consumers that need them receive
    Expired.

    Raises:
        Conflict: No commit is missing, or more than that is damaged.
    """
    reader = RealmReader(persistence.backend, persistence.realm)
    row = await _pointer_row(reader, name)
    checker = await _checker(reader, (), MarkSet())
    check = await checker.check(row)
    gaps = [each for each in check.findings if each.problem is FindingKind.COMMIT_MISSING]
    if not gaps or name == HISTORY:
        raise Conflict(
            f"No commit of pointer {name!r} is missing; there is nothing to repair", field="pointer"
        )
    horizon = LogHorizon(pointer=name, created=row.created, seq=check.oldest)
    await LogHorizons(persistence).lose(horizon)
    return horizon


async def _pointer_row(reader: RealmReader, name: str) -> PointerRow:
    row = (await reader.backend.fetch_pointers(reader.realm, [name])).get(name)
    if row is None:
        raise PointerNotFound(f"Pointer {name!r} does not exist in realm {reader.realm!r}")
    return row


def _previous(pointer: Pointer) -> list[Pointer]:
    """Return the earlier states of a pointer that it remembers, nearest first."""
    if pointer.target is None:
        return []
    kind = pointer.target.type
    return [
        msgspec.structs.replace(
            pointer, target=ObjectRef(kind, id), previous=pointer.previous[place + 1 :]
        )
        for place, id in enumerate(pointer.previous)
    ]
