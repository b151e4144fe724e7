"""Writing to a view: everything goes to its top layer.

What is asked about a feature that only lies below is asked about something that the top layer does
not have. So the feature is first brought up, as it is, and then changed or deleted there, all in
one transaction: of a feature that is created and deleted in one transaction a tombstone stays, and
that hides what lies below. Nobody ever sees the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from naksha.hub.handlers.layers import Stack
from naksha.hub.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.responses import Failure, Notice, Written
from naksha.model.errors import Conflict, FeatureExists, NakshaError
from naksha.model.features import generate_ids
from naksha.model.state import XYZ, State

_LOCKS: Final = ("uuid", "version")
"""What of the namespace says which state a feature was made from."""

Feature = dict[str, Any]
T = TypeVar("T", Failure, Notice)


async def write(stack: Stack, request: WriteFeatures) -> Written:
    """Carry out a write."""
    top = stack.layers[0]
    request = with_ids(request)
    ids = {id for one in request.modifications for id in ids_of(one)}
    heads = await stack.heads(ids) if len(stack.layers) > 1 else {}
    below = {id: state for id, (place, state) in heads.items() if place > 0}
    if not below:
        return await top.ask(stack.event, request)
    plan = _Plan(below, request)
    for one in request.modifications:
        plan.add(one)
    if not plan.modifications:
        return plan.told(Written())
    sent = msgspec.structs.replace(request, modifications=tuple(plan.modifications))
    return plan.told(await top.ask(stack.event, sent))


def with_ids(request: WriteFeatures) -> WriteFeatures:
    """The same with the ids that the features will have."""
    if not request.prefix_id:
        return request
    modifications = tuple(
        msgspec.structs.replace(
            one,
            features=tuple(
                {**feature, "id": request.prefix_id + str(feature.get("id") or generate_ids(1)[0])}
                for feature in one.features
            ),
        )
        for one in request.modifications
    )
    return msgspec.structs.replace(request, modifications=modifications, prefix_id="")


def ids_of(modification: Modification) -> Iterable[str]:
    """All ids that it is about, without those that are still to be made."""
    yield from modification.ids
    for feature in modification.features:
        if isinstance(feature.get("id"), str):
            yield feature["id"]


class _Kept(NamedTuple):
    """Of one modification: what the top layer has or nobody has, and what only lies below."""

    above: Modification
    below: Modification


class _Plan:
    """What the top layer is told, and what of its answer has to be told otherwise."""

    def __init__(self, below: Mapping[str, State], request: WriteFeatures) -> None:
        self._below = below
        self._request = request
        self._brought_up: set[str] = set()
        self.modifications: list[Modification] = []
        self.retained: list[str] = []
        self.failed: list[Failure] = []

    def add(self, one: Modification) -> None:
        """Plan a modification."""
        above, below = self._parted(one)
        if above.features or above.ids:
            self.modifications.append(above)
        if not (below.features or below.ids):
            return
        if one.if_exists is IfExists.RETAIN:
            self.retained += ids_of(below)
        elif one.if_exists is IfExists.ERROR:
            for id in ids_of(below):
                self._fail(FeatureExists("There is a feature with this id below", feature_id=id))
        else:
            self._change(below)

    def _parted(self, one: Modification) -> _Kept:
        """What was brought up before is above."""
        low = self._below.keys() - self._brought_up
        features = [(f.get("id") in low, f) for f in one.features]
        ids = [(id in low, id) for id in one.ids]
        return _Kept(
            *(
                msgspec.structs.replace(
                    one,
                    features=tuple(f for is_low, f in features if is_low is wanted),
                    ids=tuple(id for is_low, id in ids if is_low is wanted),
                )
                for wanted in (False, True)
            )
        )

    def _change(self, below: Modification) -> None:
        """A change of features that lie below: they are there, whatever the top layer thinks."""
        features = tuple(f for f in below.features if self._may_change(f, below.if_exists))
        changed = msgspec.structs.replace(
            below,
            features=tuple(map(_unlocked, features)),
            if_not_exists=IfNotExists.CREATE if features else below.if_not_exists,
        )
        ids = list(dict.fromkeys(ids_of(changed)))
        if not ids:
            return
        if below.if_exists is not IfExists.REPLACE:
            copies = tuple(self._below[id].feature for id in ids)
            self.modifications.append(
                Modification(
                    features=tuple(map(_unlocked, copies)),
                    if_exists=IfExists.RETAIN,
                    if_not_exists=IfNotExists.CREATE,
                )
            )
        self.modifications.append(changed)
        self._brought_up.update(ids)

    def _may_change(self, feature: Feature, if_exists: IfExists) -> bool:
        """Whether it was made from what lies below now, where that matters. A merge would need
        the history of the lower layer."""
        if not (self._request.conflict_detection or if_exists is IfExists.MERGE):
            return True
        state = self._below[feature["id"]]
        given = _namespace(feature)
        if any(name in given and given[name] != state.xyz.get(name) for name in _LOCKS):
            self._fail(
                Conflict(
                    "The feature was changed in a lower layer of the view; read it again",
                    feature_id=state.id,
                    head=state.feature,
                )
            )
            return False
        return True

    def _fail(self, error: NakshaError) -> None:
        if self._request.transactional:
            raise error
        failure = Failure(
            id=error.feature_id, position=None, message=error.message, code=error.code
        )
        self.failed.append(failure)

    def told(self, written: Written) -> Written:
        """What happened to the view, in the order of the request: features that were brought up
        were there before."""
        places = positions_of(self._request)

        def ordered(ids: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted({*ids}, key=lambda id: places.get(id, len(places))))

        def placed(report: T) -> T:
            position = places.get(getattr(report, "id", None) or "")
            return msgspec.structs.replace(report, position=position)

        deleted = {*written.deleted}
        changed = {*written.inserted, *written.updated} & self._brought_up - deleted
        states = {state.id: state for state in written.states if state.id not in deleted}
        return msgspec.structs.replace(
            written,
            inserted=ordered({*written.inserted} - self._brought_up),
            updated=ordered({*written.updated} - self._brought_up | changed),
            deleted=ordered(deleted),
            retained=ordered({*written.retained} - self._brought_up | {*self.retained}),
            states=tuple(states[id] for id in ordered(states)),
            failed=tuple(map(placed, (*written.failed, *self.failed))),
            notices=tuple(map(placed, written.notices)),
        )


def positions_of(request: WriteFeatures) -> dict[str, int]:
    """Where each id of a request stands: features and ids counted through, in each modification
    the features first."""
    names = [
        id
        for one in request.modifications
        for id in (*(feature.get("id") for feature in one.features), *one.ids)
    ]
    return {id: at for at, id in reversed([*enumerate(names)]) if isinstance(id, str)}


def _namespace(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (feature.get("properties") or {}).get(XYZ)
    return found if isinstance(found, Mapping) else {}


def _unlocked(feature: Feature) -> Feature:
    """Without what says which state of the lower layer it was made from."""
    given = _namespace(feature)
    if not any(name in given for name in _LOCKS):
        return feature
    kept = {name: value for name, value in given.items() if name not in _LOCKS}
    return {**feature, "properties": {**feature["properties"], XYZ: kept}}
