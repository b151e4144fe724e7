"""Writing to a view: everything goes to its top layer.

What is asked about a feature that only lies below is asked about something that the top layer does
not have. So the feature is first brought up, as it is, and then changed or deleted there, all in
one transaction: of a feature that is created and deleted in one transaction a tombstone stays, and
that hides what lies below. Nobody ever sees the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from naksha.hub.handlers.layers import Stack
from naksha.hub.requests import (
    DeleteFeatures,
    IfExists,
    IfNotExists,
    Modification,
    WriteFeatures,
)
from naksha.hub.responses import Deleted, Failure, Features, Notice, Written
from naksha.model import limits
from naksha.model.errors import Conflict, FeatureExists, LimitExceeded, NakshaError
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
    # The version of a feature counts anew in each layer, so conflicts are looked for here.
    looks = request.conflict_detection and len(stack.layers) > 1
    if not looks and all(place == 0 for place, _ in heads.values()):
        return await top.ask(stack.event, request)
    plan = _Plan(heads, request)
    for one in request.modifications:
        plan.add(one)
    if not plan.modifications:
        return plan.told(Written())
    sent = msgspec.structs.replace(
        request, modifications=tuple(plan.modifications), conflict_detection=False
    )
    return plan.told(await top.ask(stack.event, sent))


async def delete(stack: Stack, request: DeleteFeatures, found: Features) -> Deleted:
    """Delete what a query has found in all layers, as one transaction."""
    ids: list[str] = []
    async with aclosing(found):
        async for states in found:
            ids += [state.id for state in states]
            if len(ids) > limits.WRITE_FEATURES_MAX:
                raise LimitExceeded(
                    f"A view deletes at most {limits.WRITE_FEATURES_MAX} features at once; delete "
                    "them in several parts",
                    field="query",
                )
    one = Modification(ids=tuple(ids), if_exists=IfExists.DELETE, if_not_exists=IfNotExists.RETAIN)
    written = await write(
        stack,
        WriteFeatures(modifications=(one,), message=request.message, returning=False),
    )
    return Deleted(
        count=len(written.deleted),
        ids=written.deleted[: limits.DELETED_IDS_MAX],
        txn=written.txn,
        version=written.version,
    )


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

    def __init__(self, heads: Mapping[str, tuple[int, State]], request: WriteFeatures) -> None:
        self._heads = {id: state for id, (_, state) in heads.items()}
        self._below = {id: state for id, (place, state) in heads.items() if place > 0}
        self._request = request
        self._brought_up: set[str] = set()
        self.modifications: list[Modification] = []
        self.retained: list[str] = []
        self.failed: list[Failure] = []

    def add(self, one: Modification) -> None:
        """Plan a modification."""
        above, below = self._parted(one)
        if self._request.conflict_detection:
            above = self._locked(above)
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

    def _locked(self, above: Modification) -> Modification:
        """What the top layer has, with the lock that a detected conflict is about: the top layer
        cannot be told to look for conflicts, since it would find the features brought up."""
        changed = above.if_exists not in (IfExists.RETAIN, IfExists.ERROR, IfExists.MERGE)
        if not changed:
            return above
        features = [f for f in above.features if self._is_present(f, self._heads)]
        ids = tuple(id for id in above.ids if self._is_present({"id": id}, self._heads))
        locked = tuple(
            _with_lock(f, self._heads[f["id"]]) if f.get("id") in self._heads else f
            for f in features
        )
        return msgspec.structs.replace(above, features=locked, ids=ids)

    def _change(self, below: Modification) -> None:
        """A change of features that lie below: they are there, whatever the top layer thinks."""
        if self._request.conflict_detection or below.if_exists is IfExists.MERGE:
            # A merge would need the history of the lower layer.
            below = msgspec.structs.replace(
                below,
                features=tuple(f for f in below.features if self._is_present(f, self._below)),
                ids=tuple(id for id in below.ids if self._is_present({"id": id}, self._below)),
            )
        ids = list(dict.fromkeys(ids_of(below)))
        if not ids:
            return
        is_merge = below.if_exists is IfExists.MERGE
        changed = msgspec.structs.replace(
            below,
            features=tuple(map(_unlocked, below.features)),
            if_exists=IfExists.REPLACE if is_merge else below.if_exists,
            if_not_exists=IfNotExists.CREATE if below.features else below.if_not_exists,
        )
        if changed.if_exists is not IfExists.REPLACE:
            self.modifications.append(
                Modification(
                    features=tuple(_unlocked(self._below[id].feature) for id in ids),
                    if_exists=IfExists.RETAIN,
                    if_not_exists=IfNotExists.CREATE,
                )
            )
        self.modifications.append(changed)
        self._brought_up.update(ids)

    def _is_present(self, feature: Feature, heads: Mapping[str, State]) -> bool:
        """Whether it says that it was made from the state that is there, if one is."""
        state = heads.get(feature.get("id") or "")
        if state is None:
            return True
        said = _namespace(feature)
        named = [name for name in _LOCKS if said.get(name) is not None]
        if named and all(said[name] == state.xyz.get(name) for name in named):
            return True
        self._fail(
            Conflict(
                "The feature was changed since it was read, or does not say the version that it"
                " had; look at the head that is given here",
                feature_id=state.id,
                head=state.feature,
            )
        )
        return False

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


def _with_lock(feature: Feature, state: State) -> Feature:
    """With the state that must still be there when it is written."""
    namespace = {**_namespace(feature), "uuid": state.uuid}
    return {**feature, "properties": {**(feature.get("properties") or {}), XYZ: namespace}}
