"""Merges that somebody has to decide: stored until then."""

from __future__ import annotations

import uuid

import msgspec

from naksha.model.errors import MergeConflict, NotFound
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.records import (
    CONFLICT,
    REF,
    Scope,
    Signed,
    StoredConflict,
    Undecided,
    branch_of,
    plain,
    stored_conflict,
)
from naksha.versioning.refs import MAIN_BRANCH


async def conflicts(storage: Storage) -> list[StoredConflict]:
    """All merges that wait for a decision."""
    return [stored_conflict(each) for each in await storage.all_kept(CONFLICT)]


async def conflict_of(storage: Storage, id: str) -> StoredConflict:
    """The one with this id, else NotFound."""
    found = await storage.kept(CONFLICT, id)
    if found is None:
        raise NotFound(f"There is no conflict {id!r}", field="conflict")
    return stored_conflict(found)


async def give_up_conflict(storage: Storage, id: str, signed: Signed) -> None:
    """Forget a conflict without merging."""
    stored = await conflict_of(storage, id)

    owner = stored.source if stored.source != MAIN_BRANCH else stored.target
    branch, revision = await branch_of(storage, stored.scope, owner)
    open_again = msgspec.structs.replace(branch, conflict=None)

    async def work(session: WriteSession) -> None:
        await session.forget(CONFLICT, id)
        await session.keep(REF, stored.scope.key(owner), plain(open_again), expected=revision)

    await storage.run(work, signed.app_id, signed.author)


async def store_conflict(
    storage: Storage,
    source: str,
    target: str,
    scope: Scope,
    open_: list[Undecided],
    signed: Signed,
    kind: str = "merge",
) -> MergeConflict:
    """Keep the conflict, and give the error that tells of it."""
    owner = source if source != MAIN_BRANCH else target
    branch, revision = await branch_of(storage, scope, owner)
    stored = StoredConflict(
        id=branch.conflict or uuid.uuid4().hex[:16],
        source=source,
        target=target,
        scope=scope,
        kind=kind,
        undecided=tuple(open_),
        author=signed.author,
        app_id=signed.app_id,
        created_ms=SystemClock().now_ms(),
    )

    async def work(session: WriteSession) -> None:
        await session.keep(CONFLICT, stored.id, plain(stored))
        marked = msgspec.structs.replace(branch, conflict=stored.id)
        await session.keep(REF, scope.key(owner), plain(marked), expected=revision)

    await storage.run(work, signed.app_id, signed.author)
    return conflict_error(source, target, stored)


def conflict_error(source: str, target: str, stored: StoredConflict) -> MergeConflict:
    """The error that tells of a stored conflict."""
    return MergeConflict(
        f"{len(stored.undecided)} features of {source!r} were changed in {target!r}, too; "
        f"conflict {stored.id!r} waits for a decision",
        undecided=[msgspec.to_builtins(each) for each in stored.undecided],
        id=stored.id,
    )
