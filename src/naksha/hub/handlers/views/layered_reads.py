"""Reading several layers as one: streamed as they come, or merged in the order of the ids.

Neither keeps more than a few chunks in memory, however many features there are.
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
from naksha.hub.handlers.views.layers import HIDING, Layer, Stack
from naksha.hub.pipeline.requests import CountFeatures, ReadFeatures
from naksha.hub.pipeline.responses import Features
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Query
from naksha.model.state import State


async def read(stack: Stack, query: Query, *, hiding: bool, paged: bool) -> Features:
    """The features of all layers; `hiding`: without those that an upper layer hides."""
    if not paged and hiding and are_few(query):
        return Features.of(await _few(stack, query))
    if not paged:
        return await Features.begun(lambda _: _some(stack, query, hiding))
    return await Features.begun(lambda answer: _merged(answer, stack, query, hiding))


# ---- Some ids --------------------------------------------------------------------------------


def are_few(query: Query) -> bool:
    """Whether a query asks for features by their ids, for no more than are in memory anyway."""
    return query.ids is not None and len(query.ids) <= limits.READ_CHUNK_FEATURES


async def _few(stack: Stack, query: Query) -> list[State]:
    """All at once, from below: what is brought up meanwhile is found above, at the latest, and
    counts there. So no version is needed, and nobody waits for one to be looked up."""
    unlimited = msgspec.structs.replace(query, limit=None)
    found: dict[str, State] = {}
    for place in reversed(range(len(stack.layers))):
        async with aclosing(stack.stream(stack.layers[place], unlimited)) as chunks:
            async for states in chunks:
                shown = await _shown(stack.above(place), states)
                found |= {state.id: state for state in shown}
    return [*found.values()][: query.limit]


# ---- In any order ----------------------------------------------------------------------------


async def _some(stack: Stack, query: Query, hiding: bool) -> AsyncGenerator[Sequence[State], None]:
    """As many as are asked for. Layers are not told how many, since nobody knows how many of
    theirs are hidden."""
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
    stack: Stack, query: Query, hiding: bool
) -> AsyncGenerator[Sequence[State], None]:
    """One layer after the other; of each chunk the layers above are asked for what they hide."""
    for place, layer in enumerate(stack.layers):
        above = stack.above(place if hiding else 0)
        async with aclosing(stack.stream(layer, query)) as found:
            async for states in found:
                shown = await _shown(above, states)
                if shown:
                    yield shown


async def _shown(above: Stack, states: Sequence[State]) -> Sequence[State]:
    if not above.layers:
        return states
    unhidden = await above.unhidden([state.id for state in states])
    return [state for state in states if state.id in unhidden]


# ---- In the order of the ids -----------------------------------------------------------------


class _Placed(NamedTuple):
    """A state and the place of its layer; ordered as they are given out."""

    id: str
    place: int
    state: State


class _Pages:
    """One layer, read by pages. `ahead` are features that were read and not yet given out."""

    def __init__(self, stack: Stack, place: int, query: Query, start: ViewCursor | None) -> None:
        self._stack = stack
        self._layer: Layer = stack.layers[place]
        self._query = query
        self._start = start
        self._place = place
        self._cursor = None if start is None else start.layers[place]
        self._next: str | None = self._cursor
        self.is_at_end = self._cursor == EXHAUSTED
        self.ahead: deque[_Placed] = deque()

    async def fill(self, size: int) -> None:
        """Read on when nothing is left."""
        while not self.ahead and not self.is_at_end:
            self._cursor = self._next
            query = msgspec.structs.replace(self._query, limit=size, cursor=self._cursor)
            request = ReadFeatures(query=query, ref=self._stack.ref, paged=True)
            answer = await self._layer.ask(self._stack.event, request)
            placed = [_Placed(state.id, self._place, state) for state in await answer.all()]
            self.ahead += [one for one in placed if not self._was_given(one)]
            self._next = answer.cursor
            self.is_at_end = self._next is None

    def _was_given(self, one: _Placed) -> bool:
        return self._start is not None and self._start.has_passed(one.id, one.place)

    def take(self, bound: str | None) -> list[_Placed]:
        """The features up to an id."""
        taken = []
        while self.ahead and (bound is None or self.ahead[0].id <= bound):
            taken.append(self.ahead.popleft())
        return taken

    def cursor_at(self, id: str, *, after: bool) -> str | None:
        """What to go on with when the last feature that was given has this id."""
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
    answer: Features, stack: Stack, query: Query, hiding: bool
) -> AsyncGenerator[Sequence[State], None]:
    """As many as are asked for; with a cursor when there is one more."""
    left = limits.PAGE_DEFAULT if query.limit is None else query.limit
    start = decode_view_cursor(query.cursor, len(stack.layers))
    layers = [_Pages(stack, place, query, start) for place in range(len(stack.layers))]
    last: _Placed | None = None
    while True:
        placed = await _next_placed(stack, layers, min(left + 1, limits.READ_CHUNK_FEATURES))
        if placed is None:
            return
        shown = await _topmost(stack, placed) if hiding else placed
        given = shown[:left]
        left -= len(given)
        last = given[-1] if given else last
        if given:
            yield [one.state for one in given]
        if len(shown) > len(given):  # one more than was asked for
            assert last is not None
            answer.cursor = _cursor_after(last, layers, hiding, stack.pins)
            return


async def _next_placed(stack: Stack, layers: Sequence[_Pages], size: int) -> list[_Placed] | None:
    """The next features of all layers, up to an id that all of them have reached; None at the
    end of all."""
    for layer in layers:
        await layer.fill(size)
    if not any(layer.ahead for layer in layers):
        return None
    bound = min((layer.ahead[-1].id for layer in layers if not layer.is_at_end), default=None)
    return sorted((one for layer in layers for one in layer.take(bound)), key=lambda one: one[:2])


async def _topmost(stack: Stack, placed: Sequence[_Placed]) -> list[_Placed]:
    """Those that nothing hides."""
    first: dict[str, _Placed] = {}
    for one in placed:
        first.setdefault(one.id, one)
    hidden: set[str] = set()
    for place in {one.place for one in first.values()} - {0}:
        ids = [one.id for one in first.values() if one.place == place]
        hidden |= {*ids} - await stack.above(place).unhidden(ids)
    return [one for one in first.values() if one.id not in hidden]


def _cursor_after(
    last: _Placed, layers: Sequence[_Pages], hiding: bool, pins: tuple[str, ...]
) -> str:
    """Behind the last feature, and behind whatever it hides."""
    place = len(layers) if hiding else last.place
    cursors = tuple(
        layer.cursor_at(last.id, after=number <= place) for number, layer in enumerate(layers)
    )
    return ViewCursor(last.id, place, cursors, pins).encoded()


# ---- Counting --------------------------------------------------------------------------------


async def count(stack: Stack, query: Query, *, hiding: bool) -> int:
    """How many features a query has in all layers together."""
    total = 0
    for place, layer in enumerate(stack.layers):
        own = await _count(stack, layer, query)
        if hiding and place > 0 and own > 0:
            own -= await _count_hidden(stack, place, query, own)
        total += own
    return total


async def _count(stack: Stack, layer: Layer, query: Query) -> int:
    return (await layer.ask(stack.event, CountFeatures(query=query, ref=stack.ref))).count


async def _count_hidden(stack: Stack, place: int, query: Query, own: int) -> int:
    """How many features of a layer are hidden. When it has many of them, what lies above is gone
    through instead: mostly that is a few edits over a large base. But only by who may read all of
    that: what he may not read hides something as well, and can be asked for by its id only."""
    layer, above = stack.layers[place], stack.above(place)
    hidden = 0
    rights = stack.event.context.actor.rights
    if own <= limits.READ_CHUNK_FEATURES or rights.tells_features_apart(Right.READ_FEATURES):
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
