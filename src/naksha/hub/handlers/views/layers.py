"""The layers of a view, and what the upper ones hide of the lower ones.

A feature that is in a layer, live or deleted, hides whatever has its id in the layers below, unless
it was deleted such that they show through (`Modification.unmasks`). That
is asked of the whole layer, not of what a filter leaves of it: a feature that was changed so that
a query no longer finds it must not come back as it was before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from naksha.hub.pipeline.pipeline import Event
from naksha.hub.pipeline.requests import MASKS, ReadFeatures, Request
from naksha.hub.pipeline.responses import Features
from naksha.model.errors import Expired, Forbidden
from naksha.model.limits import READ_CHUNK_FEATURES
from naksha.model.query import Query, States
from naksha.model.state import XYZ, State

R = TypeVar("R")


class Layer(Protocol):
    """A layer of a view."""

    async def ask(self, event: Event, request: Request[R]) -> R:
        """Its answer to a request."""


class SpaceLayer(NamedTuple):
    """Another space, with its own pipeline and its own rights."""

    space_id: str

    async def ask(self, event: Event, request: Request[R]) -> R:
        return await event.send_to(self.space_id, request)


class OwnLayer(NamedTuple):
    """What the space has itself: the handlers behind the view."""

    async def ask(self, event: Event, request: Request[R]) -> R:
        answer: R = await event.send_upstream(request)
        return answer


class PinnedLayer(NamedTuple):
    """A layer as it was at a version; `or_present`: as it is, when it no longer knows how it
    was."""

    layer: Layer
    ref: str
    or_present: bool = False

    async def ask(self, event: Event, request: Request[R]) -> R:
        try:
            return await self.layer.ask(event, msgspec.structs.replace(request, ref=self.ref))
        except Expired:
            if not self.or_present:
                raise
            return await self.layer.ask(event, request)


HIDING: Final = (Query(), Query(states=States.DELETED, where=MASKS))
"""Queries for the states that hide features of the layers below."""


class DeletionLayer(NamedTuple):
    """The features of lower layers that a layer hides by its tombstones, each with its id and its
    namespace only, and `deleted: true` there."""

    layer: Layer
    below: Sequence[Layer]

    async def ask(self, event: Event, request: Request[R]) -> R:
        assert isinstance(request, ReadFeatures)
        query = msgspec.structs.replace(request.query, states=States.DELETED, where=MASKS)
        answer = await self.layer.ask(event, msgspec.structs.replace(request, query=query))

        async def hidden(shown: Features) -> AsyncGenerator[Sequence[State], None]:
            async with aclosing(answer):
                async for states in answer:
                    below = Stack(event, self.below, request.ref)
                    heads = await below.readable_heads({state.id for state in states})
                    yield [_marked(state) for state in states if state.id in heads]
            shown.cursor = answer.cursor

        return cast(R, await Features.begun(hidden))


def _marked(state: State) -> State:
    feature = {
        "type": "Feature",
        "id": state.id,
        "geometry": None,
        "properties": {XYZ: {**state.xyz, "deleted": True}},
    }
    return State(state.id, msgspec.json.encode(feature))


class Stack(NamedTuple):
    """Layers, topmost first, as one event reads them: all at the same version, if any is named.
    `pins` are the versions that they are pinned to, if each is to one of its own; with `only_ids`
    nobody wants to know more of the features than that they are there."""

    event: Event
    layers: Sequence[Layer]
    ref: str
    pins: tuple[str, ...] = ()
    only_ids: bool = False
    names_origin: bool = False

    def pinned(self, pins: tuple[str, ...], *, or_present: bool = False) -> Stack:
        """The same, with each layer as it was at its version; an empty one is the present, and so
        is, if that will do, one that is not kept."""
        layers = [
            PinnedLayer(layer, pin, or_present) if pin else layer
            for layer, pin in zip(self.layers, pins, strict=True)
        ]
        return self._replace(layers=layers, pins=pins)

    def above(self, place: int) -> Stack:
        """Those that hide something of the layer at a place."""
        return self._replace(layers=self.layers[:place])

    async def unhidden(self, ids: Collection[str]) -> set[str]:
        """Those of the ids that no layer has, live or deleted."""
        left = set(ids)
        for layer in self.layers:
            left -= await self.hidden_by(layer, left)
        return left

    async def hidden_by(self, layer: Layer, ids: Collection[str]) -> set[str]:
        """Those of the ids that a layer has, live or deleted, whoever may read them."""
        left = set(ids)
        for hiding in HIDING:
            left -= {state.id for state in await self._find(layer, left, hiding, only_ids=True)}
        return {*ids} - left

    async def heads(self, ids: Collection[str]) -> dict[str, tuple[int, State]]:
        """The features that the stack has under these ids, each with the place of its layer."""
        heads: dict[str, tuple[int, State]] = {}
        left = set(ids)
        for place, layer in enumerate(self.layers):
            live = await self.find(layer, left)
            left -= {state.id for state in live}
            hidden = await self.hidden_by(layer, left)
            # A feature that was created between the two reads is not hidden but there.
            live += await self.find(layer, hidden)
            heads |= {state.id: (place, state) for state in live}
            left -= hidden
        return heads

    async def readable_heads(self, ids: Collection[str]) -> dict[str, State]:
        """The same without the places; none for an actor who may not read these layers."""
        try:
            return {id: state for id, (_, state) in (await self.heads(ids)).items()}
        except Forbidden:
            return {}

    async def find(self, layer: Layer, ids: Collection[str]) -> list[State]:
        """The features that a layer has under these ids."""
        return await self._find(layer, ids, Query(), only_ids=False)

    async def _find(
        self, layer: Layer, ids: Collection[str], query: Query, *, only_ids: bool
    ) -> list[State]:
        found: list[State] = []
        for some in chunks(sorted(ids)):
            space = None if self.names_origin else self.event.space.id
            query = msgspec.structs.replace(query, ids=tuple(some), space=space)
            request = ReadFeatures(query=query, ref=self.ref, only_ids=only_ids)
            found += await (await layer.ask(self.event, request)).all()
        return found

    async def stream(self, layer: Layer, query: Query) -> AsyncGenerator[Sequence[State], None]:
        """All features that a layer has for a query, some at a time. Those of some ids are read
        before anybody asks for more: only streams may keep a connection that long."""
        if query.ids is not None:
            for ids in [*chunks(dict.fromkeys(query.ids))] or [[]]:
                part = msgspec.structs.replace(query, ids=tuple(ids))
                found = await layer.ask(self.event, self._reading(part))
                yield await found.all()
            return
        async with aclosing(await layer.ask(self.event, self._reading(query))) as answer:
            async for states in answer:
                for some in chunks(states):
                    yield some

    def _reading(self, query: Query) -> ReadFeatures:
        return ReadFeatures(query=query, ref=self.ref, only_ids=self.only_ids)


T = TypeVar("T")


def chunks(things: Iterable[T]) -> Iterator[list[T]]:
    """The same, not more than is in memory anyway at a time."""
    rest = iter(things)
    while some := list(islice(rest, READ_CHUNK_FEATURES)):
        yield some
