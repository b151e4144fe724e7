"""Statistics of a space counted from its features.

They are for spaces whose handlers may change or hide features, so that no storage knows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely

from naksha.hub.pipeline.responses import Features
from naksha.hub.render.feature_shapes import with_shapes
from naksha.model.limits import STATISTICS_KEYS_MAX
from naksha.model.query import Bbox
from naksha.model.state import XYZ, State
from naksha.model.statistics import Figure, KeyCount, Statistics


class StatisticsCounter:
    """Statistics that are updated with each feature."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._bounds: list[Any] = []
        self._types: set[str] = set()
        self._keys: Counter[str] = Counter()
        self._tags: Counter[str] = Counter()

    async def read(self, found: Features) -> None:
        """Add all features of a response."""
        async for states in found:
            self._count += len(states)
            self._bytes += sum(len(state.raw) for state in states)
            self._add(states)

    def _add(self, states: Sequence[State]) -> None:
        for state in states:
            properties = state.feature["properties"]
            self._keys.update(key for key in properties if key != XYZ)
            self._tags.update(properties.get(XYZ, {}).get("tags") or ())
        some, shapes = with_shapes(states)
        self._types.update(state.feature["geometry"]["type"] for state in some)
        if some:
            self._bounds = [_around([*self._bounds, shapely.total_bounds(shapes)])]

    def statistics(self) -> Statistics:
        """Return the statistics."""
        return Statistics(
            count=Figure(self._count),
            byte_size=Figure(self._bytes),
            bbox=Figure(Bbox(*map(float, self._bounds[0])) if self._bounds else None),
            geometry_types=Figure(tuple(sorted(self._types))),
            properties=_most_frequent(self._keys),
            tags=_most_frequent(self._tags),
        )


def _around(bounds: list[Any]) -> Any:
    west, south, east, north = np.array(bounds).T
    return west.min(), south.min(), east.max(), north.max()


def _most_frequent(counter: Counter[str]) -> Figure[tuple[KeyCount, ...]]:
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    listed = tuple(KeyCount(key, count) for key, count in ordered[:STATISTICS_KEYS_MAX])
    return Figure(listed, len(ordered) > STATISTICS_KEYS_MAX)
