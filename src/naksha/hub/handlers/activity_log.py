"""Activity log of another space: its feature history as features.

    {"spaceId": "roads"}

A read returns every state that the query matches, so a feature appears once per change. Under
`@ns:com:here:xyz:log` each state has the feature's `id`, the `action` and `diff`: the RFC 6902
patch (`ops`, with their number by kind) that turns the state back into the previous one. There is
no `diff` for a created feature, or when the previous state is no longer kept. The space is
read-only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, ClassVar, Final

import msgspec

from naksha.hub.pipeline.pipeline import Event, Setup
from naksha.hub.pipeline.requests import CountFeatures, FindStorages, GetVersion, ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.model.errors import InvalidArgument, NotImplementedHere, ReadOnly
from naksha.model.limits import LOG_CHUNK_STATES
from naksha.model.merge import json_patch
from naksha.model.query import Op, Or, Query, States
from naksha.model.query import Test as PropertyTest
from naksha.model.state import XYZ, State

LOG: Final = "@ns:com:here:xyz:log"
VERSION: Final = ("properties", XYZ, "version")
_KINDS: Final = ("add", "remove", "replace")


class ActivityLogHandler:
    """Handler that returns all states of another space's features."""

    metric_name: ClassVar[str] = "ActivityLogHandler"

    def __init__(self, setup: Setup) -> None:
        space_id = setup.connector.properties.get("spaceId")
        if not isinstance(space_id, str) or not space_id:
            raise InvalidArgument(
                "properties.spaceId is missing: an activity log needs the id of the space to show",
                field="properties.spaceId",
            )
        self._space_id = space_id

    async def process(self, event: Event) -> Any:
        request = event.request
        if request.changes:
            raise ReadOnly(
                f"The space {event.space.id!r} is an activity log and is read-only; write to the "
                f"space {self._space_id!r}"
            )
        match request:
            case ReadFeatures(query=query):
                found = await event.send_to(self._space_id, _of_all_states(request, query))
                return await Features.with_first_read(
                    lambda answer: self._logged(answer, event, found)
                )
            case CountFeatures(query=query):
                return await event.send_to(self._space_id, _of_all_states(request, query))
            case GetVersion() | FindStorages():
                return await event.send_to(self._space_id, request)
        raise NotImplementedHere(
            f"An activity log does not support the request {type(request).__name__}; send it to "
            f"the space {self._space_id!r}"
        )

    async def _logged(
        self, answer: Features, event: Event, found: Features
    ) -> AsyncIterator[Sequence[State]]:
        ref = event.request.ref
        async with aclosing(found):
            async for states in found:
                rest = iter(states)
                while some := list(islice(rest, LOG_CHUNK_STATES)):
                    before = await self._before(event, some, ref)
                    yield [_with_log(state, before) for state in some]
        answer.cursor = found.cursor

    async def _before(self, event: Event, states: Sequence[State], ref: str) -> dict[str, State]:
        """Return the previous states of `states`, and `states` themselves, by state id.

        The query selects them by feature version: that is poorly indexed, but very selective.
        """
        known = {state.uuid: state for state in states}
        missing = [s for s in states if s.xyz["puuid"] and s.xyz["puuid"] not in known]
        if not missing:
            return known
        missing_uuids = {state.xyz["puuid"] for state in missing}
        query = Query(
            ids=tuple({state.id for state in missing}),
            states=States.ALL,
            where=_any_version({state.xyz["version"] - 1 for state in missing}),
            space=event.space.id,
        )
        response = await event.send_to(self._space_id, ReadFeatures(query=query, ref=ref))
        async with aclosing(response):
            async for some in response:
                known |= {state.uuid: state for state in some if state.uuid in missing_uuids}
        return known


def _of_all_states(request: Any, query: Query) -> Any:
    every = msgspec.structs.replace(query, states=States.ALL)
    return msgspec.structs.replace(request, query=every, context="default")


def _any_version(versions: Iterable[int]) -> Or:
    return Or(tuple(PropertyTest(VERSION, Op.EQ, version) for version in versions))


def _with_log(state: State, before: dict[str, State]) -> State:
    namespace = state.xyz
    old = before.get(namespace["puuid"] or "")
    log: dict[str, Any] = {"id": state.id, "action": namespace["action"]}
    if old is not None:
        ops = json_patch(_content(state), _content(old))
        counts = Counter(op["op"] for op in ops)
        log["diff"] = {**{kind: counts[kind] for kind in _KINDS}, "ops": ops}
    feature = {**state.feature, "properties": {**state.feature["properties"], LOG: log}}
    return State(state.id, msgspec.json.encode(feature))


def _content(state: State) -> dict[str, Any]:
    """Return the content that a client wrote: of the namespace only the tags."""
    feature = state.feature
    properties = {**feature["properties"], XYZ: {"tags": state.xyz["tags"]}}
    return {**feature, "properties": properties}
