"""Reads of several layers as one, where features with the same id are merged into one.

The members of an upper layer's feature override those of the layers below. The merged feature is
stored nowhere, so the layers are read by id, their features are merged, and the query is tested on
the result. A geometry is never merged: the layer that it comes from tests the spatial condition.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import msgspec

from naksha.hub.handlers.views import layered_reads
from naksha.hub.handlers.views.layers import LayerStack, chunks
from naksha.hub.pipeline.responses import Features
from naksha.model import limits
from naksha.model.errors import NotSupported
from naksha.model.query import PREFIXES, Query
from naksha.model.state import XYZ, State
from naksha.spi.query.plan import plan_of
from naksha.spi.query.predicates import matches
from naksha.versioning.change_filters import OF_CHANGE

Feature = dict[str, Any]
_GEOMETRY: Final = "geometry"
_REFUSED: Final = frozenset({*OF_CHANGE, *PREFIXES.values(), "replaced_since"}) - {"authors"}
"""Conditions on what a single space knows: its own changes, and where its geometry is."""


class _LayerFeature(NamedTuple):
    """The part of a feature that one layer has."""

    place: int
    state: State

    @property
    def has_geometry(self) -> bool:
        return self.state.feature.get(_GEOMETRY) is not None


async def read(stack: LayerStack, query: Query, *, paged: bool) -> Features:
    """Read the merged features of all layers; paged, in the order of their ids."""
    check_query(query)
    if paged:
        return await Features.with_first_read(lambda answer: _pages(answer, stack, query))
    return await Features.with_first_read(lambda _: _some(stack, query))


async def count(stack: LayerStack, query: Query) -> int:
    """Count the merged features that match a query."""
    check_query(query)
    everything = _everything(query)
    if msgspec.structs.replace(query, space=None) == everything:
        return await layered_reads.count(stack, everything, hiding=True)
    unlimited = msgspec.structs.replace(query, limit=None)
    async with aclosing(_some(stack, unlimited)) as found:
        return sum([len(states) async for states in found])


def check_query(query: Query) -> None:
    """Raise NotSupported for conditions that do not apply to merged features."""
    for name in query.__struct_fields__:
        if name in _REFUSED and getattr(query, name) is not None:
            raise NotSupported(
                "The spaces of a MERGED view have no common history; send the query to one of "
                "the spaces",
                field=name,
            )


def _everything(query: Query) -> Query:
    """Return the query for the layers, before the conditions are tested on merged features."""
    return Query(ids=query.ids, part=query.part)


# ---- In any order ----------------------------------------------------------------------------


async def _some(stack: LayerStack, query: Query) -> AsyncGenerator[Sequence[State], None]:
    left = query.limit
    async with aclosing(_candidates(stack, query)) as found:
        async for ids in found:
            merged = await _merged(stack, ids, query)
            if left is not None and len(merged) >= left:
                yield merged[:left]
                return
            left = None if left is None else left - len(merged)
            if merged:
                yield merged


async def _candidates(stack: LayerStack, query: Query) -> AsyncGenerator[list[str], None]:
    """Yield ids that may match the query, each once."""
    narrow = msgspec.structs.replace(_everything(query), spatial=query.spatial)
    known: set[str] = set()
    for layer in stack.layers:
        async with aclosing(stack.stream(layer, narrow)) as found:
            async for states in found:
                new = [state.id for state in states if state.id not in known]
                known.update(new)
                if new:
                    yield new


# ---- In the order of the ids -----------------------------------------------------------------


async def _pages(
    answer: Features, stack: LayerStack, query: Query
) -> AsyncGenerator[Sequence[State], None]:
    left = limits.PAGE_DEFAULT if query.limit is None else query.limit
    cursor = query.cursor
    while True:
        size = limits.READ_CHUNK_FEATURES
        ids, after = await _page(stack, query, cursor, size)
        merged = await _merged(stack, ids, query)
        if len(merged) >= left:
            page_ids = merged[:left]
            # Read the page again, cut after the last feature returned, to get its cursor.
            _, answer.cursor = await _page(stack, query, cursor, ids.index(page_ids[-1].id) + 1)
            yield page_ids
            return
        left -= len(merged)
        if merged:
            yield merged
        if after is None:
            return
        cursor = after


async def _page(
    stack: LayerStack, query: Query, cursor: str | None, size: int
) -> tuple[list[str], str | None]:
    """Return the next ids, and the cursor after them."""
    needed = msgspec.structs.replace(_everything(query), limit=size, cursor=cursor)
    found = await layered_reads.read(stack, needed, hiding=True, paged=True)
    ids = [state.id for state in await found.all()]
    return ids, found.cursor


# ---- Merging ---------------------------------------------------------------------------------


async def _merged(stack: LayerStack, ids: Sequence[str], query: Query) -> list[State]:
    """Return the merged features with these ids that match the query, in the same order."""
    found: list[State] = []
    plan = plan_of(query)
    for some in chunks(ids):
        pieces = await _pieces(stack, some)
        matching = await _in_place(stack, pieces, query)
        for id in some:
            if id in matching and pieces[id]:
                feature = _merge_layers(pieces[id])
                if stack.names_origin and len(pieces[id]) > 1:
                    feature["properties"][XYZ].pop("space", None)
                if matches(feature, plan):
                    found.append(State(id, msgspec.json.encode(feature)))
    return found


async def _pieces(stack: LayerStack, ids: Collection[str]) -> dict[str, list[_LayerFeature]]:
    """Return the layers' features with these ids, from the top down to the first deletion."""
    pieces: dict[str, list[_LayerFeature]] = {id: [] for id in ids}
    left = set(ids)
    for place, layer in enumerate(stack.layers):
        live = await stack.find(layer, left)
        for state in live:
            pieces[state.id].append(_LayerFeature(place, state))
        rest = left - {state.id for state in live}
        left -= await stack.hidden_by(layer, rest)
    return pieces


async def _in_place(
    stack: LayerStack, pieces: Mapping[str, Sequence[_LayerFeature]], query: Query
) -> Collection[str]:
    """Return the ids whose geometry matches the spatial condition."""
    if query.spatial is None:
        return pieces.keys()
    owned: dict[int, list[str]] = {}
    for id, some in pieces.items():
        owner = next((piece.place for piece in some if piece.has_geometry), None)
        if owner is not None:
            owned.setdefault(owner, []).append(id)
    matching: set[str] = set()
    for place, ids in owned.items():
        needed = Query(ids=tuple(ids), spatial=query.spatial)
        async with aclosing(stack.stream(stack.layers[place], needed)) as found:
            async for states in found:
                matching.update(state.id for state in states)
    return matching


def _merge_layers(pieces: Sequence[_LayerFeature]) -> Feature:
    merged: Feature = {}
    for piece in reversed(pieces):
        feature = piece.state.feature
        geometry = feature if piece.has_geometry else merged
        merged = {**_overlaid(merged, feature), _GEOMETRY: geometry.get(_GEOMETRY)}
    return merged


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> Feature:
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _overlaid(old, value)
        result[name] = value
    return result
