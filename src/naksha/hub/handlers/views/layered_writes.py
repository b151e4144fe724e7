"""Writes to a layered view: everything goes to its top layer.

A change to a feature that only a lower layer has would miss in the top layer. So the feature is
first brought up unchanged, and then changed or deleted there, all in one transaction. Creating and
deleting a feature in one transaction leaves a tombstone, which hides the lower feature. The copy is
never visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from naksha.hub.handlers.views.layers import LayerStack
from naksha.hub.handlers.writes.write_parts import (
    ResponseOrder,
    WriteErrors,
    changed_since,
    ids_of,
    names_state,
    unlocked,
    with_ids,
    with_lock,
)
from naksha.hub.pipeline.requests import IfExists, IfNotExists, Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written
from naksha.hub.write.guards import WritePermissions
from naksha.model.errors import FeatureExists, PreconditionFailed, Retryable
from naksha.model.limits import HANDLER_ATTEMPTS_MAX
from naksha.model.state import State

Feature = dict[str, Any]


async def write(stack: LayerStack, request: WriteFeatures) -> Written:
    """Carry out a write; retry if a feature to be brought up was deleted concurrently."""
    request = with_ids(request)
    for _ in range(HANDLER_ATTEMPTS_MAX):
        try:
            return await _write(stack, request)
        except PreconditionFailed:
            continue
    raise Retryable(
        f"Other writers deleted some of the features in all {HANDLER_ATTEMPTS_MAX} attempts of "
        "this write; retry the request"
    )


async def write_to_top(stack: LayerStack, below: LayerStack, request: WriteFeatures) -> Written:
    """Carry out a write to the top layer alone.

    A deletion there uncovers the lower feature, and a created feature continues the version numbers
    of the lower one.
    """
    request = with_ids(request)
    ids = {id for one in request.modifications for id in ids_of(one)}
    heads = await below.readable_heads(ids)
    modifications = tuple(
        msgspec.structs.replace(
            one, unmasks=one.if_exists is IfExists.DELETE, after=_versions_of(heads)
        )
        for one in request.modifications
    )
    return await stack.layers[0].send(
        stack.event, msgspec.structs.replace(request, modifications=modifications)
    )


def _versions_of(heads: Mapping[str, State]) -> dict[str, int]:
    return {id: state.xyz["version"] for id, state in heads.items()}


async def _write(stack: LayerStack, request: WriteFeatures) -> Written:
    top = stack.layers[0]
    ids = {id for one in request.modifications for id in ids_of(one)}
    heads = await stack.heads(ids) if len(stack.layers) > 1 else {}
    # Versions of a feature are counted per layer, so conflicts are detected here.
    detects_conflicts = request.conflict_detection and len(stack.layers) > 1
    if not detects_conflicts and all(place == 0 for place, _ in heads.values()):
        return await top.send(stack.event, request)
    below = {id: state for id, (place, state) in heads.items() if place > 0}
    permissions = WritePermissions(stack.event.context)
    plan = _TopLayerWrite(heads, request)
    for one in request.modifications:
        if permissions:
            _check_below(permissions, one, below)
        plan.add(one)
    if not plan.modifications:
        return plan.response_of(Written())
    sent = msgspec.structs.replace(
        request, modifications=tuple(plan.modifications), conflict_detection=False
    )
    return plan.response_of(await plan.refusals.of(top.send(stack.event, sent)))


def _check_below(
    permissions: WritePermissions, one: Modification, below: Mapping[str, State]
) -> None:
    """Check rights to the lower features that the write changes.

    Rights to some features apply to what the view shows, but the top layer sees a feature that is
    brought up as a new one, made by the writing actor.
    """
    if one.if_exists in (IfExists.RETAIN, IfExists.ERROR):
        return
    sent = {feature.get("id"): feature for feature in one.features}
    for id in ids_of(one):
        state = below.get(id)
        if state is not None:
            content = sent.get(id) if one.if_exists is IfExists.REPLACE else state.feature
            permissions.check(state, None if one.if_exists is IfExists.DELETE else content)


class _SplitModification(NamedTuple):
    """A modification split into features of the top layer or of no layer, and lower features."""

    above: Modification
    below: Modification


class _TopLayerWrite:
    """Write for the top layer, and the corrections of its response."""

    def __init__(self, heads: Mapping[str, tuple[int, State]], request: WriteFeatures) -> None:
        self._heads = {id: state for id, (_, state) in heads.items()}
        self._below = {id: state for id, (place, state) in heads.items() if place > 0}
        self._request = request
        self._brought_up: set[str] = set()
        self.modifications: list[Modification] = []
        self.retained: list[str] = []
        self.refusals = WriteErrors(request)

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
                error = FeatureExists(
                    f"Feature {id!r:.64} already exists in a lower layer of the view; replace or "
                    "patch it, or choose another id",
                    feature_id=id,
                )
                self.refusals.add(error)
        else:
            self._change(below)

    def _parted(self, one: Modification) -> _SplitModification:
        """Split a modification; features brought up before count as above."""
        low = self._below.keys() - self._brought_up
        features = [(f.get("id") in low, f) for f in one.features]
        ids = [(id in low, id) for id in one.ids]
        return _SplitModification(
            *(
                msgspec.structs.replace(
                    one,
                    features=tuple(f for is_low, f in features if is_low is is_below),
                    ids=tuple(id for is_low, id in ids if is_low is is_below),
                )
                for is_below in (False, True)
            )
        )

    def _locked(self, above: Modification) -> Modification:
        """Lock the features of the top layer to their heads for conflict detection.

        The top layer cannot detect conflicts itself, since it would report features brought up.
        """
        changed = above.if_exists not in (IfExists.RETAIN, IfExists.ERROR, IfExists.MERGE)
        if not changed:
            return above
        features = [f for f in above.features if self._is_present(f, self._heads)]
        ids = tuple(id for id in above.ids if self._is_present({"id": id}, self._heads))
        locked = tuple(
            with_lock(f, self._heads[f["id"]]) if f.get("id") in self._heads else f
            for f in features
        )
        return msgspec.structs.replace(above, features=locked, ids=ids)

    def _change(self, below: Modification) -> None:
        """Plan a change of lower features, which exist even though the top layer lacks them."""
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
        versions = _versions_of({id: self._below[id] for id in ids})
        changed = msgspec.structs.replace(
            below,
            features=tuple(map(unlocked, below.features)),
            if_exists=IfExists.REPLACE if is_merge else below.if_exists,
            if_not_exists=IfNotExists.CREATE if below.features else below.if_not_exists,
            never_there=below.if_not_exists is not IfNotExists.CREATE,
            after=versions,
        )
        # A feature that another writer brought up meanwhile counts as changed since it was read.
        detects = self._request.conflict_detection or is_merge
        if changed.if_exists is not IfExists.REPLACE or detects:
            self.modifications.append(
                Modification(
                    features=tuple(unlocked(self._below[id].feature) for id in ids),
                    if_exists=IfExists.ERROR if detects else IfExists.RETAIN,
                    if_not_exists=IfNotExists.CREATE,
                    never_there=True,
                    after=versions,
                )
            )
        self.modifications.append(changed)
        self._brought_up.update(ids)

    def _is_present(self, feature: Feature, heads: Mapping[str, State]) -> bool:
        """Whether a feature is new or based on the current state; record the conflict otherwise."""
        state = heads.get(feature.get("id") or "")
        if state is None or names_state(feature, state):
            return True
        self.refusals.add(changed_since(state))
        return False

    def response_of(self, written: Written) -> Written:
        """Return the response for the view, in request order.

        Features that were brought up existed before, so they do not count as created.
        """
        order = ResponseOrder(self._request)
        deleted = {*written.deleted}
        failed = (*written.failed, *self.refusals.failed)
        unchanged = deleted | {one.id for one in failed if one.id is not None}
        changed = {*written.inserted, *written.updated} & self._brought_up - unchanged
        states = {state.id: state for state in written.states if state.id not in deleted}
        response = msgspec.structs.replace(
            written,
            inserted=order.ids({*written.inserted} - self._brought_up),
            updated=order.ids({*written.updated} - self._brought_up | changed),
            deleted=order.ids(deleted),
            retained=order.ids({*written.retained} - self._brought_up | {*self.retained}),
            states=tuple(states[id] for id in order.ids(states)),
            failed=tuple(map(order.positioned, failed)),
            notices=tuple(map(order.positioned, written.notices)),
        )
        return self.refusals.check(response)
