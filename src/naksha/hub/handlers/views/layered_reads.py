"""Reads of several layers as one: streamed in any order, or merged in the order of the ids.

Both keep only a few chunks in memory, however many features there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from naksha.hub.auth.rights import Right
from naksha.hub.handlers.views.cursor import (
    EXHAUSTED,
    ViewCursor,
    decode_view_cursor,
    moved,
)
from naksha.hub.handlers.views.layers import HIDING, LayerStack, ViewLayer
from naksha.hub.pipeline.requests import CountFeatures, ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.state import State


async def read(stack: LayerStack, query: Query, *, hiding: bool, paged: bool) -> Features:
    """Read the features of all layers; `hiding` leaves out those hidden by an upper layer."""
    if not paged and hiding and are_few(query):
        return Features.of(await _few(stack, query))
    if not paged:
        return await Features.with_first_read(lambda _: _some(stack, query, hiding))
    return await Features.with_first_read(lambda answer: _merged(answer, stack, query, hiding))


# ---- Few ids ---------------------------------------------------------------------------------


def are_few(query: Query) -> bool:
    """Whether a query is for ids whose features fit into one chunk in memory."""
    return query.ids is not None and len(query.ids) <= limits.READ_CHUNK_FEATURES


async def _few(stack: LayerStack, query: Query) -> list[State]:
    """Read the layers completely, from the bottom up.

    A feature that is brought up meanwhile is found in the upper layer, which is read later and
    wins. So no version has to be determined first.
    """
    unlimited = msgspec.structs.replace(query, limit=None)
    found: dict[str, State] = {}
    for place in reversed(range(len(stack.layers))):
        async with aclosing(stack.stream(stack.layers[place], unlimited)) as chunks:
            async for states in chunks:
                shown = await _shown(stack.above(place), states)
                found |= {state.id: state for state in shown}
    return [*found.values()][: query.limit]


# ---- In any order ----------------------------------------------------------------------------


async def _some(
    stack: LayerStack, query: Query, hiding: bool
) -> AsyncGenerator[Sequence[State], None]:
    """Yield features up to the limit of the query.

    The limit is not passed to the layers, since an unknown number of their features is hidden.
    """
    left = query.limit
    unlimited = msgspec.structs.replace(query, limit=None)
    async with aclosing(_streamed(stack, unlimited, hiding)) as found:
        async for states in found:
            if left is not None and len(states) >= left:
                yield states[:left]
                return
            left = None if left is None else left - len(states)
            yield states


async def _streamed(
    stack: LayerStack, query: Query, hiding: bool
) -> AsyncGenerator[Sequence[State], None]:
    """Read one layer after the other, and ask the layers above which features they hide."""
    for place, layer in enumerate(stack.layers):
        above = stack.above(place if hiding else 0)
        async with aclosing(stack.stream(layer, query)) as found:
            async for states in found:
                shown = await _shown(above, states)
                if shown:
                    yield shown


async def _shown(above: LayerStack, states: Sequence[State]) -> Sequence[State]:
    if not above.layers:
        return states
    unhidden = await above.unhidden([state.id for state in states])
    return [state for state in states if state.id in unhidden]


# ---- In the order of the ids -----------------------------------------------------------------


class _LayerState(NamedTuple):
    """A state and the place of its layer, in the order of the response."""

    id: str
    place: int
    state: State


class _Pages:
    """Paged read of one layer. `ahead` holds features that were read but not yet returned."""

    def __init__(
        self, stack: LayerStack, place: int, query: Query, start: ViewCursor | None
    ) -> None:
        self._stack = stack
        self._layer: ViewLayer = stack.layers[place]
        self._query = query
        self._start = start
        self._place = place
        self._cursor = None if start is None else start.layers[place]
        self._next: str | None = self._cursor
        self.is_at_end = self._cursor == EXHAUSTED
        self.ahead: deque[_LayerState] = deque()

    async def fill(self, size: int) -> None:
        """Read the next page when no features are left."""
        while not self.ahead and not self.is_at_end:
            self._cursor = self._next
            query = msgspec.structs.replace(self._query, limit=size, cursor=self._cursor)
            request = ReadFeatures(query=query, ref=self._stack.ref, paged=True)
            response = await self._layer.send(self._stack.event, request)
            candidates = [
                _LayerState(state.id, self._place, state) for state in await response.all()
            ]
            self.ahead += [one for one in candidates if not self._was_returned(one)]
            self._next = response.cursor
            self.is_at_end = self._next is None

    def _was_returned(self, one: _LayerState) -> bool:
        return self._start is not None and self._start.has_passed(one.id, one.place)

    def take(self, bound: str | None) -> list[_LayerState]:
        """Remove and return the features up to an id."""
        taken = []
        while self.ahead and (bound is None or self.ahead[0].id <= bound):
            taken.append(self.ahead.popleft())
        return taken

    def cursor_at(self, id: str, *, after: bool) -> str | None:
        """Return the cursor to continue with after the last returned feature, which has this id."""
        if self._cursor == EXHAUSTED:
            return EXHAUSTED
        known = self._next or self._cursor
        if known is None:
            return None
        try:
            return moved(known, id, after=after)
        except InvalidArgument:
            return self._cursor


async def _merged(
    answer: Features, stack: LayerStack, query: Query, hiding: bool
) -> AsyncGenerator[Sequence[State], None]:
    """Yield features up to the limit, and set a cursor if there are more."""
    left = limits.PAGE_DEFAULT if query.limit is None else query.limit
    start = decode_view_cursor(query.cursor, len(stack.layers))
    layers = [_Pages(stack, place, query, start) for place in range(len(stack.layers))]
    last: _LayerState | None = None
    while True:
        candidates = await _next_placed(stack, layers, min(left + 1, limits.READ_CHUNK_FEATURES))
        if candidates is None:
            return
        shown = await _topmost(stack, candidates) if hiding else candidates
        page = shown[:left]
        left -= len(page)
        last = page[-1] if page else last
        if page:
            yield [one.state for one in page]
        if len(shown) > len(page):  # at least one more than the limit
            assert last is not None
            answer.cursor = _cursor_after(last, layers, hiding, stack.pins)
            return


async def _next_placed(
    stack: LayerStack, layers: Sequence[_Pages], size: int
) -> list[_LayerState] | None:
    """Return the next features of all layers, up to an id that all of them have reached.

    Returns None when all layers are exhausted.
    """
    for layer in layers:
        await layer.fill(size)
    if not any(layer.ahead for layer in layers):
        return None
    bound = min((layer.ahead[-1].id for layer in layers if not layer.is_at_end), default=None)
    return sorted((one for layer in layers for one in layer.take(bound)), key=lambda one: one[:2])


async def _topmost(stack: LayerStack, candidates: Sequence[_LayerState]) -> list[_LayerState]:
    """Return the features that no upper layer hides."""
    first: dict[str, _LayerState] = {}
    for one in candidates:
        first.setdefault(one.id, one)
    hidden: set[str] = set()
    for place in {one.place for one in first.values()} - {0}:
        ids = [one.id for one in first.values() if one.place == place]
        hidden |= {*ids} - await stack.above(place).unhidden(ids)
    return [one for one in first.values() if one.id not in hidden]


def _cursor_after(
    last: _LayerState, layers: Sequence[_Pages], hiding: bool, pins: tuple[str, ...]
) -> str:
    """Return the cursor after the last feature and after those it hides."""
    place = len(layers) if hiding else last.place
    cursors = tuple(
        layer.cursor_at(last.id, after=number <= place) for number, layer in enumerate(layers)
    )
    return ViewCursor(last.id, place, cursors, pins).encoded()


# ---- Counting --------------------------------------------------------------------------------


async def count(stack: LayerStack, query: Query, *, hiding: bool) -> int:
    """Count the features that match a query in all layers together."""
    total = 0
    for place, layer in enumerate(stack.layers):
        own = await _count(stack, layer, query)
        if hiding and place > 0 and own > 0:
            own -= await _count_hidden(stack, place, query, own)
        total += own
    return total


async def _count(stack: LayerStack, layer: ViewLayer, query: Query) -> int:
    return (await layer.send(stack.event, CountFeatures(query=query, ref=stack.ref))).count


async def _count_hidden(stack: LayerStack, place: int, query: Query, own: int) -> int:
    """Count the features of a layer that upper layers hide.

    A large layer is usually a base with a few edits above it, so the layers above are scanned
    instead. This requires the right to read all of their features: unreadable features hide others
    too, but can only be looked up by id.
    """
    layer, above = stack.layers[place], stack.above(place)
    hidden = 0
    rights = stack.event.context.actor.rights
    if own <= limits.READ_CHUNK_FEATURES or rights.depends_on_features(Right.READ_FEATURES):
        async with aclosing(stack.stream(layer, query)) as found:
            async for states in found:
                hidden += len(states) - len(await _shown(above, states))
        return hidden
    for hiding in HIDING:
        upper = msgspec.structs.replace(hiding, ids=query.ids)
        async with aclosing(_streamed(above, upper, hiding=True)) as found:
            async for some in found:
                ids = tuple(state.id for state in some)
                narrowed = msgspec.structs.replace(query, ids=ids)
                hidden += await _count(stack, layer, narrowed)
    return hidden
