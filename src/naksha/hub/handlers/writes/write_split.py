"""Split of a write into parts for several places, given the current place of each feature.

A feature is in the place of its type and in no other. When its type changes it moves: it is
deleted in the old place and created in the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from naksha.hub.handlers.paths import Path, get_at
from naksha.hub.handlers.views.layers import ViewLayer
from naksha.hub.handlers.writes.write_parts import (
    ResponseOrder,
    WriteErrors,
    changed_since,
    names_state,
    namespace_of,
    unlocked,
)
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.hub.write.namespaces import with_namespace, without_namespace
from naksha.hub.write.patch import apply_patch
from naksha.model.errors import InvalidArgument, NakshaError, NotSupported
from naksha.model.features import check_features
from naksha.model.state import State

Feature = dict[str, Any]


class TypeRouting(NamedTuple):
    """Place of each value of a property; `otherwise` is the place of all other values."""

    path: Path
    places: Mapping[str, int]
    otherwise: int | None

    def place_of(self, feature: Feature) -> int:
        """Return the place where a feature belongs.

        Raises:
            InvalidArgument: Its type has no place.
        """
        value = get_at(feature, self.path)
        place = self.places.get(value) if isinstance(value, str) else None
        found = self.otherwise if place is None else place
        if found is None:
            raise InvalidArgument(
                f"{'.'.join(self.path)} determines where a feature is stored; it must be one of "
                f"{', '.join(sorted(self.places))}",
                field=".".join(self.path),
                feature_id=feature.get("id"),
            )
        return found


class WriteSlice(NamedTuple):
    """Part of a write for one place.

    A moving feature would be lost if it were deleted in one place and not created in the other, so
    with `moves` the whole part must succeed.
    """

    place: int
    modification: Modification
    moves: bool = False


Heads = Mapping[str, tuple[int, State]]


class SplitPlan:
    """Parts of a write, in the order in which they are carried out."""

    def __init__(self, request: WriteFeatures) -> None:
        self._request = request
        self._moved: set[str] = set()
        self.parts: list[WriteSlice] = []
        self.refusals = WriteErrors(request)

    def _add_slices(
        self, place: int, one: Modification, features: Sequence[Feature], ids: Sequence[str]
    ) -> None:
        """Add a part for a place; moving features are created there, even if others are not."""
        moving = tuple(f for f in features if f.get("id") in self._moved)
        staying = tuple(f for f in features if f.get("id") not in self._moved)
        if moving:
            made = msgspec.structs.replace(
                one, features=moving, ids=(), if_not_exists=IfNotExists.CREATE
            )
            self.parts.append(WriteSlice(place, made, moves=True))
        if staying or ids:
            remaining = msgspec.structs.replace(one, features=staying, ids=tuple(ids))
            self.parts.append(WriteSlice(place, remaining))

    def response_of(self, answers: Iterable[Written]) -> Written:
        """Combine the responses of the parts; a feature that moved counts as updated."""
        every = list(answers)
        order = ResponseOrder(self._request)
        inserted = {id for each in every for id in each.inserted}
        deleted = {id for each in every for id in each.deleted}
        updated = {id for each in every for id in each.updated}
        changed = self._moved & (inserted | updated)
        states = {state.id: state for each in every for state in each.states}
        tombstones = {state.id: state for each in every for state in each.tombstones}
        response = Written(
            inserted=order.ids(inserted - changed),
            updated=order.ids(updated | changed),
            deleted=order.ids(deleted - changed),
            retained=order.ids(id for each in every for id in each.retained),
            states=tuple(states[id] for id in order.ids(states)),
            tombstones=tuple(tombstones[id] for id in order.ids(tombstones) if id not in changed),
            failed=tuple(
                order.positioned(one)
                for one in [f for each in every for f in each.failed] + self.refusals.failed
            ),
            notices=tuple(order.positioned(one) for each in every for one in each.notices),
            txn=next((each.txn for each in every if each.txn is not None), None),
            violations=tuple(one for each in every for one in each.violations),
            version=max((each.version for each in every if each.version is not None), default=None),
        )
        return self.refusals.check(response)


class TypePlan(SplitPlan):
    """Parts of a write, split by type."""

    def __init__(self, types: TypeRouting, heads: Heads, request: WriteFeatures) -> None:
        super().__init__(request)
        self._types = types
        self._heads = heads

    def add(self, one: Modification) -> None:
        """Split a modification."""
        routed: dict[int, list[Feature]] = {}
        for feature in one.features:
            try:
                place, feature = self._routed(one, feature)
            except NakshaError as error:
                self.refusals.add(error)
                continue
            routed.setdefault(place, []).append(feature)
        ids: dict[int, list[str]] = {}
        for id in one.ids:
            ids.setdefault(self._heads[id][0] if id in self._heads else 0, []).append(id)
        for place in sorted({*routed, *ids}):
            self._add_slices(place, one, routed.get(place, ()), ids.get(place, ()))

    def _routed(self, one: Modification, feature: Feature) -> tuple[int, Feature]:
        """Return the place of a feature, and the feature to write there."""
        head = self._heads.get(feature.get("id") or "")
        if head is None:
            return self._types.place_of(feature), feature
        place, state = head
        if one.if_exists in (IfExists.DELETE, IfExists.RETAIN, IfExists.ERROR):
            return place, feature
        complete = _patched(state, feature) if one.if_exists is IfExists.PATCH else feature
        target = self._types.place_of(complete)
        if target == place:
            return place, feature
        self._check_move(one, feature, state)
        made = unlocked(complete)
        check_features([made])
        self._moved.add(state.id)
        delete = Modification(ids=(state.id,), if_exists=IfExists.DELETE)
        self.parts.append(WriteSlice(place, delete, moves=True))
        return target, made

    def _check_move(self, one: Modification, feature: Feature, state: State) -> None:
        if one.if_exists is IfExists.MERGE:
            raise NotSupported(
                f"Feature {state.id!r:.64} has a new type, and a merge cannot move it to the "
                "place of that type; use patch or replace instead",
                field=".".join(self._types.path),
                feature_id=state.id,
            )
        is_locked = self._request.conflict_detection or namespace_of(feature).get("uuid")
        if is_locked and not names_state(feature, state):
            raise changed_since(state)


def _patched(state: State, feature: Feature) -> Feature:
    """Apply a patch to a state, as a feature to create in another place."""
    head, sent = namespace_of(state.feature), namespace_of(feature)
    kept = {name: head[name] for name in ("tags", "crid") if head.get(name)}
    complete = apply_patch(without_namespace(state.feature), without_namespace(feature))
    return with_namespace(complete, {**kept, **sent})


def slice_request(request: WriteFeatures, part: WriteSlice) -> WriteFeatures:
    """Return the write for one place."""
    return msgspec.structs.replace(
        request,
        modifications=(part.modification,),
        transactional=request.transactional or part.moves,
    )


async def carry_out(
    plan: SplitPlan, event: Event, spaces: Sequence[ViewLayer], request: WriteFeatures
) -> Written:
    """Write the parts to several spaces, deletions last.

    So a moving feature is briefly in both places rather than in none. Each part is a transaction of
    its own: a repeated delivery is written again, but a late one is not.
    """
    if request.fence is not None:
        fence = msgspec.structs.replace(request.fence, is_repeatable=True)
        request = msgspec.structs.replace(request, fence=fence)
    parts = sorted(plan.parts, key=lambda part: not part.modification.features)
    responses = [
        await plan.refusals.of(spaces[part.place].send(event, slice_request(request, part)))
        for part in parts
    ]
    return plan.response_of(responses)
