"""Rendering of the features in an area: cells with statistics, or fewer and simpler features.

All functions work on the features that a space returns, whatever its handlers are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from naksha.hub.pipeline.responses import Features
from naksha.hub.query_language.clustering import (
    Ensure,
    Hexbin,
    Quadbin,
    Sampling,
    SamplingAlgorithm,
    Simplification,
    SimplificationAlgorithm,
)
from naksha.hub.query_language.tiles import tiles_over
from naksha.hub.render.clusters import (
    hexagon_resolution,
    hexbin_box,
    hexbins,
    property_numbers,
    quadbin_levels,
    quadbins,
)
from naksha.hub.render.dissolve import line_merged, merged
from naksha.hub.render.feature_shapes import with_shapes
from naksha.hub.render.projection import StateProjection, box_shape, shaped
from naksha.hub.render.sampling import ensuring_ratio, large, sample, sampling_ratio, simplified
from naksha.model import limits
from naksha.model.errors import LimitExceeded
from naksha.model.query import Bbox, Intersects, Spatial
from naksha.model.state import State

Tweak = Callable[[Sequence[State]], Sequence[State]]
"""Reduces or simplifies states."""
Mask = npt.NDArray[np.bool_]
Shapes = npt.NDArray[np.object_]


def features_in(box: Bbox) -> Spatial:
    """Return the condition for features that are at least partly in a box.

    A box without an area has no interior, so features whose bounding boxes touch it match.
    """
    if box.west == box.east or box.south == box.north:
        return box
    return Intersects(shapely.to_wkb(box_shape(box)))


# ---- Cells ---------------------------------------------------------------------------------------


class ClusterInput:
    """Features to count in cells: their shapes, and a number of each."""

    def __init__(self, name: str | None = None, ratio: float = 1.0) -> None:
        self._property = name
        self._ratio = ratio
        self._shapes: list[Shapes] = []
        self._values: list[npt.NDArray[np.float64]] = []
        self._count = 0

    async def read(self, found: Features) -> None:
        """Read all features of a response."""
        async for states in found:
            taken = (
                states if self._ratio >= 1.0 else _where(states, sample(_ids(states), self._ratio))
            )
            self._add(taken)

    def _add(self, states: Sequence[State]) -> None:
        some, shapes = with_shapes(states)
        self._count += len(some)
        if self._count > limits.CLUSTERED_FEATURES_MAX:
            raise LimitExceeded(
                f"The area has more than {limits.CLUSTERED_FEATURES_MAX:,} features to count; use "
                "a smaller area or clustering.sampling",
                field="clustering",
            )
        self._shapes.append(shapes)
        if self._property is not None:
            features = (state.feature for state in some)
            self._values.append(property_numbers(features, self._property))

    @property
    def shapes(self) -> Shapes:
        """The geometries of the features."""
        return np.concatenate([np.empty(0, dtype=object), *self._shapes])

    @property
    def values(self) -> npt.NDArray[np.float64] | None:
        """The requested property of each feature, if one is requested."""
        return None if self._property is None else np.concatenate([np.empty(0), *self._values])


def clustered_box(box: Bbox, level: int, options: Hexbin | Quadbin) -> Bbox:
    """Return the box in which features have to be searched."""
    if isinstance(options, Quadbin):
        return box
    return hexbin_box(box, hexagon_resolution(level, options))


def cluster_input(options: Hexbin | Quadbin) -> ClusterInput:
    """Return an empty collector for the clustering options."""
    if isinstance(options, Quadbin):
        return ClusterInput()
    ratio = 1.0 if options.sampling is None else sampling_ratio(options.sampling)
    return ClusterInput(options.property, ratio)


def cells(
    gathered: ClusterInput,
    box: Bbox,
    level: int,
    options: Hexbin | Quadbin,
    *,
    clip: bool,
    total_count: int | None = None,
) -> list[dict[str, Any]]:
    """Return the non-empty cells as features; `total_count` is the number in the space."""
    if isinstance(options, Hexbin):
        return hexbins(gathered.shapes, gathered.values, box, level, options, clip=clip)
    deeper = tiles_over(box, level + quadbin_levels(level, options))
    edges = box if clip else None
    return quadbins(gathered.shapes, deeper, options, total_count=total_count, clip=edges)


# ---- Fewer and simpler features ------------------------------------------------------------------


async def tweaks_of(
    options: Sequence[Sampling | Simplification | Ensure],
    box: Bbox,
    count: Callable[[], Awaitable[int]],
) -> list[Tweak]:
    """Return the tweaks for the features of a box; `count` returns their number."""
    tweaks: list[Tweak] = []
    for option in options:
        if isinstance(option, Simplification):
            if not option.algorithm.joins:
                tweaks.append(_simplifying(option, box))
        elif isinstance(option, Ensure):
            tweaks.append(_sampling(ensuring_ratio(await count(), option.thousands)))
        elif option.algorithm is SamplingAlgorithm.GEOMETRY_SIZE:
            tweaks.append(_large(option.strength))
        else:
            tweaks.append(_sampling(sampling_ratio(option.strength)))
    return tweaks


async def join_features(found: Features, options: Simplification) -> Features:
    """Join features; all are read first, since any two of them may have to be joined."""
    join = line_merged if options.algorithm is SimplificationAlgorithm.LINE_MERGE else merged

    async def read(_: Features) -> AsyncIterator[Sequence[State]]:
        gathered: list[State] = []
        async for states in found:
            gathered += states
            if len(gathered) > limits.JOINED_FEATURES_MAX:
                await found.aclose()
                raise LimitExceeded(
                    f"The area has more than {limits.JOINED_FEATURES_MAX:,} features to join; use a"
                    " smaller area",
                    field="tweaks.algorithm",
                )
        yield await asyncio.to_thread(join, gathered, options.strength)

    return await Features.with_first_read(read)


def apply_tweaks(found: Features, tweaks: Sequence[Tweak], limit: int) -> Features:
    """Apply tweaks to features and return at most `limit` of them."""

    async def read(_: Features) -> AsyncIterator[Sequence[State]]:
        left = limit
        async for states in found:
            for tweak in tweaks:
                states = tweak(states)
            if states:
                yield states[:left]
            left -= len(states)
            if left <= 0:
                break
        await found.aclose()

    return Features(read)


def _ids(states: Sequence[State]) -> list[str]:
    return [state.id for state in states]


def _where(states: Sequence[State], mask: Mask) -> list[State]:
    return [states[index] for index in np.flatnonzero(mask).tolist()]


def _sampling(ratio: float) -> Tweak:
    if ratio >= 1.0:
        return lambda states: states
    return lambda states: _where(states, sample(_ids(states), ratio))


def _large(strength: int) -> Tweak:
    def tweak(states: Sequence[State]) -> Sequence[State]:
        some, shapes = with_shapes(states)
        return _where(some, large(shapes, strength))

    return tweak


def _simplifying(options: Simplification, box: Bbox) -> Tweak:
    shaping = StateProjection(simplify=lambda shapes: simplified(shapes, options, box))
    return lambda states: shaped(states, shaping)
