"""Writes to a group of spaces.

Existing features are changed in the space that has them; new ones go to the first space, or to the
one that the feature names as its `space`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from naksha.hub.handlers.views.layers import LayerStack, ViewLayer
from naksha.hub.handlers.writes.write_parts import all_ids_of, namespace_of, with_ids
from naksha.hub.handlers.writes.write_split import SplitPlan, carry_out
from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import Modification, WriteFeatures
from naksha.hub.pipeline.responses import Written

Feature = dict[str, Any]
FIRST = 0


async def write(
    event: Event, layers: Sequence[ViewLayer], spaces: Sequence[str], request: WriteFeatures
) -> Written:
    """Carry out a write; each space is written separately, with its own rights."""
    request = with_ids(request)
    ids = all_ids_of(request)
    stack = LayerStack(event, layers, "")
    places: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        for state in await stack.find(layer, ids):
            places.setdefault(state.id, []).append(place)
    plan = OriginPlan(places, spaces, request)
    for one in request.modifications:
        plan.add(one)
    return await carry_out(plan, event, layers, request)


class OriginPlan(SplitPlan):
    """Parts of a write, split by the space that has each feature."""

    def __init__(
        self, places: Mapping[str, Sequence[int]], spaces: Sequence[str], request: WriteFeatures
    ) -> None:
        super().__init__(request)
        self._places = places
        self._spaces = spaces

    def add(self, one: Modification) -> None:
        """Split a modification. An id alone means all features that have it."""
        features: dict[int, list[Feature]] = {}
        for feature in one.features:
            features.setdefault(self._place(feature), []).append(feature)
        ids: dict[int, list[str]] = {}
        for id in dict.fromkeys(one.ids):
            for place in self._places.get(id, [FIRST]):
                ids.setdefault(place, []).append(id)
        for place in sorted({*features, *ids}):
            self._add_slices(place, one, features.get(place, ()), ids.get(place, ()))

    def _place(self, feature: Feature) -> int:
        origins = self._places.get(feature.get("id") or "", ())
        named = namespace_of(feature).get("space")
        named_place = self._spaces.index(named) if named in self._spaces else None
        if named_place is not None and (named_place in origins or not origins):
            return named_place
        return origins[0] if origins else FIRST
