"""What was done, collected over all steps of a request, as the answer says it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from naksha.hub.pipeline.responses import Failure, Notice, Written
from naksha.model.state import XYZ, State

CREATED: Final = "CREATED"
UPDATED: Final = "UPDATED"
DELETED: Final = "DELETED"
RETAINED: Final = "RETAINED"
_OPENING: Final = re.compile(rf'"{re.escape(XYZ)}": ?{{'.encode())


class _Done(NamedTuple):
    position: int
    action: str
    state: State | None


class Report:
    """What became of each feature. What was made by the request stays new whatever else it did to
    it, unless it is gone again; what was left alone later is still what it became before."""

    def __init__(self) -> None:
        self._done: dict[str, _Done] = {}

    def add(self, id: str, position: int, action: str, state: State | None) -> None:
        """A feature was dealt with."""
        before = self._done.get(id)
        if before is not None:
            if action == RETAINED:
                action, state = before.action, state or before.state
            elif (before.action, action) == (CREATED, UPDATED):
                action = CREATED
        self._done[id] = _Done(position, action, state)

    def written(
        self,
        space_id: str,
        txn: int | None,
        failed: Sequence[Failure],
        notices: Sequence[Notice],
    ) -> Written:
        """The answer, in the order of the request; its version is not known yet."""
        done = sorted(self._done.items(), key=lambda item: item[1].position)
        ids: dict[str, list[str]] = {}
        for id, each in done:
            ids.setdefault(each.action, []).append(id)
        return Written(
            inserted=tuple(ids.get(CREATED, ())),
            updated=tuple(ids.get(UPDATED, ())),
            deleted=tuple(ids.get(DELETED, ())),
            retained=tuple(ids.get(RETAINED, ())),
            states=in_space(_states(each for _, each in done if each.action != DELETED), space_id),
            tombstones=in_space(
                _states(each for _, each in done if each.action == DELETED), space_id
            ),
            failed=tuple(failed),
            notices=tuple(notices),
            txn=txn,
        )


def _states(done: Iterable[_Done]) -> list[State]:
    return [each.state for each in done if each.state is not None]


def in_space(states: Iterable[State], space_id: str) -> tuple[State, ...]:
    """States that say in their namespace in which space they are."""
    member = b'"space":' + msgspec.json.encode(space_id) + b","
    return tuple(State(state.id, _with_member(state, member, space_id)) for state in states)


def _with_member(state: State, member: bytes, space_id: str) -> bytes:
    """The namespace opens where its name stands as that of an object. Inside a text the quotes
    would be escaped; so where it stands once, that is the one, and nothing need be parsed."""
    raw, count = _OPENING.subn(lambda found: found[0] + member, state.raw)
    if count == 1:
        return raw
    properties = state.feature["properties"]
    namespace = {**properties[XYZ], "space": space_id}
    return msgspec.json.encode({**state.feature, "properties": {**properties, XYZ: namespace}})
