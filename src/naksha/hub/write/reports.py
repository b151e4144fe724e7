"""Report of what was done, collected over all steps of a request for the response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from naksha.hub.pipeline.responses import Failure, Notice, Written
from naksha.model.json_text import with_in_namespace
from naksha.model.state import State

CREATED: Final = "CREATED"
UPDATED: Final = "UPDATED"
DELETED: Final = "DELETED"
RETAINED: Final = "RETAINED"


class _Outcome(NamedTuple):
    position: int
    action: str
    state: State | None


class Report:
    """Outcome for each feature.

    A feature that the request created stays created if a later step changes it, unless it is
    deleted. A later step that leaves a feature unchanged does not change its outcome.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, _Outcome] = {}

    def add(self, id: str, position: int, action: str, state: State | None) -> None:
        """Record the outcome of one step for a feature."""
        before = self._outcomes.get(id)
        if before is not None:
            if action == RETAINED:
                action, state = before.action, state or before.state
            elif (before.action, action) == (CREATED, UPDATED):
                action = CREATED
        self._outcomes[id] = _Outcome(position, action, state)

    def written(
        self,
        space_id: str,
        txn: int | None,
        failed: Sequence[Failure],
        notices: Sequence[Notice],
    ) -> Written:
        """Return the response in request order; the version is still unknown."""
        outcomes = sorted(self._outcomes.items(), key=lambda item: item[1].position)
        ids: dict[str, list[str]] = {}
        for id, outcome in outcomes:
            ids.setdefault(outcome.action, []).append(id)
        return Written(
            inserted=tuple(ids.get(CREATED, ())),
            updated=tuple(ids.get(UPDATED, ())),
            deleted=tuple(ids.get(DELETED, ())),
            retained=tuple(ids.get(RETAINED, ())),
            states=_in_space(
                _states(each for _, each in outcomes if each.action != DELETED), space_id
            ),
            tombstones=_in_space(
                _states(each for _, each in outcomes if each.action == DELETED), space_id
            ),
            failed=tuple(failed),
            notices=tuple(notices),
            txn=txn,
        )


def _states(outcomes: Iterable[_Outcome]) -> list[State]:
    return [outcome.state for outcome in outcomes if outcome.state is not None]


def _in_space(states: Iterable[State], space_id: str) -> tuple[State, ...]:
    """Return states that name their space in the namespace."""
    name = msgspec.json.encode(space_id)
    return tuple(State(each.id, with_in_namespace(each.raw, "space", name)) for each in states)
