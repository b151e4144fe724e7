"""Features of the difference of two versions, as a map shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from naksha.hub.pipeline.responses import closing
from naksha.hub.pipeline.version_responses import Differences
from naksha.model.state import State
from naksha.versioning import FeatureDiff

CHANGE: Final = "change"
"""Property with the kind of the difference."""
OLD: Final = "old"
"""Property of the former geometry of a changed feature."""
CREATED: Final = "created"
CHANGED: Final = "changed"
DELETED: Final = "deleted"


async def difference_states(found: Differences, limit: int) -> list[State]:
    """Return the states of at most `limit` differences, each with its kind as a property."""
    states: list[State] = []
    count = 0
    async with closing(found.changes) as changes:
        async for change in changes:
            states += _states_of(change)
            count += 1
            if count == limit:
                break
    return states


def _states_of(change: FeatureDiff) -> Iterator[State]:
    """Yield the new state, and the old one if its geometry differs."""
    if change.old is None and change.new is not None:
        yield _with(change.new, {CHANGE: CREATED})
    elif change.new is None and change.old is not None:
        yield _with(change.old, {CHANGE: DELETED})
    elif change.old is not None and change.new is not None:
        if change.old.feature.get("geometry") != change.new.feature.get("geometry"):
            yield _with(change.old, {CHANGE: CHANGED, OLD: True})
        yield _with(change.new, {CHANGE: CHANGED})


def _with(state: State, members: dict[str, Any]) -> State:
    """Return a state with more properties, which replace its own of these names."""
    feature = state.feature
    properties = {**feature["properties"], **members}
    return State(state.id, msgspec.json.encode({**feature, "properties": properties}))
