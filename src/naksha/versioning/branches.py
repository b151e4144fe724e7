"""Branches: created without copying data, written like main, stored in the storage itself."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from naksha.model.errors import InUse, InvalidArgument
from naksha.spi.clock import SystemClock
from naksha.spi.storage import Storage, WriteSession
from naksha.versioning.ancestry import Ancestry
from naksha.versioning.branch_bases import layers_below, lock_branch, pin_base, unpin_base
from naksha.versioning.lines import Line, check_protectable, line_of, place_of
from naksha.versioning.merges.conflicts import conflicts, end_conflict, give_up_conflict
from naksha.versioning.records import (
    GONE,
    REF,
    STORAGE,
    Attribution,
    Branch,
    BranchEpoch,
    NameScope,
    StoredRecord,
    Tag,
    all_records,
    as_json_value,
    branch_of,
    change_branch,
    deleted_branches,
    find_record,
    name_taken,
    records_in,
)
from naksha.versioning.version_refs import SOLVING, check_name


async def create_branch(
    storage: Storage,
    name: str,
    signed: Attribution,
    base: str = "HEAD",
    *,
    scope: NameScope = STORAGE,
) -> Branch:
    """Create a branch from a version of main or of another branch.

    Args:
        storage: The storage.
        name: The name; must not be in use.
        signed: Author and app id, with the description as message.
        base: The version to start from; a bare name is a tag, or the head of a branch.
        scope: All collections (of the storage or of a space), or some of them.
    """
    check_name(name)
    place = await place_of(storage, base, scope)
    below, since = layers_below(place), place.version.txn
    await check_protectable(place, scope)
    if await find_record(storage, scope, name) is not None:
        raise name_taken(name)

    async def work(session: WriteSession) -> Branch:
        branch = Branch(
            name=name,
            scope=scope,
            parent=place.line.name,
            parent_number=place.line.number,
            epochs=(BranchEpoch(overlay=await session.new_overlay(), below=below, since=since),),
            description=signed.message,
            author=signed.author,
            app_id=signed.app_id,
            created_ms=SystemClock().now_ms(),
        )
        await session.store_object(REF, scope.key(name), as_json_value(branch), expected=0)
        await lock_branch(session, place.line)
        await pin_base(session, branch.now, scope, place.version)
        return branch

    return await storage.run(work, signed.app_id, signed.author)


async def branches(storage: Storage, *, space: str | None = None) -> list[Branch]:
    """List all branches except main, ordered by name."""
    known = await records_in(storage, space)
    return [each.record for each in known if isinstance(each.record, Branch)]


async def rename_branch(
    storage: Storage, name: str, new_name: str, signed: Attribution, *, scope: NameScope = STORAGE
) -> Branch:
    """Rename a branch; branches made from it refer to it by number."""
    check_name(new_name)
    branch, revision = await branch_of(storage, scope, name)
    if branch.solves is not None:
        raise InvalidArgument(
            f"Branch {name!r} cannot be renamed: it resolves a conflict and is named after the"
            " branch in conflict",
            field="name",
        )
    renamed = msgspec.structs.replace(branch, name=new_name)

    async def work(session: WriteSession) -> None:
        if await session.stored_object(REF, scope.key(new_name)) is not None:
            raise name_taken(new_name)
        await session.remove_object(REF, scope.key(name), expected=revision)
        await session.store_object(REF, scope.key(new_name), as_json_value(renamed), expected=0)
        for known in await all_records(session):
            await _rename_in(session, known, renamed)

    await storage.run(work, signed.app_id, signed.author)
    return renamed


async def _rename_in(session: WriteSession, known: StoredRecord, branch: Branch) -> None:
    """Record the new name of a branch in a tag or branch that refers to it."""
    record, expected = known.record, known.revision
    updated: Tag | Branch = record
    if isinstance(record, Tag):
        if record.branch_number == branch.number:
            updated = msgspec.structs.replace(record, branch=branch.name)
    elif record.parent_number == branch.number:
        updated = msgspec.structs.replace(record, parent=branch.name)
    if isinstance(record, Branch) and record.solves in branch.conflicts:
        # A branch that resolves a conflict is named after the branch in conflict.
        await session.remove_object(REF, record.scope.key(record.name), expected=expected)
        updated, expected = msgspec.structs.replace(updated, name=SOLVING + branch.name), 0
    if updated != record:
        await session.store_object(
            REF, updated.scope.key(updated.name), as_json_value(updated), expected=expected
        )


async def describe_branch(
    storage: Storage, name: str, signed: Attribution, *, scope: NameScope = STORAGE
) -> Branch:
    """Replace the description of a branch with `signed.message`."""

    async def work(session: WriteSession) -> Branch:
        branch, revision = await branch_of(session, scope, name)
        described = msgspec.structs.replace(branch, description=signed.message)
        await change_branch(session, described, revision)
        return described

    return await storage.run(work, signed.app_id, signed.author)


async def delete_branch(
    storage: Storage, name: str, signed: Attribution, *, scope: NameScope = STORAGE
) -> None:
    """Delete a branch and all that was written on it, unless a tag or another branch needs it.

    Deleting the branch on which a conflict is resolved gives up that conflict.

    Raises:
        InUse: A tag or another branch has this branch below it.
    """
    found, _ = await branch_of(storage, scope, name)
    if found.solves is not None:
        await give_up_conflict(storage, found.solves, signed)
        return

    async def work(session: WriteSession) -> None:
        branch, revision = await branch_of(session, scope, name)
        # Remove the record first: `lock_branch` rewrites the same row, so a tag or branch that is
        # created concurrently either fails or is visible below.
        await session.remove_object(REF, scope.key(name), expected=revision)
        for conflict in await conflicts(session):
            if branch.number in (conflict.source, conflict.target):
                await end_conflict(session, conflict)
        own = {epoch.overlay for epoch in branch.epochs}
        user = _user_of(own, branch, await all_records(session))
        if user is not None:
            raise InUse(f"Branch {name!r} cannot be deleted: {user} is based on it", field="branch")
        for epoch in branch.epochs:
            await unpin_base(session, epoch, branch.scope)
            await session.drop_overlay(epoch.overlay)
        await _remember_gone(session, storage, branch)

    await storage.run(work, signed.app_id, signed.author)


async def _remember_gone(session: WriteSession, storage: Storage, branch: Branch) -> None:
    """Keep the record of a deleted branch as long as the merge history needs it.

    What a merge brought over the deleted branch stays merged. The record is needed while a branch
    that it brought along still exists.
    """
    records = [known.record for known in await all_records(session)]
    live = [each for each in records if isinstance(each, Branch)]
    gone = [*await deleted_branches(session), branch]
    ancestry = Ancestry(storage, live, gone)
    for each in gone:
        if not ancestry.merged_overlays(each):
            await session.remove_object(GONE, str(each.number))
        elif each is branch:
            await session.store_object(GONE, str(each.number), as_json_value(each))


async def open_branch(storage: Storage, name: str, *, scope: NameScope = STORAGE) -> Line:
    """Return the line to read and write a branch or main."""
    return await line_of(storage, name, scope)


def _user_of(overlays: set[int], branch: Branch, known: Iterable[StoredRecord]) -> str | None:
    """Return the tag or branch that has one of these overlays below it, if any."""
    for each in known:
        record = each.record
        if record == branch:
            continue
        if isinstance(record, Branch):
            below = {layer.overlay for epoch in record.epochs for layer in epoch.below}
            if below & overlays:
                return f"branch {record.name!r}"
        elif overlays & {layer.overlay for layer in record.layers}:
            return f"tag {record.name!r}"
    return None
