"""Ending a stored conflict with decisions."""

from __future__ import annotations

from naksha.spi.storage import Storage
from naksha.versioning.conflicts import conflict_of
from naksha.versioning.merges import Choices, Policy, merge
from naksha.versioning.rebase import rebase
from naksha.versioning.records import Signed
from naksha.versioning.writing import Written


async def resolve_conflict(
    storage: Storage,
    id: str,
    choices: Choices,
    signed: Signed,
    *,
    policy: Policy = Policy.FAIL,
) -> Written:
    """Do the merge or rebase of a stored conflict with a choice for each of its features. If one
    has none, or if new conflicts came up since, it is a MergeConflict again."""
    stored = await conflict_of(storage, id)
    scope = stored.scope
    if stored.kind == "rebase":
        return await rebase(
            storage, stored.source, signed, scope=scope, policy=policy, choices=choices
        )
    return await merge(
        storage,
        stored.source,
        stored.target,
        signed,
        scope=scope,
        policy=policy,
        choices=choices,
    )
