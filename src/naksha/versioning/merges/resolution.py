"""Resolve a stored conflict with decisions."""

from __future__ import annotations

from naksha.model.errors import NotFound
from naksha.model.transaction import MAIN
from naksha.spi.storage import Storage
from naksha.versioning.merges.conflicts import conflict_of
from naksha.versioning.merges.merge import Choices, MergePolicy, merge
from naksha.versioning.merges.rebase import rebase
from naksha.versioning.records import Attribution, branch_with
from naksha.versioning.state_writer import WriteReport
from naksha.versioning.version_refs import MAIN_BRANCH


async def resolve_conflict(
    storage: Storage,
    id: str,
    choices: Choices,
    signed: Attribution,
    *,
    policy: MergePolicy = MergePolicy.FAIL,
) -> WriteReport:
    """Repeat the merge or rebase of a stored conflict with a choice for each of its features.

    Raises:
        MergeConflict: A feature has no choice, or new conflicts have appeared since.
    """
    stored = await conflict_of(storage, id)
    scope, onto = stored.scope, stored.onto
    source, target = [await _name(storage, number) for number in (stored.source, stored.target)]
    if stored.kind == "rebase":
        return await rebase(
            storage, source, signed, onto, scope=scope, policy=policy, choices=choices
        )
    return await merge(
        storage,
        source,
        target,
        signed,
        scope=scope,
        policy=policy,
        choices=choices,
    )


async def _name(storage: Storage, number: int) -> str:
    """Return the current name of a branch."""
    if number == MAIN:
        return MAIN_BRANCH
    known = await branch_with(storage, number)
    if known is None:
        raise NotFound(
            f"Branch number {number} of the conflict was deleted, so the conflict cannot be"
            " resolved; give the conflict up",
            field="conflict",
        )
    return known[0].name
