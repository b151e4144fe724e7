"""Filter of version responses in spaces that hide some features.

A feature that becomes visible is reported as created, one that becomes hidden as deleted, and
states in between are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from naksha.hub.handlers.stored.feed import matching_only
from naksha.hub.pipeline.version_responses import Changes, Differences, FeatureHistory
from naksha.model.state import XYZ, State
from naksha.versioning import FeatureChange, FeatureDiff, FeedTransaction, HistoryStep

Sees = Callable[[State], bool]
DELETE = "DELETE"


def visible_only(answer: Any, sees: Sees) -> Any:
    """Filter a response about versions by visibility; return other responses unchanged."""
    match answer:
        case Differences():
            return answer._replace(changes=_changes(answer.changes, sees))
        case FeatureHistory():
            return FeatureHistory(_steps(answer.steps, sees))
        case Changes():
            return answer._replace(items=[_item(item, sees) for item in answer.items])
    return answer


async def _changes(changes: AsyncIterator[FeatureDiff], sees: Sees) -> AsyncIterator[FeatureDiff]:
    async for change in changes:
        old, new = _seen(change.old, sees), _seen(change.new, sees)
        if old is not None or new is not None:
            yield msgspec.structs.replace(change, old=old, new=new)


async def _steps(steps: AsyncIterator[HistoryStep], sees: Sees) -> AsyncIterator[HistoryStep]:
    async for step in steps:
        if sees(step.state):
            yield msgspec.structs.replace(step, previous=_seen(step.previous, sees))


def _seen(state: State | None, sees: Sees) -> State | None:
    return state if state is not None and sees(state) else None


def _item(item: FeedTransaction, sees: Sees) -> FeedTransaction:
    changes = tuple(change if sees(change.state) else _gone(change) for change in item.changes)
    return matching_only(msgspec.structs.replace(item, changes=changes))


def _gone(change: FeatureChange) -> FeatureChange:
    """Return a deletion for a feature that was visible and now is not."""
    namespace = {"action": DELETE, "txn": change.state.xyz["txn"], "tags": []}
    feature = {
        "type": "Feature",
        "id": change.state.id,
        "geometry": None,
        "properties": {XYZ: namespace},
    }
    state = State(change.state.id, msgspec.json.encode(feature))
    return msgspec.structs.replace(change, action=DELETE, state=state)
