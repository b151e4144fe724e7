"""Merges that somebody has to decide: stored until then."""

from __future__ import annotations

import msgspec

from naksha.model.errors import MergeConflict, NotFound
from naksha.model.transaction import MAIN
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.places import Line
from naksha.versioning.records import (
    CONFLICT,
    REF,
    Branch,
    Signed,
    StoredConflict,
    Undecided,
    branch_with,
    plain,
    stored_conflict,
)


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
    """Forget a conflict without merging; whatever became of its branches."""
    stored = await conflict_of(storage, id)

    async def work(session: WriteSession) -> None:
        await session.forget(CONFLICT, id)
        known = await branch_with(session, stored.source or stored.target)
        if known is not None:
            branch, revision = known
            key = branch.scope.key(branch.name)
            await session.keep(REF, key, plain(without(branch, id)), expected=revision)

    await storage.run(work, signed.app_id, signed.author)


async def store_conflict(
    storage: Storage,
    source: Line,
    target: Line,
    open_: list[Undecided],
    signed: Signed,
    *,
    kind: str = "merge",
    onto: str | None = None,
) -> MergeConflict:
    """Keep the conflict, and give the error that tells of it."""
    owner = source.branch or target.branch
    assert owner is not None
    stored = StoredConflict(
        id=conflict_id(kind, source, target),
        source=_number(source),
        target=_number(target),
        onto=onto,
        scope=owner.scope,
        kind=kind,
        undecided=tuple(open_),
        author=signed.author,
        app_id=signed.app_id,
        created_ms=SystemClock().now_ms(),
    )

    async def work(session: WriteSession) -> None:
        known = await branch_with(session, owner.number)
        if known is None:
            raise NotFound(f"There is no branch {owner.name!r}", field="branch")
        branch, revision = known
        await session.keep(CONFLICT, stored.id, plain(stored))
        ids = tuple(sorted({*branch.conflicts, stored.id}))
        marked = msgspec.structs.replace(branch, conflicts=ids)
        key = branch.scope.key(branch.name)
        await session.keep(REF, key, plain(marked), expected=revision)

    await storage.run(work, signed.app_id, signed.author)
    return MergeConflict(
        f"{len(open_)} features of {source.name!r} were changed in {target.name!r}, too; "
        f"conflict {stored.id!r} waits for a decision",
        undecided=[msgspec.to_builtins(each) for each in open_],
        id=stored.id,
    )


def conflict_id(kind: str, source: Line, target: Line) -> str:
    """The same for the same two branches: a later attempt takes the place of an earlier one."""
    return f"{kind}-{_number(source)}-{_number(target)}"


def without(branch: Branch, conflict: str) -> Branch:
    """A branch that has one conflict less."""
    left = tuple(each for each in branch.conflicts if each != conflict)
    return msgspec.structs.replace(branch, conflicts=left)


def _number(line: Line) -> int:
    return MAIN if line.branch is None else line.branch.number
