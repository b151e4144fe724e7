"""Branches in conflict: read-only until the conflict is resolved, for example on another branch."""

from __future__ import annotations

from typing import Final

import msgspec

from naksha.hub.pipeline.targets import CollectionTarget
from naksha.model.errors import Conflict
from naksha.model.state import CONFLICTING, XYZ, State
from naksha.versioning import Branch, conflicts
from naksha.versioning.records import branch_with
from naksha.versioning.version_refs import SOLVING

_MARK: Final = CONFLICTING.encode()


def is_for_solving(ref: str) -> bool:
    """Whether a version reference names a branch for resolving conflicts."""
    return ref.startswith(SOLVING)


def check_writable(branch: Branch | None) -> None:
    """Raise Conflict for a branch with unresolved conflicts."""
    if branch is not None and branch.conflicts:
        raise Conflict(
            f"Branch {branch.name!r} is in conflict and read-only until the conflict is resolved: "
            f"on branch {SOLVING + branch.name!r}, with Resolve, or by abandoning it with GiveUp",
            field="versionRef",
        )


async def solving_branch(target: CollectionTarget, branch: Branch) -> Branch | None:
    """Return the branch on which the conflicts of a branch are resolved, if it exists."""
    if not branch.conflicts:
        return None
    for stored in await conflicts(target.storage):
        if stored.id in branch.conflicts and stored.solving is not None:
            known = await branch_with(target.storage, stored.solving)
            if known is not None:
                return known[0]
    return None


def shown(state: State) -> State:
    """Return a state as clients see it: the mark of a contested feature is in its namespace."""
    if _MARK not in state.raw or state.feature.get(CONFLICTING) is not True:
        return state
    feature = {key: value for key, value in state.feature.items() if key != CONFLICTING}
    properties = feature["properties"]
    namespace = {**properties[XYZ], "conflicting": True}
    feature["properties"] = {**properties, XYZ: namespace}
    return State(state.id, msgspec.json.encode(feature))
